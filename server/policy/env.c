/* Runs in: daemon. Reads: trusted (a session's env is the owner's or the agent's, and stays
 * inside). May block: no. */
#include "policy/env.h"
#include "base/fields.h"
#include "base/mem.h"
#include "base/path.h"
#include "wire/order.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char DEFAULT_PATH[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/* What passes of the caller's environment; a '*' at the end stands for anything. */
static const char *const PASSED[] = {
    "LANG",     "LANGUAGE",    "LC_*",     "TERM",           "COLORTERM", "TZ",
    "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", NULL};

/* Variables that name a certificate bundle; the file or folder is then joined read-only. */
static const struct {
    const char *name;
    bool is_dir;
} CERTIFICATES[] = {
    {"SSL_CERT_FILE", false},      {"SSL_CERT_DIR", true},    {"NODE_EXTRA_CA_CERTS", false},
    {"REQUESTS_CA_BUNDLE", false}, {"CURL_CA_BUNDLE", false}, {"GIT_SSL_CAINFO", false},
    {"GIT_SSL_CAPATH", true},      {"PIP_CERT", false},       {"CARGO_HTTP_CAINFO", false},
    {"AWS_CA_BUNDLE", false},      {"DENO_CERT", false},      {"NIX_SSL_CERT_FILE", false},
};

static const char *const SECRET_WORDS[] = {"KEY",        "TOKEN", "SECRET", "PASSW",
                                           "CREDENTIAL", "AUTH",  NULL};

/* Set in walled; the value is appended to the private home. */
static const char *const HOME_PLACES[][2] = {
    {"XDG_CONFIG_HOME", "/.config"},     {"XDG_DATA_HOME", "/.local/share"},
    {"XDG_STATE_HOME", "/.local/state"}, {"XDG_CACHE_HOME", "/.cache"},
    {"npm_config_cache", "/.cache/npm"}, {"YARN_CACHE_FOLDER", "/.cache/yarn"},
    {"PIP_CACHE_DIR", "/.cache/pip"},    {"UV_CACHE_DIR", "/.cache/uv"},
    {"GOCACHE", "/.cache/go-build"},     {"GOMODCACHE", "/.cache/go-mod"},
    {"DENO_DIR", "/.cache/deno"},        {"BUN_INSTALL_CACHE_DIR", "/.cache/bun"},
    {"CCACHE_DIR", "/.cache/ccache"},    {"COMPOSER_CACHE_DIR", "/.cache/composer"},
};

static const char *const PROXY_NAMES[] = {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY",
                                          "http_proxy", "https_proxy", "all_proxy"};
/* Both spellings of ::1, as programs differ on the brackets. */
static const char NO_PROXY[] = "localhost,127.0.0.1,::1,[::1],.localhost";

bool env_name_is_secret(const char *name)
{
    char upper[256];
    size_t n = 0;
    for (; name[n] && n < sizeof upper - 1; n++)
        upper[n] = (char)toupper((unsigned char)name[n]);
    upper[n] = '\0';
    if (name[n])
        return true; /* nothing this long passes unlooked at */
    for (size_t i = 0; SECRET_WORDS[i]; i++)
        if (strstr(upper, SECRET_WORDS[i]))
            return true;
    return false;
}

/* Index of NAME in ENV, or ENV->n. */
static size_t env_find(const struct strv *env, const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < env->n; i++)
        if (strncmp(env->items[i], name, n) == 0 && env->items[i][n] == '=')
            return i;
    return env->n;
}

const char *policy_getenv(const struct policy *p, const char *name)
{
    size_t i = env_find(&p->env, name);
    return i < p->env.n ? p->env.items[i] + strlen(name) + 1 : NULL;
}

static void env_unset(struct strv *env, const char *name)
{
    size_t i = env_find(env, name);
    if (i == env->n)
        return;
    free(env->items[i]);
    memmove(&env->items[i], &env->items[i + 1], (env->n - i) * sizeof(char *));
    env->n--;
}

