/* Runs in: daemon. Reads: trusted (policy, machine, the names in home). May block: on the file
 * system. */
#include "base/mem.h"
#include "base/path.h"
#include "policy/catalog.h"
#include "sandbox/machine.h"
#include "sandbox/proof.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum check_index {
    FOLDERS_REACHABLE = 0,
    HOME_HIDDEN,
    CREDENTIALS_HIDDEN,
    CORDON_HIDDEN,
    EGRESS_ANSWERS,
    UNLISTED_REFUSED,
    DIRECT_REFUSED,
    API_REFUSED,
    NO_DESCRIPTORS,
    NO_PRIVILEGES,
    OWN_PROC,
    LIMITS,
    N_CHECKS
};
static const struct {
    const char *id;
    bool is_required;
} CHECKS[N_CHECKS] = {
    [FOLDERS_REACHABLE] = {"folders_reachable", true},
    [HOME_HIDDEN] = {"home_hidden", true},
    [CREDENTIALS_HIDDEN] = {"credentials_hidden", true},
    [CORDON_HIDDEN] = {"cordon_hidden", true},
    [EGRESS_ANSWERS] = {"egress_answers", true},
    [UNLISTED_REFUSED] = {"unlisted_refused", true},
    [DIRECT_REFUSED] = {"direct_refused", true},
    [API_REFUSED] = {"api_refused", true},
    [NO_DESCRIPTORS] = {"no_descriptors", true},
    [NO_PRIVILEGES] = {"no_privileges", true},
    [OWN_PROC] = {"own_proc", true},
    [LIMITS] = {"limits", false},
};

#define HOME_NAMES_MAX 12 /* of the real home that are looked for inside */
#define ETC_NAMES_MAX  24 /* secrets of /etc */
#define HOST_ADDRS_MAX 6  /* own addresses of the host that are tried */

/* Addresses that no host of ours has: documentation (RFC 5737, RFC 3849), and the metadata service
 * of clouds, all unreachable where there is only loopback. */
static const char *const OUTSIDE[] = {"192.0.2.1", "169.254.169.254", "2001:db8::1"};

struct planner {
    struct proof *p;
    const struct proof_context *ctx;
    int r; /* the first error */
};

static struct proof_probe *add(struct planner *pl, enum check_index check, enum probe_kind kind,
                               enum proof_expect expect, const char *path, uint32_t port,
                               const char *text)
{
    struct proof *p = pl->p;
    if (pl->r < 0)
        return NULL;
    if (p->n_probes == PROOF_PROBES_MAX) {
        pl->r = -E2BIG;
        return NULL;
    }
    if (p->n_probes == p->cap) {
        size_t cap = p->cap ? 2 * p->cap : 64;
        struct proof_probe *grown = realloc(p->probes, cap * sizeof *grown);
        if (!grown) {
            pl->r = -ENOMEM;
            return NULL;
        }
        p->probes = grown;
        p->cap = cap;
    }
    struct proof_probe *it = &p->probes[p->n_probes++];
    *it = (struct proof_probe){.kind = kind,
                               .path = strdup(path ? path : ""),
                               .port = port,
                               .text = strdup(text ? text : ""),
                               .check = (int)check,
                               .expect = expect};
    if (!it->path || !it->text)
        pl->r = -ENOMEM;
    return it;
}

static void control(struct proof_probe *probe)
{
    if (probe)
        probe->is_control = true;
}

/* ---- Folders --------------------------------------------------------------------------------- */

static void plan_folders(struct planner *pl)
{
    const struct policy *policy = pl->ctx->policy;
    for (size_t i = 0; i < policy->n_folders; i++) {
        const struct policy_folder *f = &policy->folders[i];
        if (f->missing || f->access == ACCESS_NONE)
            continue;
        if (f->access == ACCESS_RW && machine_folder_writable(pl->ctx->machine, f->real)) {
            add(pl, FOLDERS_REACHABLE, PROBE_WRITE_DIR, EXPECT_SUCCESS, f->path, 0, NULL);
            continue;
        }
        if (access(f->real, R_OK | X_OK) == 0)
            add(pl, FOLDERS_REACHABLE, PROBE_READ_DIR, EXPECT_SUCCESS, f->path, 0, NULL);
        add(pl, FOLDERS_REACHABLE, PROBE_WRITE_DIR, EXPECT_FAILURE, f->path, 0, NULL);
    }
    add(pl, FOLDERS_REACHABLE, PROBE_WRITE_DIR, EXPECT_SUCCESS, policy->home, 0, NULL);
    add(pl, FOLDERS_REACHABLE, PROBE_WRITE_DIR, EXPECT_SUCCESS, "/tmp", 0, NULL);
    add(pl, FOLDERS_REACHABLE, PROBE_WRITE_DIR, EXPECT_FAILURE, "/", 0, NULL);
    add(pl, FOLDERS_REACHABLE, PROBE_WRITE_DIR, EXPECT_FAILURE, "/usr", 0, NULL);
}

