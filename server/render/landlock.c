/* Runs in: daemon. Reads: trusted. May block: no.
 *
 * Landlock only adds rights below a folder: what is read-only inside a writable folder is held by
 * the mount alone, which landlock_layers_text() says. */
#include "render/landlock.h"
#include "base/landlock.h"
#include "base/mem.h"
#include "wire/order.h"
#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#define READ_RIGHTS (LL_EXECUTE | LL_READ_FILE | LL_READ_DIR)
#define WRITE_RIGHTS                                                                               \
    (LL_WRITE_FILE | LL_REMOVE_DIR | LL_REMOVE_FILE | LL_MAKE_DIR | LL_MAKE_REG | LL_MAKE_SOCK |   \
     LL_MAKE_FIFO | LL_MAKE_SYM | LL_REFER | LL_TRUNCATE)
/* Device nodes are handled and never granted. */
#define HANDLED (READ_RIGHTS | WRITE_RIGHTS | LL_MAKE_CHAR | LL_MAKE_BLOCK | LL_IOCTL_DEV)

/* Rights by the ABI that brought them. */
static const struct {
    uint64_t right;
    int abi;
    const char *name;
} RIGHTS[] = {
    {LL_EXECUTE, 1, "execute"},       {LL_WRITE_FILE, 1, "write_file"},
    {LL_READ_FILE, 1, "read_file"},   {LL_READ_DIR, 1, "read_dir"},
    {LL_REMOVE_DIR, 1, "remove_dir"}, {LL_REMOVE_FILE, 1, "remove_file"},
    {LL_MAKE_CHAR, 1, "make_char"},   {LL_MAKE_DIR, 1, "make_dir"},
    {LL_MAKE_REG, 1, "make_reg"},     {LL_MAKE_SOCK, 1, "make_sock"},
    {LL_MAKE_FIFO, 1, "make_fifo"},   {LL_MAKE_BLOCK, 1, "make_block"},
    {LL_MAKE_SYM, 1, "make_sym"},     {LL_REFER, 2, "refer"},
    {LL_TRUNCATE, 3, "truncate"},     {LL_IOCTL_DEV, 5, "ioctl_dev"},
};
enum { ABI_SCOPES = 6 };

/* What every wall has beside the policy's paths, by the file systems bubblewrap makes. A command
 * writes to its own files below /proc (comm, oom_score_adj, mem of what it traces). */
static const struct {
    const char *path;
    uint64_t rights;
} FIXED[] = {
    {"/proc", LL_READ_FILE | LL_READ_DIR | LL_WRITE_FILE},
    {"/dev", LL_READ_FILE | LL_READ_DIR | LL_WRITE_FILE | LL_TRUNCATE | LL_IOCTL_DEV},
    {"/dev/shm", READ_RIGHTS | WRITE_RIGHTS},
    {RUNNER_FOLDER, READ_RIGHTS}, /* the runner is a ProxyCommand too */
};

static uint64_t rights_of_abi(uint64_t rights, int abi)
{
    for (size_t i = 0; i < ARRAY_LEN(RIGHTS); i++)
        if (RIGHTS[i].abi > abi)
            rights &= ~RIGHTS[i].right;
    return rights;
}

static int add_path(struct rules *r, const char *path, uint64_t rights, bool optional)
{
    rights &= r->handled;
    if (!rights)
        return 0;
    if (r->n_paths >= RULES_PATHS_MAX)
        return -E2BIG;
    if ((r->n_paths & (r->n_paths - 1)) == 0) { /* a power of two: full */
        size_t cap = r->n_paths ? (size_t)r->n_paths * 2 : 1;
        struct rules_path *grown = realloc(r->paths, cap * sizeof *grown);
        if (!grown)
            return -ENOMEM;
        r->paths = grown;
    }
    char *copy = strdup(path);
    if (!copy)
        return -ENOMEM;
    r->paths[r->n_paths++] =
        (struct rules_path){.path = copy, .rights = rights, .optional = optional};
    return 0;
}

static void head_set(struct rules *r, int abi)
{
    r->landlock = abi > 0;
    r->abi = (uint32_t)abi;
    r->handled = rights_of_abi(HANDLED, abi);
    r->scopes = abi >= ABI_SCOPES ? LL_SCOPE_ABSTRACT_UNIX | LL_SCOPE_SIGNAL : 0;
}

static void limit_add(struct rules *r, int resource, uint64_t n)
{
    if (r->n_limits < RULES_LIMITS_MAX)
        r->limits[r->n_limits++] = (struct rules_limit){(uint32_t)resource, n, n};
}

