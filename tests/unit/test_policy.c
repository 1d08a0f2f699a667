/* What a policy lets in and refuses: folders, environment, working folder, levels; the catalogue.
 */
#include "unit.h"

#include "base/path.h"
#include "policy/catalog.h"
#include "policy/policy.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct machine machine;

static int machine_make(void **state)
{
    (void)state;
    machine = (struct machine){.runner = strdup("/usr/local/lib/cordon/cordon-runner"),
                               .programs_dir = strdup("/usr/local/lib/cordon"),
                               .home = strdup("/home/ada"),
                               .user = strdup("ada"),
                               .group = strdup("ada"),
                               .uid = 1000,
                               .gid = 1000};
    strv_add(&machine.system_dirs, "/usr");
    strv_add(&machine.system_dirs, "/opt");
    strv_add(&machine.system_links, "bin=usr/bin");
    strv_add(&machine.home_links, "/u/ada");
    strv_add(&machine.protected_dirs, "/home/ada/.ssh");
    strv_add(&machine.protected_dirs, "/home/ada/.local/state/cordon");
    strv_add(&machine.protected_dirs, "/home/ada/dotfiles/aws");
    strv_add(&machine.protected_dirs, "/usr/local/lib/cordon");
    return 0;
}

static int machine_free(void **state)
{
    (void)state;
    machine_done(&machine);
    return 0;
}

static int compile(const char *folder, enum access access, char *const *caller, json_t *env,
                   struct policy *p, struct err *err)
{
    const struct policy_folder f = {.id = "fol_1",
                                    .path = (char *)(uintptr_t)folder,
                                    .real = (char *)(uintptr_t)folder,
                                    .access = access};
    const struct policy_input in = {.tier = TIER_WALLED,
                                    .network = NET_ALLOWLIST,
                                    .folders = &f,
                                    .n_folders = folder ? 1 : 0,
                                    .private_dir = "/tmp/cordon-x",
                                    .caller_env = caller,
                                    .session_env = env,
                                    .door_port = 7412};
    return policy_compile(&in, &machine, p, err);
}

static void folders_refused(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        enum access access;
        const char *code;
    } ROWS[] = {
        {"/home/ada", ACCESS_RW, "protected_place"},
        {"/home/ada", ACCESS_RO, "protected_place"},
        {"/home", ACCESS_RO, "protected_place"},
        {"/", ACCESS_RO, "path_invalid"},
        {"/home/ada/.ssh", ACCESS_RO, "protected_place"},
        {"/home/ada/.ssh/keys", ACCESS_RO, "protected_place"},
        {"/home/ada/dotfiles", ACCESS_RW, "protected_place"}, /* case 17 */
        {"/home/ada/.local/state/cordon/x", ACCESS_RO, "protected_place"},
        {"/home/ada/.local", ACCESS_RW, "protected_place"},
        {"/usr/local/lib/cordon", ACCESS_RO, "protected_place"},
        {"/tmp", ACCESS_RW, "protected_place"},
        {"/var", ACCESS_RO, "protected_place"},
        {"/run", ACCESS_RO, "protected_place"},
        {"/dev/shm/ws", ACCESS_RW, "path_invalid"},
        {"/proc/self", ACCESS_RO, "path_invalid"},
        {"/sys", ACCESS_RO, "path_invalid"},
        {"/usr/bin", ACCESS_RW, "path_invalid"},
        {"/usr", ACCESS_RW, "path_invalid"},
        {"/etc/x", ACCESS_RW, "path_invalid"},
        {"relative", ACCESS_RW, "path_invalid"},
        {"/a/../b", ACCESS_RW, "path_invalid"},
        {"/a//b", ACCESS_RW, "path_invalid"},
        {"/w", ACCESS_NONE, "path_invalid"},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        struct policy p;
        struct err err = {0};
        if (compile(ROWS[i].path, ROWS[i].access, NULL, NULL, &p, &err) >= 0)
            fail_msg("%s was taken", ROWS[i].path);
        if (strcmp(err.code, ROWS[i].code) != 0)
            fail_msg("%s: %s", ROWS[i].path, err.code);
        assert_string_equal(err.pointer, "/folders/0/path");
    }
}