/* ---- What must be absent --------------------------------------------------------------------- */

/* Does the policy show PATH, something below it or something above it (but for home itself)? */
static bool is_granted(const struct planner *pl, const char *path)
{
    const struct pathset *set = &pl->ctx->policy->paths;
    for (size_t i = 0; i < set->n; i++) {
        const struct path_entry *e = &set->items[i];
        if (e->access == PATH_DENY || strcmp(e->path, pl->ctx->machine->home) == 0 ||
            strcmp(e->path, "/") == 0)
            continue;
        if (path_is_under(path, e->path) || path_is_under(e->path, path))
            return true;
    }
    return false;
}

/* PATH as it is outside must not be what is there inside: another file of the same name may. */
static bool add_hidden(struct planner *pl, enum check_index check, const char *path)
{
    struct stat st;
    char text[64];
    if (lstat(path, &st) < 0)
        return false;
    snprintf(text, sizeof text, "%llu %llu", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino);
    struct proof_probe *probe = add(pl, check, PROBE_STAT, EXPECT_OTHER_FILE, path, 0, NULL);
    if (probe && !(probe->compare = strdup(text)))
        pl->r = -ENOMEM;
    return true;
}

/* Names of the real home, which exist outside, looked for inside. */
static void plan_home(struct planner *pl)
{
    const char *home = pl->ctx->machine->home;
    unsigned n = 0;
    DIR *d = opendir(home);
    (void)add_hidden(pl, HOME_HIDDEN, home);
    for (struct dirent *e; d && n < HOME_NAMES_MAX && (e = readdir(d)) != NULL;) {
        CLEANUP(freep) char *path = NULL;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            path_join(home, e->d_name, &path) < 0 || is_granted(pl, path))
            continue;
        n += add_hidden(pl, HOME_HIDDEN, path);
    }
    if (d)
        closedir(d);
    control(add(pl, HOME_HIDDEN, PROBE_READ_DIR, EXPECT_SUCCESS, home, 0, NULL));
    control(add(pl, HOME_HIDDEN, PROBE_STAT, EXPECT_SUCCESS, "/usr", 0, NULL));
}

/* A name within what is shown: an overlay tells another device for the very file, so that only
 * reading proves its mask. */
static bool add_masked(struct planner *pl, const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return false;
    add(pl, CREDENTIALS_HIDDEN, S_ISDIR(st.st_mode) ? PROBE_READ_DIR : PROBE_READ_FILE,
        EXPECT_FAILURE, path, 0, NULL);
    return true;
}

static void plan_credentials(struct planner *pl)
{
    size_t n;
    const char *const *places = catalog_credential_places(&n);
    const struct machine *m = pl->ctx->machine;
    for (size_t i = 0; i < n && pl->r >= 0; i++) {
        CLEANUP(freep) char *path = NULL;
        if (path_join(m->home, places[i], &path) < 0)
            continue;
        if (is_granted(pl, path))
            (void)add_masked(pl, path);
        else
            (void)add_hidden(pl, CREDENTIALS_HIDDEN, path);
    }
    add(pl, CREDENTIALS_HIDDEN, PROBE_READ_FILE, EXPECT_FAILURE, "/etc/shadow", 0, NULL);
    for (size_t i = 0, k = 0; i < m->etc_secrets.n && k < ETC_NAMES_MAX; i++)
        k += add_masked(pl, m->etc_secrets.items[i]);
    control(add(pl, CREDENTIALS_HIDDEN, PROBE_READ_FILE, EXPECT_SUCCESS, "/etc/passwd", 0, NULL));
}

static void plan_cordon(struct planner *pl)
{
    const struct proof_context *ctx = pl->ctx;
    const struct machine *m = ctx->machine;
    add(pl, CORDON_HIDDEN, PROBE_READ_FILE, EXPECT_FAILURE, ctx->canary_path, 0, NULL);
    add(pl, CORDON_HIDDEN, PROBE_LINK_FILE, EXPECT_FAILURE, ctx->canary_path, 0, NULL);
    const char *const own[] = {m->state_dir, m->config_dir, m->run_dir};
    for (size_t i = 0; i < ARRAY_LEN(own); i++)
        if (own[i])
            (void)add_hidden(pl, CORDON_HIDDEN, own[i]);
    DIR *d = m->state_dir ? opendir(m->state_dir) : NULL; /* token, database, socket */
    unsigned n = 0;
    for (struct dirent *e; d && n < HOME_NAMES_MAX && (e = readdir(d)) != NULL;) {
        CLEANUP(freep) char *path = NULL;
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            path_join(m->state_dir, e->d_name, &path) >= 0)
            n += add_hidden(pl, CORDON_HIDDEN, path);
    }
    if (d)
        closedir(d);
    if (m->programs_dir)
        add(pl, CORDON_HIDDEN, PROBE_WRITE_DIR, EXPECT_FAILURE, m->programs_dir, 0, NULL);
    control(add(pl, CORDON_HIDDEN, PROBE_READ_FILE, EXPECT_SUCCESS, "/etc/passwd", 0, NULL));
}

