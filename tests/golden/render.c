/* Prints what the renderers make of fixed machines and policies: `render --list`, `render NAME`.
 * test_golden.py compares each with tests/golden/NAME.txt. */
#include "base/mem.h"
#include "base/str.h"
#include "render/bwrap.h"
#include "render/landlock.h"
#include "render/seccomp.h"
#include "render/view.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Folders and environments here are literals; the product's own are owned. */
#ifdef __clang__
#pragma clang diagnostic ignored "-Wincompatible-pointer-types-discards-qualifiers"
#else
#pragma GCC diagnostic ignored "-Wdiscarded-qualifiers"
#endif

static void must(int r, const char *what)
{
    if (r >= 0)
        return;
    fprintf(stderr, "%s: %s\n", what, strerror(-r));
    exit(1);
}

static void list(struct strv *v, const char *const *items)
{
    for (; *items; items++)
        must(strv_add(v, *items), "memory");
}

#define LIST(v, ...) list((v), (const char *const[]){__VA_ARGS__, NULL})

/* An ordinary user of a merged-usr system whose home and whose /data are reached by links too. */
static void machine_user(struct machine *m)
{
    *m = (struct machine){.landlock_abi = 7,
                          .kernel_major = 6,
                          .kernel_minor = 18,
                          .pid_max_per_namespace = true,
                          .runner = strdup("/usr/local/lib/cordon/cordon-runner"),
                          .egress = strdup("/usr/local/lib/cordon/cordon-egress"),
                          .programs_dir = strdup("/usr/local/lib/cordon"),
                          .home = strdup("/home/ada"),
                          .user = strdup("ada"),
                          .group = strdup("ada"),
                          .uid = 1000,
                          .gid = 1001,
                          .state_dir = strdup("/home/ada/.local/state/cordon"),
                          .config_dir = strdup("/home/ada/.config/cordon"),
                          .cache_dir = strdup("/home/ada/.cache/cordon"),
                          .run_dir = strdup("/run/user/1000/cordon")};
    LIST(&m->system_dirs, "/nix", "/opt", "/usr");
    LIST(&m->system_links, "bin=usr/bin", "lib=usr/lib", "lib64=usr/lib64", "sbin=usr/sbin");
    LIST(&m->etc_secrets, "/etc/shadow", "/etc/ssl/private", "/etc/ssh/*_key");
    LIST(&m->proc_secrets, "/proc/keys");
    LIST(&m->home_links, "/u/ada");
    LIST(&m->protected_dirs, "/home/ada/.ssh", "/home/ada/.local/state/cordon",
         "/home/ada/.config/cordon", "/usr/local/lib/cordon");
}

/* Root in a container with an old kernel. */
static void machine_root(struct machine *m)
{
    machine_user(m);
    free(m->home);
    free(m->user);
    free(m->group);
    m->home = strdup("/root");
    m->user = strdup("root");
    m->group = strdup("root");
    m->uid = m->gid = 0;
    m->pid_max_per_namespace = false;
    m->landlock_abi = 1;
    strv_done(&m->home_links);
    strv_done(&m->protected_dirs);
    LIST(&m->protected_dirs, "/root/.ssh");
}

static char *const CALLER[] = {
    "PATH=/home/ada/bin:/opt/tool/bin:/secret/bin:.:/usr/bin:/bin:/home/ada/.cargo/bin",
    "LANG=de_DE.UTF-8",
    "LC_TIME=C",
    "LC_MY_TOKEN=t",
    "TERM=xterm",
    "TZ=Europe/Berlin",
    "SHELL=/bin/bash",
    "HOME=/home/ada",
    "AWS_SECRET_ACCESS_KEY=s",
    "LD_PRELOAD=/tmp/x.so",
    "BASH_ENV=/tmp/x",
    "NODE_OPTIONS=-r x",
    "SSH_AUTH_SOCK=/run/user/1000/ssh",
    "DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1000/bus",
    "XDG_RUNTIME_DIR=/run/user/1000",
    "HTTPS_PROXY=http://corp:3128",
    "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt",
    "NODE_EXTRA_CA_CERTS=/home/ada/pki/corp.pem",
    "CURL_CA_BUNDLE=/home/ada/.ssh/ca.pem",
    "SSL_CERT_DIR=/home",
    NULL};

#define FOLDER(p, r, a, n)                                                                         \
    {                                                                                              \
        .id = "fol_" n, .path = p, .real = r, .access = a, .dev = 1, .ino = sizeof n               \
    }