static int env_set(struct strv *env, const char *name, const char *value)
{
    env_unset(env, name);
    return strv_addf(env, "%s=%s", name, value);
}

static const char *list_get(char *const *list, const char *name)
{
    size_t n = strlen(name);
    for (; list && *list; list++)
        if (strncmp(*list, name, n) == 0 && (*list)[n] == '=')
            return *list + n + 1;
    return NULL;
}

static bool name_passes(const char *name)
{
    for (size_t i = 0; PASSED[i]; i++) {
        size_t n = strlen(PASSED[i]);
        bool any_end = PASSED[i][n - 1] == '*';
        if (any_end ? strncmp(name, PASSED[i], n - 1) == 0 : strcmp(name, PASSED[i]) == 0)
            return !env_name_is_secret(name);
    }
    return false;
}

static int caller_pass(char *const *caller, struct strv *env)
{
    int r = 0;
    for (; caller && *caller && r >= 0; caller++) {
        char name[64];
        const char *eq = strchr(*caller, '=');
        if (!eq || (size_t)(eq - *caller) >= sizeof name)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(eq - *caller), *caller);
        if (name_passes(name))
            r = env_set(env, name, eq + 1);
    }
    return r;
}

static bool in_or_around(const char *path, const char *place)
{
    return path_is_under(path, place) || path_is_under(place, path);
}

/* A certificate bundle outside what is readable is joined; never something that would open home, a
 * protected place or a kernel file system. */
static bool certificate_may_join(const struct machine *m, const char *path)
{
    static const char *const KERNEL[] = {"/proc", "/sys", "/dev", "/run"};
    if (strcmp(path, "/") == 0 || path_is_under(m->home, path))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(KERNEL); i++)
        if (in_or_around(path, KERNEL[i]))
            return false;
    for (size_t i = 0; i < m->protected_dirs.n; i++)
        if (in_or_around(path, m->protected_dirs.items[i]))
            return false;
    return true;
}

static int certificate_pass(const struct machine *m, struct policy *p, const char *name,
                            const char *value, bool is_dir)
{
    char *path CLEANUP(freep) = NULL, *inside CLEANUP(freep) = NULL;
    int r = path_canonical(value, &path);
    if (r < 0)
        return r == -ENOMEM ? r : 0; /* relative or empty: not a place */
    r = policy_spelling(p, m, path, &inside);
    if (r < 0)
        return r;
    const struct path_entry *why;
    enum path_access access = pathset_match(&p->paths, inside, &why);
    if (access == PATH_DENY || (why && why->kind == PATH_PRIVATE)) {
        if ((why && why->kind == PATH_PROTECTED) || !certificate_may_join(m, inside))
            return 0;
        r = strv_add(is_dir ? &p->config_dirs : &p->config_files, inside);
        if (r >= 0)
            r = pathset_add(&p->paths, inside, PATH_READ, PATH_CONFIG);
    }
    return r < 0 ? r : env_set(&p->env, name, path);
}

static int certificates_pass(char *const *caller, const struct machine *m, struct policy *p)
{
    int r = 0;
    for (size_t i = 0; i < ARRAY_LEN(CERTIFICATES) && r >= 0; i++) {
        const char *value = list_get(caller, CERTIFICATES[i].name);
        if (value && value[0])
            r = certificate_pass(m, p, CERTIFICATES[i].name, value, CERTIFICATES[i].is_dir);
    }
    return r;
}

static bool is_readable(const struct policy *p, const struct machine *m, const char *path)
{
    char *inside CLEANUP(freep) = NULL;
    return policy_spelling(p, m, path, &inside) >= 0 &&
           pathset_match(&p->paths, inside, NULL) >= PATH_READ;
}