/* No core: a file would be cut to nothing by 0 too, but a program in core_pattern, which the kernel
 * starts outside as root, is passed over for 1 alone (core(5); fs/coredump.c). */
#define CORE_NONE 1

/* Processes are counted by the pid namespace where it has a maximum of its own. */
static void limits_set(const struct policy *p, const struct machine *m, struct rules *r)
{
    limit_add(r, RLIMIT_CORE, CORE_NONE);
    if (p->limits.open_files)
        limit_add(r, RLIMIT_NOFILE, p->limits.open_files);
    if (p->limits.processes && !m->pid_max_per_namespace)
        limit_add(r, RLIMIT_NPROC, p->limits.processes);
    if (p->limits.memory_bytes)
        limit_add(r, RLIMIT_AS, p->limits.memory_bytes);
}

/* A file grant carries no folder rights. */
static uint64_t entry_rights(const struct policy *p, const struct path_entry *e)
{
    bool is_file = strv_has(&p->config_files, e->path) ||
                   (e->kind == PATH_CONFIG && strcmp(strrchr(e->path, '/'), "/.gitconfig") == 0);
    switch (e->access) {
    case PATH_DENY:
        return 0;
    case PATH_READ:
        return is_file                  ? LL_READ_FILE
               : e->kind == PATH_CONFIG ? LL_READ_FILE | LL_READ_DIR
                                        : READ_RIGHTS;
    case PATH_WRITE:
        return READ_RIGHTS | WRITE_RIGHTS;
    }
    return 0;
}

static bool entry_is_optional(const struct machine *m, const struct path_entry *e)
{
    switch (e->kind) {
    case PATH_FOLDER:
    case PATH_PRIVATE:
        return false;
    case PATH_SYSTEM:
        return strcmp(e->path, "/etc") != 0 && !strv_has(&m->system_dirs, e->path);
    case PATH_TOOLCHAIN:
    case PATH_CONFIG:
    case PATH_PROTECTED:
        return true;
    }
    return false;
}

static int paths_render(const struct policy *p, const struct machine *m, struct rules *r)
{
    int rc = 0;
    if (p->reads == READS_ALL_BUT) /* masks are mounts; what may be written is listed below */
        rc = add_path(r, "/", READ_RIGHTS, false);
    for (size_t i = 0; i < p->paths.n && rc >= 0; i++) {
        const struct path_entry *e = &p->paths.items[i];
        rc = add_path(r, e->path, entry_rights(p, e), entry_is_optional(m, e));
    }
    for (size_t i = 0; i < ARRAY_LEN(FIXED) && rc >= 0; i++)
        rc = add_path(r, FIXED[i].path, FIXED[i].rights, false);
    return rc;
}

int landlock_render(const struct policy *p, const struct machine *m, int abi, struct rules *ret)
{
    struct rules r = {0};
    int rc = 0;
    if (p->tier != TIER_OPEN) {
        head_set(&r, abi);
        limits_set(p, m, &r);
        if (abi > 0)
            rc = paths_render(p, m, &r);
    }
    if (rc < 0) {
        rules_done(&r);
        return rc;
    }
    *ret = r;
    return 0;
}

/* What the resolver reads, with the usual targets of /etc/resolv.conf. Those are replaced by
 * rename, so the folder counts where it holds nothing else. Nothing to write. */
static const struct {
    const char *path;
    uint64_t rights;
} RESOLVER[] = {
    {"/etc/resolv.conf", LL_READ_FILE},
    {"/etc/hosts", LL_READ_FILE},
    {"/etc/host.conf", LL_READ_FILE},
    {"/etc/nsswitch.conf", LL_READ_FILE},
    {"/etc/gai.conf", LL_READ_FILE},
    {"/etc/services", LL_READ_FILE},
    {"/run/systemd/resolve", LL_READ_FILE | LL_READ_DIR},
    {"/run/resolvconf", LL_READ_FILE | LL_READ_DIR},
    {"/run/NetworkManager/resolv.conf", LL_READ_FILE},
    {"/run/NetworkManager/no-stub-resolv.conf", LL_READ_FILE},
    {"/dev/urandom", LL_READ_FILE}, /* ids of its questions */
};
/* 1,024 connections with both ends, and those being dialled. */
#define EGRESS_FILES 4096