static const struct policy_folder ONE[] = {
    FOLDER("/home/ada/app", "/home/ada/app", ACCESS_RW, "1")};
static const struct policy_folder MANY[] = {
    FOLDER("/w", "/w", ACCESS_RW, "1"),
    FOLDER("/w/a/b/keep", "/w/a/b/keep", ACCESS_RO, "2"),
    FOLDER("/w/a/b/keep/in", "/w/a/b/keep/in", ACCESS_RW, "3"),
    FOLDER("/w/a/b/other", "/w/a/b/other", ACCESS_RO, "4"),
    FOLDER("/w/same", "/w/same", ACCESS_RW, "5"),
    FOLDER("/w/same/x/ro", "/w/same/x/ro", ACCESS_RO, "12"),
    FOLDER("/u/ada/link", "/data/deep/ws", ACCESS_RW, "6"),
    FOLDER("/w/link", "/elsewhere", ACCESS_RO, "7"),
    FOLDER("/var/run/user/1000/ws", "/run/user/1000/ws", ACCESS_RW, "8"),
    FOLDER("/tmp/ws", "/tmp/ws", ACCESS_RW, "9"),
    FOLDER("/odd/p[1] $(id)\t\n'\"\xff", "/odd/p[1] $(id)\t\n'\"\xff", ACCESS_RW, "10"),
    FOLDER("/opt/src", "/opt/src", ACCESS_RW, "11"),
};

/* ---- The policies ---------------------------------------------------------------------------- */

struct scene {
    struct machine machine;
    struct policy policy;
    struct hostset *hosts;
};

static void scene_make(struct scene *s, const struct policy_input *in,
                       void (*machine)(struct machine *))
{
    struct err err = {0};
    machine(&s->machine);
    if (policy_compile(in, &s->machine, &s->policy, &err) < 0) {
        fprintf(stderr, "%s %s %s\n", err.code, err.pointer, err.detail);
        exit(1);
    }
    s->hosts = hostset_new();
    const struct host_rule rules[] = {{.host = "ok.test", .port = 443},
                                      {.host = "example.com", .covers = COVERS_SUBDOMAINS},
                                      {.host = "2001:db8::1", .port = 8443}};
    for (size_t i = 0; s->hosts && i < ARRAY_LEN(rules); i++)
        must(hostset_add(s->hosts, &rules[i], NULL), "site");
}

static void scene_done(struct scene *s)
{
    policy_done(&s->policy);
    machine_done(&s->machine);
    hostset_free(s->hosts);
}

static void one(struct scene *s)
{
    const struct policy_input in = {.tier = TIER_WALLED,
                                    .network = NET_ALLOWLIST,
                                    .folders = ONE,
                                    .n_folders = ARRAY_LEN(ONE),
                                    .private_dir = "/tmp/cordon-x",
                                    .caller_env = CALLER,
                                    .limits = {.processes = 1024, .open_files = 4096},
                                    .door_port = 7412};
    scene_make(s, &in, machine_user);
}

static void many(struct scene *s)
{
    struct strv toolchains = {0};
    json_t *env = json_pack("{s:s, s:s, s:n, s:s}", "MY_API_KEY", "given", "TERM", "dumb", "TZ",
                            "LD_PRELOAD", "/w/x.so");
    LIST(&toolchains, "/home/ada/.cargo", "/home/ada/.local/bin");
    const struct policy_input in = {.tier = TIER_WALLED,
                                    .network = NET_OPEN,
                                    .folders = MANY,
                                    .n_folders = ARRAY_LEN(MANY),
                                    .cwd = "/u/ada/link/src",
                                    .private_dir = "/tmp/cordon-x",
                                    .caller_env = CALLER,
                                    .session_env = env,
                                    .toolchains = &toolchains,
                                    .limits = {.memory_bytes = 64 << 20},
                                    .door_port = 7412};
    scene_make(s, &in, machine_user);
    strv_done(&toolchains);
    json_decref(env);
}

static void root(struct scene *s)
{
    static const struct policy_folder RO[] = {FOLDER("/srv/x", "/srv/x", ACCESS_RO, "1")};
    const struct policy_input in = {.tier = TIER_WALLED,
                                    .network = NET_NONE,
                                    .folders = RO,
                                    .n_folders = 1,
                                    .private_dir = "/tmp/cordon-x",
                                    .limits = {.processes = 100}};
    scene_make(s, &in, machine_root);
}