/* ---- Network --------------------------------------------------------------------------------- */

/* A name given by the name server inside leads to the door by each family, and the verdict of the
 * name counts there too. */
static void plan_names(struct planner *pl)
{
    static const char *const FAMILIES[] = {"v4", "v6"};
    const struct proof_context *ctx = pl->ctx;
    char allowed[64], refused[64];
    snprintf(allowed, sizeof allowed, "%.*s", (int)strcspn(ctx->allowed_name, ":"),
             ctx->allowed_name);
    snprintf(refused, sizeof refused, "%.*s", (int)strcspn(ctx->refused_name, ":"),
             ctx->refused_name);
    for (size_t i = 0; i < (ctx->has_ipv6 ? 2u : 1u); i++) {
        add(pl, EGRESS_ANSWERS, PROBE_NAME, EXPECT_SUCCESS, FAMILIES[i], 443, allowed);
        add(pl, UNLISTED_REFUSED, PROBE_NAME, EXPECT_RESET, FAMILIES[i], 443, refused);
    }
}

static void plan_egress(struct planner *pl)
{
    const struct proof_context *ctx = pl->ctx;
    uint16_t door = ctx->policy->door_port;
    if (ctx->policy->network == NET_NONE) {
        add(pl, EGRESS_ANSWERS, PROBE_TCP, EXPECT_FAILURE, "127.0.0.1", door, NULL);
        add(pl, UNLISTED_REFUSED, PROBE_TCP, EXPECT_FAILURE, "127.0.0.1", door, NULL);
        return;
    }
    add(pl, EGRESS_ANSWERS, PROBE_PROXY, EXPECT_STATUS_200, "127.0.0.1", door, ctx->allowed_name);
    add(pl, UNLISTED_REFUSED, PROBE_PROXY, EXPECT_STATUS_403, "127.0.0.1", door, ctx->refused_name);
    control(add(pl, UNLISTED_REFUSED, PROBE_TCP, EXPECT_SUCCESS, "127.0.0.1", door, NULL));
    if (ctx->has_redirect)
        plan_names(pl);
}

/* Without a redirect nothing leads to ADDRESS. With one the connection ends at the door, which
 * resets it: nobody else would, who is not there, and a listener would not either. What is sent by
 * UDP stays. */
static void plan_outside(struct planner *pl, const char *address, uint32_t port)
{
    bool is_v6 = strchr(address, ':') != NULL;
    if (!pl->ctx->has_redirect || (is_v6 && !pl->ctx->has_ipv6)) {
        add(pl, DIRECT_REFUSED, PROBE_TCP, EXPECT_UNREACHABLE, address, port, NULL);
        add(pl, DIRECT_REFUSED, PROBE_UDP, EXPECT_UNREACHABLE, address, port, NULL);
        return;
    }
    add(pl, DIRECT_REFUSED, PROBE_END, EXPECT_RESET, address, port, NULL);
    add(pl, DIRECT_REFUSED, PROBE_STAYS, EXPECT_SUCCESS, address, 0, NULL);
}

/* The host's own addresses, but for loopback. */
static void plan_host_addresses(struct planner *pl, uint32_t port)
{
    struct ifaddrs *list;
    unsigned n = 0;
    if (getifaddrs(&list) < 0)
        return;
    for (const struct ifaddrs *i = list; i && n < HOST_ADDRS_MAX; i = i->ifa_next) {
        char text[INET6_ADDRSTRLEN];
        union {
            const struct sockaddr *any;
            const struct sockaddr_in *v4;
            const struct sockaddr_in6 *v6;
        } a = {.any = i->ifa_addr};
        if (!a.any || i->ifa_flags & IFF_LOOPBACK ||
            (a.any->sa_family != AF_INET && a.any->sa_family != AF_INET6))
            continue;
        const void *bytes = a.any->sa_family == AF_INET ? (const void *)&a.v4->sin_addr
                                                        : (const void *)&a.v6->sin6_addr;
        if (a.any->sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&a.v6->sin6_addr))
            continue; /* needs a scope that does not exist inside */
        if (!inet_ntop(a.any->sa_family, bytes, text, sizeof text))
            continue;
        plan_outside(pl, text, port);
        n++;
    }
    freeifaddrs(list);
}