static void folders_taken(void **state)
{
    (void)state;
    static const char *const TAKEN[] = {
        "/home/ada/app",  "/home/ada/.ssh2", "/home/adam",    "/tmp/ws",
        "/opt/x",         "/usr/src/x",      "/run/user/1/w", "/w",
        "/home/ada/a..b", "/var/www",        "/usr/local/src"};
    for (size_t i = 0; i < sizeof TAKEN / sizeof TAKEN[0]; i++) {
        struct policy p;
        struct err err = {0};
        if (compile(TAKEN[i], ACCESS_RW, NULL, NULL, &p, &err) < 0)
            fail_msg("%s: %s", TAKEN[i], err.detail);
        assert_int_equal(pathset_match(&p.paths, TAKEN[i], NULL), PATH_WRITE);
        assert_string_equal(p.cwd, TAKEN[i]);
        policy_done(&p);
    }
    struct policy p;
    assert_int_equal(compile("/usr/share", ACCESS_RO, NULL, NULL, &p, NULL), 0);
    policy_done(&p);
}

static void cwd_is_in_a_folder(void **state)
{
    (void)state;
    const struct policy_folder f = {
        .id = "fol_1", .path = "/u/ada/w", .real = "/home/ada/w", .access = ACCESS_RW};
    static const struct {
        const char *cwd;
        int r;
    } ROWS[] = {{"/u/ada/w/x", 0}, {"/home/ada/w", 0}, {"/bin", 0},        {"/tmp", 0},
                {"/srv", -EINVAL}, {"rel", -EINVAL},   {"/home", -EINVAL}, {"/u/ada", 0},
                {"/", -EINVAL},    {"/etc/passwd", 0}};
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        struct policy p;
        struct err err = {0};
        const struct policy_input in = {
            .folders = &f, .n_folders = 1, .cwd = ROWS[i].cwd, .private_dir = "/tmp/cordon-x"};
        int r = policy_compile(&in, &machine, &p, &err);
        if (r != ROWS[i].r)
            fail_msg("%s: %d", ROWS[i].cwd, r);
        if (r < 0)
            assert_string_equal(err.pointer, "/cwd");
        else
            policy_done(&p);
    }
}

static void tiers(void **state)
{
    (void)state;
    struct policy p;
    struct err err = {0};
    struct policy_input in = {.tier = TIER_GUARDED, .private_dir = "/tmp/x"};
    assert_int_equal(policy_compile(&in, &machine, &p, &err), -ENOTSUP);
    assert_string_equal(err.pointer, "/tier");
    in.tier = TIER_AIRLOCK;
    assert_int_equal(policy_compile(&in, &machine, &p, NULL), -ENOTSUP);
    static const bool WITHIN[4][4] = {
        /* from:        walled airlock guarded open */
        [TIER_WALLED] = {true, false, true, true},
        [TIER_AIRLOCK] = {false, true, true, true},
        [TIER_GUARDED] = {false, false, true, true},
        [TIER_OPEN] = {false, false, false, true},
    };
    for (int to = 0; to < 4; to++)
        for (int from = 0; from < 4; from++)
            assert_int_equal(tier_is_within((enum tier)to, (enum tier)from), WITHIN[to][from]);
    assert_int_equal(policy_level(PROVIDER_BUBBLEWRAP, TIER_WALLED, NET_NONE), LEVEL_FILES_NETWORK);
    assert_int_equal(policy_level(PROVIDER_BUBBLEWRAP, TIER_WALLED, NET_OPEN), LEVEL_FILES);
    assert_int_equal(policy_level(PROVIDER_BUBBLEWRAP, TIER_OPEN, NET_OPEN), LEVEL_NONE);
    assert_int_equal(policy_level(PROVIDER_DIRECT, TIER_WALLED, NET_NONE), LEVEL_NONE);
    assert_int_equal(policy_level(PROVIDER_UNKNOWN, TIER_WALLED, NET_NONE), LEVEL_NONE);
}