int landlock_render_egress(const struct machine *m, int abi, struct rules *ret)
{
    struct rules r = {0};
    int rc = 0;
    (void)m;
    head_set(&r, abi);
    limit_add(&r, RLIMIT_CORE, CORE_NONE);
    limit_add(&r, RLIMIT_FSIZE, 0);
    limit_add(&r, RLIMIT_NOFILE, EGRESS_FILES);
    for (size_t i = 0; i < ARRAY_LEN(RESOLVER) && abi > 0 && rc >= 0; i++)
        rc = add_path(&r, RESOLVER[i].path, RESOLVER[i].rights, true);
    if (rc < 0) {
        rules_done(&r);
        return rc;
    }
    *ret = r;
    return 0;
}

/* ---- Text ------------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    uint64_t rights;
} SETS[] = {{"read+write", READ_RIGHTS | WRITE_RIGHTS}, {"read", READ_RIGHTS}};

static int rights_text(uint64_t rights, uint64_t handled, struct str *out)
{
    int r = 0;
    bool first = true;
    for (size_t i = 0; i < ARRAY_LEN(SETS) && r >= 0; i++)
        if (rights == (SETS[i].rights & handled))
            return str_puts(out, SETS[i].name);
    for (size_t i = 0; i < ARRAY_LEN(RIGHTS) && r >= 0; i++) {
        if (!(rights & RIGHTS[i].right))
            continue;
        r = str_printf(out, "%s%s", first ? "" : ",", RIGHTS[i].name);
        first = false;
    }
    return r;
}

static int legend_text(const struct rules *r, struct str *out)
{
    int rc = str_printf(out, "abi %u\nhandled ", r->abi);
    for (size_t i = 0; i < ARRAY_LEN(RIGHTS) && rc >= 0; i++)
        if (r->handled & RIGHTS[i].right)
            rc = str_printf(out, "%s%s", i ? "," : "", RIGHTS[i].name);
    if (rc >= 0)
        rc = str_printf(out, "\nscopes %s\n", r->scopes ? "abstract_unix_socket,signal" : "none");
    return rc;
}

static const char *limit_name(uint32_t resource)
{
    switch (resource) {
    case RLIMIT_CORE:
        return "core";
    case RLIMIT_NOFILE:
        return "nofile";
    case RLIMIT_NPROC:
        return "nproc";
    case RLIMIT_AS:
        return "as";
    case RLIMIT_FSIZE:
        return "fsize";
    default:
        return "?";
    }
}

int landlock_text(const struct rules *r, struct str *out)
{
    int rc = r->landlock ? legend_text(r, out) : str_puts(out, "no Landlock\n");
    for (uint32_t i = 0; i < r->n_paths && rc >= 0; i++) {
        rc = str_puts(out, "allow ");
        if (rc >= 0)
            rc = str_put_escaped(out, r->paths[i].path, strlen(r->paths[i].path));
        if (rc >= 0)
            rc = str_putc(out, ' ');
        if (rc >= 0)
            rc = rights_text(r->paths[i].rights, r->handled, out);
        if (rc >= 0)
            rc = str_puts(out, r->paths[i].optional ? " [if there]\n" : "\n");
    }
    for (uint32_t i = 0; i < r->n_limits && rc >= 0; i++)
        rc = str_printf(out, "limit %s %llu\n", limit_name(r->limits[i].resource),
                        (unsigned long long)r->limits[i].soft);
    return rc;
}

/* The access that Landlock's additive rules come to at PATH: the widest of all entries above. */
static enum path_access landlock_access(const struct policy *p, const char *path)
{
    enum path_access widest = PATH_DENY;
    for (size_t i = 0; i < p->paths.n; i++) {
        const struct path_entry *e = &p->paths.items[i];
        size_t n = strlen(e->path);
        bool above = strncmp(path, e->path, n) == 0 && (path[n] == '/' || path[n] == '\0');
        if ((above || strcmp(e->path, "/") == 0) && e->access > widest)
            widest = e->access;
    }
    return widest;
}

int landlock_layers_text(const struct policy *p, int abi, struct str *out)
{
    static const char *const ACCESS[] = {"hidden", "read", "write"};
    int r = 0;
    for (size_t i = 0; i < p->paths.n && r >= 0; i++) {
        const struct path_entry *e = &p->paths.items[i];
        bool both = abi > 0 && landlock_access(p, e->path) == e->access;
        r = str_printf(out, "%-6s %-14s ", ACCESS[e->access], both ? "mount+landlock" : "mount");
        if (r >= 0)
            r = str_put_escaped(out, e->path, strlen(e->path));
        if (r >= 0)
            r = str_putc(out, '\n');
    }
    return r;
}