/* Adds the folders of LIST ("a:b:c") that are absolute, readable inside and not there yet. */
static int path_add_list(const struct policy *p, const struct machine *m, const char *list,
                         struct strv *dirs)
{
    for (int r = 0; r >= 0;) {
        char *part CLEANUP(freep) = NULL, *dir CLEANUP(freep) = NULL;
        size_t n = strcspn(list, ":");
        part = strndup(list, n);
        if (!part)
            return -ENOMEM;
        if (path_canonical(part, &dir) >= 0 && !strv_has(dirs, dir) && is_readable(p, m, dir))
            r = strv_add(dirs, dir);
        if (r < 0 || !list[n])
            return r;
        list += n + 1;
    }
    return 0;
}

static int path_add_one(struct strv *dirs, const char *toolchain, const char *name)
{
    char *dir CLEANUP(freep) = NULL;
    int r = path_join(toolchain, name, &dir);
    return r < 0 || strv_has(dirs, dir) ? r : strv_add(dirs, dir);
}

/* A toolchain is of use only when its programs are found: its shims, its bin, or the folder itself
 * when it is one of programs. */
static int path_add_toolchains(const struct policy *p, const struct strv *toolchains,
                               struct strv *dirs)
{
    static const char *const WITH_SHIMS[] = {".pyenv", ".rbenv", ".asdf", "mise"};
    int r = 0;
    for (size_t i = 0; toolchains && i < toolchains->n && r >= 0; i++) {
        const char *t = toolchains->items[i];
        if (pathset_match(&p->paths, t, NULL) < PATH_READ)
            continue;
        for (size_t k = 0; k < ARRAY_LEN(WITH_SHIMS) && r >= 0; k++)
            if (strcmp(path_last(t), WITH_SHIMS[k]) == 0)
                r = path_add_one(dirs, t, "shims");
        if (r >= 0)
            r = path_add_one(dirs, t, strcmp(path_last(t), "bin") == 0 ? "." : "bin");
    }
    return r;
}

static int path_set(const struct policy_input *in, const struct machine *m, struct policy *p)
{
    struct strv dirs = {0};
    struct str joined = {0};
    const char *caller = list_get(in->caller_env, "PATH");
    int r = caller ? path_add_list(p, m, caller, &dirs) : 0;
    if (r >= 0)
        r = path_add_toolchains(p, in->toolchains, &dirs);
    if (r >= 0)
        r = path_add_list(p, m, DEFAULT_PATH, &dirs);
    for (size_t i = 0; i < dirs.n && r >= 0; i++)
        r = str_printf(&joined, "%s%s", i ? ":" : "", dirs.items[i]);
    if (r >= 0)
        r = env_set(&p->env, "PATH", str_c(&joined));
    str_done(&joined);
    strv_done(&dirs);
    return r;
}

static int person_set(const struct policy_input *in, const struct machine *m, struct policy *p)
{
    const char *shell = list_get(in->caller_env, "SHELL");
    const struct path_entry *why = NULL;
    char *inside CLEANUP(freep) = NULL;
    bool shell_is_there = shell && shell[0] == '/' && policy_spelling(p, m, shell, &inside) >= 0 &&
                          pathset_match(&p->paths, inside, &why) == PATH_READ && why &&
                          why->kind == PATH_SYSTEM;
    int r = env_set(&p->env, "SHELL", shell_is_there ? shell : "/bin/sh");
    if (r >= 0)
        r = env_set(&p->env, "USER", m->user);
    if (r >= 0)
        r = env_set(&p->env, "LOGNAME", m->user);
    if (r >= 0)
        r = env_set(&p->env, "HOME", p->home);
    if (r >= 0)
        r = env_set(&p->env, "TMPDIR", "/tmp");
    /* Run by root, tar would restore owners that do not exist inside, and fail (EINVAL). */
    if (r >= 0 && m->uid == 0)
        r = env_set(&p->env, "TAR_OPTIONS", "--no-same-owner");
    return r;
}