/* W9: an allow list, and never a name that holds one of six words in any case. */
static void environment_of_the_caller(void **state)
{
    (void)state;
    static char *const CALLER[] = {"LANG=C.UTF-8",
                                   "LC_ALL=C",
                                   "LC_apiKey=x",
                                   "TERM=dumb",
                                   "GITHUB_TOKEN=x",
                                   "my_Passwd=x",
                                   "LD_PRELOAD=x",
                                   "LD_LIBRARY_PATH=x",
                                   "BASH_ENV=x",
                                   "NODE_OPTIONS=x",
                                   "PYTHONSTARTUP=x",
                                   "GIT_DIR=x",
                                   "PERL5OPT=x",
                                   "SSH_AUTH_SOCK=x",
                                   "DISPLAY=:0",
                                   "WAYLAND_DISPLAY=x",
                                   "http_proxy=http://corp",
                                   "ODD",
                                   "=x",
                                   "PATH=:.:/usr/bin:bin:/root/bin",
                                   "HOME=/elsewhere",
                                   "TMPDIR=/x",
                                   "PWD=/x",
                                   NULL};
    struct policy p;
    assert_int_equal(compile("/w", ACCESS_RW, CALLER, NULL, &p, NULL), 0);
    static const char *const GONE[] = {
        "LC_apiKey",    "GITHUB_TOKEN",  "my_Passwd",       "LD_PRELOAD",      "BASH_ENV",
        "NODE_OPTIONS", "PYTHONSTARTUP", "GIT_DIR",         "PERL5OPT",        "SSH_AUTH_SOCK",
        "DISPLAY",      "PWD",           "LD_LIBRARY_PATH", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR"};
    for (size_t i = 0; i < sizeof GONE / sizeof GONE[0]; i++)
        if (policy_getenv(&p, GONE[i]))
            fail_msg("%s", GONE[i]);
    static const char *const WANT[][2] = {
        {"LANG", "C.UTF-8"},
        {"LC_ALL", "C"},
        {"TERM", "dumb"},
        {"HOME", "/home/ada"},
        {"TMPDIR", "/tmp"},
        {"USER", "ada"},
        {"GIT_TERMINAL_PROMPT", "0"},
        {"npm_config_update_notifier", "false"},
        {"CORDON_SANDBOXED", "1"},
        {"NODE_USE_ENV_PROXY", "1"},
        {"GIT_SSH_COMMAND", "ssh -F /run/cordon/ssh_config"},
        {"http_proxy", "http://127.0.0.1:7412"},
        {"HTTPS_PROXY", "http://127.0.0.1:7412"},
        {"PATH", "/usr/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/bin"},
        {"XDG_CACHE_HOME", "/home/ada/.cache"}};
    for (size_t i = 0; i < sizeof WANT / sizeof WANT[0]; i++)
        assert_string_equal(policy_getenv(&p, WANT[i][0]), WANT[i][1]);
    policy_done(&p);
    static const char *const SECRET[] = {"API_KEY",    "apikey",    "X_Token_Y",
                                         "SECRETS",    "db_passwd", "PASSWORD",
                                         "credential", "OAUTH",     "author"};
    for (size_t i = 0; i < sizeof SECRET / sizeof SECRET[0]; i++)
        assert_true(env_name_is_secret(SECRET[i]));
    assert_false(env_name_is_secret("LANG"));
}

static void environment_of_the_session(void **state)
{
    (void)state;
    struct policy p;
    struct err err = {0};
    json_t *env = json_pack("{s:s, s:n, s:s, s:s}", "API_KEY", "given", "LANG", "CORDON_SANDBOXED",
                            "0", "HTTP_PROXY", "");
    assert_int_equal(compile("/w", ACCESS_RW, (char *[]){"LANG=C", NULL}, env, &p, &err), 0);
    assert_string_equal(policy_getenv(&p, "API_KEY"), "given");
    assert_null(policy_getenv(&p, "LANG"));
    assert_string_equal(policy_getenv(&p, "CORDON_SANDBOXED"), "1");
    assert_string_equal(policy_getenv(&p, "HTTP_PROXY"), "");
    policy_done(&p);
    json_decref(env);
    json_t *bad[] = {json_pack("{s:i}", "A/B", 1), json_pack("{s:s}", "", "x"),
                     json_pack("{s:s}", "A=B", "x"), json_pack("{s:s%}", "NUL", "a\0b", (size_t)3)};
    static const char *const POINTERS[] = {"/env/A~1B", "/env/", "/env/A=B", "/env/NUL"};
    for (size_t i = 0; i < 4; i++) {
        err_clear(&err);
        assert_int_equal(compile("/w", ACCESS_RW, NULL, bad[i], &p, &err), -EINVAL);
        assert_string_equal(err.pointer, POINTERS[i]);
        json_decref(bad[i]);
    }
}

static void environment_of_tier_open(void **state)
{
    (void)state;
    struct policy p;
    const struct policy_input in = {
        .tier = TIER_OPEN, .caller_env = (char *[]){"GITHUB_TOKEN=x", "LD_PRELOAD=y", NULL}};
    assert_int_equal(policy_compile(&in, &machine, &p, NULL), 0);
    assert_int_equal(p.env.n, 2);
    assert_int_equal(pathset_match(&p.paths, "/any/where", NULL), PATH_WRITE);
    policy_done(&p);
}

/* A certificate bundle is joined where it is not readable anyway, and opens nothing else. */
static void certificates(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        bool set, joined;
    } ROWS[] = {{"/etc/ssl/certs/x.crt", true, false},
                {"/home/ada/ca.pem", true, true},
                {"/corp/ca.pem", true, true},
                {"/w/ca.pem", true, false},
                {"/home/ada/.ssh/ca.pem", false, false},
                {"/home/ada", false, false},
                {"/home", false, false},
                {"/", false, false},
                {"/proc/self/environ", false, false},
                {"/run/x", false, false},
                {"rel.pem", false, false},
                {"", false, false}};
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        struct policy p;
        char variable[128];
        snprintf(variable, sizeof variable, "SSL_CERT_FILE=%s", ROWS[i].value);
        assert_int_equal(compile("/w", ACCESS_RW, (char *[]){variable, NULL}, NULL, &p, NULL), 0);
        if ((policy_getenv(&p, "SSL_CERT_FILE") != NULL) != ROWS[i].set)
            fail_msg("%s", ROWS[i].value);
        assert_int_equal(strv_has(&p.config_files, ROWS[i].value), ROWS[i].joined);
        policy_done(&p);
    }
}