static void open_tier(struct scene *s)
{
    const struct policy_input in = {.tier = TIER_OPEN,
                                    .network = NET_OPEN,
                                    .folders = ONE,
                                    .n_folders = 1,
                                    .caller_env = CALLER};
    scene_make(s, &in, machine_user);
}

/* ---- What is printed ------------------------------------------------------------------------- */

static void print_str(struct str *out)
{
    fputs(str_c(out), stdout);
    str_done(out);
}

static void print_view(const struct scene *s)
{
    struct view v = {0};
    struct str out = {0};
    must(view_render(&s->policy, &s->machine, &v, NULL), "view");
    must(view_text(&v, &out), "view");
    view_done(&v);
    print_str(&out);
}

static void print_bwrap(const struct scene *s)
{
    struct strv args = {0};
    const struct bwrap_input in = {.root = "/tmp/cordon-x/view/root", .filter_fd = 5};
    must(bwrap_render(&s->policy, &s->machine, &in, &args), "bwrap");
    for (size_t i = 0; i < args.n; i++)
        printf("%s\n", args.items[i]);
    strv_done(&args);
}

static void print_landlock(const struct scene *s)
{
    for (int abi = 0; abi <= 7; abi++) {
        struct rules r = {0};
        struct str out = {0};
        if (abi == 2 || abi == 4)
            continue; /* as the one before, but for what the text of 3 and 5 shows too */
        must(landlock_render(&s->policy, &s->machine, abi, &r), "landlock");
        must(landlock_text(&r, &out), "landlock");
        printf("---- abi %d\n", abi);
        rules_done(&r);
        print_str(&out);
    }
}

static void print_layers(const struct scene *s)
{
    struct str out = {0};
    must(landlock_layers_text(&s->policy, s->machine.landlock_abi, &out), "layers");
    print_str(&out);
}

static void print_egress(const struct scene *s)
{
    struct rules r = {0};
    struct str out = {0};
    must(landlock_render_egress(&s->machine, 7, &r), "egress");
    must(landlock_text(&r, &out), "egress");
    rules_done(&r);
    print_str(&out);
}

static void print_seccomp(const struct scene *s)
{
    struct str out = {0};
    (void)s;
    must(seccomp_text_wall(&out), "seccomp");
    print_str(&out);
}

static void print_json(const struct scene *s)
{
    json_t *j = policy_to_json(&s->policy, &s->machine,
                               s->policy.tier == TIER_OPEN ? PROVIDER_DIRECT : PROVIDER_BUBBLEWRAP,
                               s->hosts);
    if (!j)
        must(-1, "json");
    json_dumpf(j, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(j);
}

static void print_env(const struct scene *s)
{
    printf("cwd %s\n", s->policy.cwd);
    for (size_t i = 0; i < s->policy.env.n; i++)
        printf("%s\n", s->policy.env.items[i]);
}

static const struct {
    const char *name;
    void (*make)(struct scene *);
    void (*print)(const struct scene *);
} GOLDEN[] = {
    {"one_view", one, print_view},           {"one_bwrap", one, print_bwrap},
    {"one_landlock", one, print_landlock},   {"one_layers", one, print_layers},
    {"one_json", one, print_json},           {"one_env", one, print_env},
    {"many_view", many, print_view},         {"many_bwrap", many, print_bwrap},
    {"many_landlock", many, print_landlock}, {"many_layers", many, print_layers},
    {"many_json", many, print_json},         {"many_env", many, print_env},
    {"root_view", root, print_view},         {"root_bwrap", root, print_bwrap},
    {"root_landlock", root, print_landlock}, {"root_env", root, print_env},
    {"open_json", open_tier, print_json},    {"open_env", open_tier, print_env},
    {"egress_landlock", one, print_egress},  {"seccomp", one, print_seccomp},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; i < ARRAY_LEN(GOLDEN) && argc == 2; i++) {
        struct scene s = {0};
        if (strcmp(argv[1], "--list") == 0) {
            printf("%s\n", GOLDEN[i].name);
            continue;
        }
        if (strcmp(argv[1], GOLDEN[i].name) != 0)
            continue;
        GOLDEN[i].make(&s);
        GOLDEN[i].print(&s);
        scene_done(&s);
        return 0;
    }
    return argc == 2 && strcmp(argv[1], "--list") == 0 ? 0 : 2;
}