static int places_set(struct policy *p)
{
    int r = 0;
    for (size_t i = 0; i < ARRAY_LEN(HOME_PLACES) && r >= 0; i++)
        r = strv_addf(&p->env, "%s=%s%s", HOME_PLACES[i][0], p->home, HOME_PLACES[i][1]);
    return r;
}

static int proxy_set(struct policy *p)
{
    int r = 0;
    if (p->network == NET_NONE)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(PROXY_NAMES) && r >= 0; i++)
        r = strv_addf(&p->env, "%s=http://127.0.0.1:%u", PROXY_NAMES[i], p->door_port);
    if (r >= 0)
        r = env_set(&p->env, "NO_PROXY", NO_PROXY);
    if (r >= 0)
        r = env_set(&p->env, "no_proxy", NO_PROXY);
    if (r >= 0)
        r = env_set(&p->env, "NODE_USE_ENV_PROXY", "1");
    return r < 0 ? r : env_set(&p->env, "GIT_SSH_COMMAND", "ssh -F " SSH_CONFIG_INSIDE);
}

/* Programs that would ask at a terminal that is not there, or look for a newer version of
 * themselves at a site nobody listed: npm then waits a minute for it, and the site counts as
 * blocked. */
static int quiet_set(struct policy *p)
{
    static const char *const QUIET[][2] = {{"GIT_TERMINAL_PROMPT", "0"},
                                           {"npm_config_update_notifier", "false"},
                                           {"PIP_DISABLE_PIP_VERSION_CHECK", "1"}};
    int r = 0;
    for (size_t i = 0; i < ARRAY_LEN(QUIET) && r >= 0; i++)
        r = env_set(&p->env, QUIET[i][0], QUIET[i][1]);
    return r;
}

static int session_apply(json_t *session_env, struct strv *env, struct err *err)
{
    const char *name;
    json_t *value;
    int r = 0;
    json_object_foreach(session_env, name, value)
    {
        char pointer[sizeof err->pointer] = "/env";
        const char *text = json_string_value(value);
        json_pointer_add(pointer, sizeof pointer, name);
        if (!name[0] || strchr(name, '='))
            return err_member(err, -EINVAL, "body_invalid", pointer, "not a variable's name");
        if (!json_is_null(value) && !text)
            return err_member(err, -EINVAL, "body_invalid", pointer, "must be a string or null");
        if (text && strlen(text) != json_string_length(value))
            return err_member(err, -EINVAL, "body_invalid", pointer, "must not hold a NUL");
        if (text)
            r = env_set(env, name, text);
        else
            env_unset(env, name);
        if (r < 0)
            return r;
    }
    return 0;
}

static int walled_compile(const struct policy_input *in, const struct machine *m, struct policy *p)
{
    int r = caller_pass(in->caller_env, &p->env);
    if (r >= 0)
        r = certificates_pass(in->caller_env, m, p);
    if (r >= 0)
        r = path_set(in, m, p);
    if (r >= 0)
        r = person_set(in, m, p);
    if (r >= 0)
        r = places_set(p);
    if (r >= 0)
        r = proxy_set(p);
    return r < 0 ? r : quiet_set(p);
}

static int open_compile(char *const *caller, struct policy *p)
{
    int r = 0;
    for (; caller && *caller && r >= 0; caller++)
        if (strchr(*caller, '='))
            r = strv_add(&p->env, *caller);
    return r;
}

int env_compile(const struct policy_input *in, const struct machine *m, struct policy *p,
                struct err *err)
{
    int r = p->tier == TIER_OPEN ? open_compile(in->caller_env, p) : walled_compile(in, m, p);
    if (r >= 0 && in->session_env)
        r = session_apply(in->session_env, &p->env, err);
    if (r >= 0 && p->tier != TIER_OPEN) /* after the session's: nothing inside may deny the wall */
        r = env_set(&p->env, "CORDON_SANDBOXED", "1");
    return r;
}