/* Case 25: HOME is "/", a system folder or nonsense: the home inside is still one of our own. */
static void odd_homes(void **state)
{
    (void)state;
    static const char *const HOMES[][2] = {
        {"/", "/home/user"},     {"/usr/sbin", "/home/user"}, {"/bin", "/home/user"},
        {"/proc", "/home/user"}, {"", "/home/user"},          {"/nonexistent", "/nonexistent"},
        {"/tmp", "/home/user"},  {"/tmp/h", "/tmp/h"},        {"/var/lib/x", "/var/lib/x"}};
    for (size_t i = 0; i < sizeof HOMES / sizeof HOMES[0]; i++) {
        struct machine m = machine;
        struct policy p;
        const struct policy_input in = {.private_dir = "/tmp/cordon-x"};
        m.home = (char *)(uintptr_t)HOMES[i][0];
        m.protected_dirs = (struct strv){0};
        assert_int_equal(policy_compile(&in, &m, &p, NULL), 0);
        assert_string_equal(policy_getenv(&p, "HOME"), HOMES[i][1]);
        assert_string_equal(p.cwd, HOMES[i][1]);
        policy_done(&p);
    }
}

static void missing_folder_grants_nothing(void **state)
{
    (void)state;
    const struct policy_folder f[] = {
        {.id = "fol_1", .path = "/gone", .real = "/gone", .access = ACCESS_RW, .missing = true},
        {.id = "fol_2", .path = "/w", .real = "/w", .access = ACCESS_RO}};
    const struct policy_input in = {.folders = f, .n_folders = 2, .private_dir = "/tmp/cordon-x"};
    struct policy p;
    assert_int_equal(policy_compile(&in, &machine, &p, NULL), 0);
    assert_int_equal(pathset_match(&p.paths, "/gone", NULL), PATH_DENY);
    assert_string_equal(p.cwd, "/w");
    policy_done(&p);
}

static void catalogue(void **state)
{
    (void)state;
    size_t n;
    const struct catalog_site *sites = catalog_sites(&n);
    bool joined = false;
    assert_int_equal(n, 14);
    for (size_t i = 0; i < n; i++) {
        char canonical[HOST_MAX];
        assert_int_equal(host_canonical(sites[i].host, strlen(sites[i].host), false, canonical),
                         HOST_NAME);
        assert_string_equal(canonical, sites[i].host);
        assert_int_equal(sites[i].port, 443);
        joined = joined || (strcmp(sites[i].label, "npm") == 0 && strchr(sites[i].host, '.') &&
                            strncmp(sites[i].host, "registry.", 9) == 0);
    }
    assert_true(joined);
    assert_ptr_equal(catalog_sites(&n), sites);
    const char *const *places = catalog_credential_places(&n);
    for (size_t i = 0; i < n; i++) {
        assert_true(places[i][0] != '/' && places[i][0] != '~' && !strstr(places[i], ".."));
        for (size_t k = i + 1; k < n; k++)
            assert_string_not_equal(places[i], places[k]);
    }
    assert_null(places[n]);
    const char *const *secrets = catalog_etc_secrets(&n);
    for (size_t i = 0; i < n; i++)
        assert_true(secrets[i][0] != '/');
    assert_null(secrets[n]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders_refused),
        cmocka_unit_test(folders_taken),
        cmocka_unit_test(cwd_is_in_a_folder),
        cmocka_unit_test(tiers),
        cmocka_unit_test(environment_of_the_caller),
        cmocka_unit_test(environment_of_the_session),
        cmocka_unit_test(environment_of_tier_open),
        cmocka_unit_test(certificates),
        cmocka_unit_test(odd_homes),
        cmocka_unit_test(missing_folder_grants_nothing),
        cmocka_unit_test(catalogue),
    };
    return cmocka_run_group_tests(tests, machine_make, machine_free);
}