static void plan_direct(struct planner *pl)
{
    uint32_t port = pl->ctx->host_port_open;
    add(pl, DIRECT_REFUSED, PROBE_TCP, EXPECT_FAILURE, "127.0.0.1", port, NULL);
    add(pl, DIRECT_REFUSED, PROBE_TCP, EXPECT_FAILURE, "::1", port, NULL);
    for (size_t i = 0; i < ARRAY_LEN(OUTSIDE); i++)
        plan_outside(pl, OUTSIDE[i], port);
    plan_host_addresses(pl, port);
}

static void plan_api(struct planner *pl)
{
    static const char *const NAMES[] = {"127.0.0.1:%u", "localhost:%u", "[::1]:%u"};
    const struct proof_context *ctx = pl->ctx;
    add(pl, API_REFUSED, PROBE_TCP, EXPECT_FAILURE, "127.0.0.1", ctx->api_port, NULL);
    add(pl, API_REFUSED, PROBE_TCP, EXPECT_FAILURE, "::1", ctx->api_port, NULL);
    if (ctx->api_socket)
        add(pl, API_REFUSED, PROBE_UNIX, EXPECT_FAILURE, ctx->api_socket, 0, NULL);
    for (size_t i = 0; ctx->policy->network != NET_NONE && i < ARRAY_LEN(NAMES); i++) {
        char text[32];
        const char *at = strchr(NAMES[i], '%');
        snprintf(text, sizeof text, "%.*s%u", (int)(at - NAMES[i]), NAMES[i], ctx->api_port);
        add(pl, API_REFUSED, PROBE_PROXY, EXPECT_STATUS_OTHER, "127.0.0.1", ctx->policy->door_port,
            text);
    }
}

/* ---- The process ----------------------------------------------------------------------------- */

static void plan_process(struct planner *pl)
{
    const struct proof_context *ctx = pl->ctx;
    add(pl, NO_DESCRIPTORS, PROBE_FDS, EXPECT_SUCCESS, NULL, 0, NULL);
    add(pl, NO_PRIVILEGES, PROBE_PRIVILEGES, EXPECT_BARE, NULL, 0, NULL);
    add(pl, NO_PRIVILEGES, PROBE_USERNS, EXPECT_FAILURE, NULL, 0, NULL);
    add(pl, NO_PRIVILEGES, PROBE_FOREIGN_ABI, EXPECT_FAILURE, NULL, 0, NULL);
    add(pl, OWN_PROC, PROBE_PROC, EXPECT_OWN_PIDS, ctx->canary_path, 0, ctx->canary_text);
    /* sysctls and their kind, which the kernel gives the machine's root by mode alone */
    add(pl, OWN_PROC, PROBE_READ_ONLY, EXPECT_SUCCESS, "/proc/sys", 0, NULL);
    add(pl, OWN_PROC, PROBE_WRITE_FILE, EXPECT_FAILURE, "/proc/sys/kernel/core_pattern", 0, NULL);
    add(pl, OWN_PROC, PROBE_WRITE_FILE, EXPECT_FAILURE, "/proc/sysrq-trigger", 0, NULL);
    control(add(pl, OWN_PROC, PROBE_READ_ONLY, EXPECT_FAILURE, "/dev/shm", 0, NULL));
    control(add(pl, OWN_PROC, PROBE_WRITE_FILE, EXPECT_SUCCESS, "/dev/null", 0, NULL));
    add(pl, LIMITS, PROBE_LIMITS, EXPECT_LIMITS, NULL, 0, NULL);
}

int proof_plan(struct proof *p, const struct proof_context *ctx)
{
    struct planner pl = {.p = p, .ctx = ctx};
    *p = (struct proof){.landlock_abi_wanted = ctx->machine->landlock_abi,
                        .limits = ctx->policy->limits,
                        .has_pid_limit = ctx->machine->pid_max_per_namespace,
                        .is_root = ctx->machine->uid == 0,
                        .n_checks = N_CHECKS};
    for (size_t i = 0; i < N_CHECKS; i++)
        p->checks[i] = (struct proof_check){.id = CHECKS[i].id, .required = CHECKS[i].is_required};
    p->kernel = strdup(ctx->machine->kernel);
    if (!p->kernel)
        pl.r = -ENOMEM;
    plan_folders(&pl);
    plan_home(&pl);
    plan_credentials(&pl);
    plan_cordon(&pl);
    plan_egress(&pl);
    plan_direct(&pl);
    plan_api(&pl);
    plan_process(&pl);
    if (pl.r < 0)
        proof_done(p);
    return pl.r;
}

void proof_done(struct proof *p)
{
    for (size_t i = 0; i < p->n_probes; i++) {
        free(p->probes[i].path);
        free(p->probes[i].text);
        free(p->probes[i].compare);
        free(p->probes[i].got_text);
    }
    free(p->probes);
    free(p->kernel);
    *p = (struct proof){0};
}
