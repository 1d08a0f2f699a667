/* Runs in: daemon. Reads: trusted. May block: no. */
#include "policy/policy.h"
#include "base/mem.h"
#include "base/path.h"
#include "policy/env.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *const TIER_NAMES[] = {"walled", "airlock", "guarded", "open", NULL};
const char *const NET_NAMES[] = {"none", "allowlist", "open", NULL};
const char *const PROVIDER_NAMES[] = {"unknown", "bubblewrap", "seatbelt", "direct", NULL};
const char *const LEVEL_NAMES[] = {"files+network", "files", "none", NULL};

/* Folders of the system that programs need beside those the machine lists: data of packages, and
 * what CPU counting reads. Absent ones are passed over. */
static const char *const SYSTEM_EXTRAS[] = {
    "/sys/devices/system/cpu",
    "/var/cache/fontconfig",
    "/var/lib/aspell",
    "/var/lib/dictionaries-common",
    "/var/lib/dpkg",
    "/var/lib/gems",
    "/var/lib/ghc",
    "/var/lib/ispell",
    "/var/lib/texmf",
};
/* Of /nix only this: a read-only bind does not stop connect() on the daemon's socket. */
static const char *const NIX_PARTS[] = {"/nix/store", "/nix/var/nix/profiles"};

enum level policy_level(enum provider provider, enum tier tier, enum net_mode network)
{
    if (provider == PROVIDER_DIRECT || provider == PROVIDER_UNKNOWN || tier == TIER_OPEN)
        return LEVEL_NONE;
    return network == NET_OPEN ? LEVEL_FILES : LEVEL_FILES_NETWORK;
}

bool tier_is_within(enum tier to, enum tier from)
{
    if (to == from || from == TIER_OPEN)
        return true;
    return from == TIER_GUARDED && (to == TIER_WALLED || to == TIER_AIRLOCK);
}

void machine_done(struct machine *m)
{
    strv_done(&m->system_dirs);
    strv_done(&m->system_links);
    strv_done(&m->etc_secrets);
    strv_done(&m->proc_secrets);
    strv_done(&m->home_links);
    strv_done(&m->protected_dirs);
    char *const owned[] = {m->runner,  m->egress,    m->fetch,     m->programs_dir, m->home,
                           m->user,    m->group,     m->state_dir, m->config_dir,   m->cache_dir,
                           m->run_dir, m->gitconfig, m->gitdir};
    for (size_t i = 0; i < ARRAY_LEN(owned); i++)
        free(owned[i]);
    *m = (struct machine){0};
}

static void folder_done(struct policy_folder *f)
{
    free(f->id);
    free(f->path);
    free(f->real);
}

void policy_done(struct policy *p)
{
    pathset_done(&p->paths);
    strv_done(&p->config_files);
    strv_done(&p->config_dirs);
    for (size_t i = 0; i < p->n_folders; i++)
        folder_done(&p->folders[i]);
    free(p->folders);
    free(p->cwd);
    free(p->home);
    free(p->private_dir);
    strv_done(&p->env);
    strv_done(&p->warnings);
    *p = (struct policy){0};
}

/* ---- Spellings ------------------------------------------------------------------------------- */

/* PATH with its beginning FROM replaced by TO; NULL in *ret when it does not begin so. */
static int prefix_replace(const char *path, const char *from, const char *to, char **ret)
{
    *ret = NULL;
    if (!path_is_under(path, from))
        return 0;
    const char *rest = strcmp(from, "/") == 0 ? path : path + strlen(from);
    return asprintf(ret, "%s%s", strcmp(to, "/") == 0 && *rest ? "" : to, rest) < 0 ? -ENOMEM : 0;
}

/* "bin=usr/bin" of the machine's links. */
static int system_link_replace(const char *path, const char *link, char **ret)
{
    char from[256], to[256];
    const char *eq = strchr(link, '=');
    *ret = NULL;
    if (!eq)
        return 0;
    snprintf(from, sizeof from, "/%.*s", (int)(eq - link), link);
    snprintf(to, sizeof to, "%s%s", eq[1] == '/' ? "" : "/", eq + 1);
    return prefix_replace(path, from, to, ret);
}

int policy_spelling(const struct policy *p, const struct machine *m, const char *path, char **ret)
{
    char *found CLEANUP(freep) = NULL;
    int r = 0;
    /* a folder's own spelling first: it was resolved whole */
    for (size_t i = 0; i < p->n_folders && !found && r >= 0; i++)
        if (!p->folders[i].missing)
            r = prefix_replace(path, p->folders[i].path, p->folders[i].real, &found);
    for (size_t i = 0; i < m->home_links.n && !found && r >= 0; i++)
        r = prefix_replace(path, m->home_links.items[i], m->home, &found);
    for (size_t i = 0; i < m->system_links.n && !found && r >= 0; i++)
        r = system_link_replace(path, m->system_links.items[i], &found);
    if (!found && r >= 0)
        r = prefix_replace(path, "/var/run", "/run", &found);
    if (!found && r >= 0 && !(found = strdup(path)))
        r = -ENOMEM;
    if (r >= 0)
        *ret = TAKE(found);
    return r < 0 ? r : 0;
}

/* ---- Folders --------------------------------------------------------------------------------- */

static bool is_in_or_around(const char *path, const char *place)
{
    return path_is_under(path, place) || path_is_under(place, path);
}

static bool is_canonical(const char *path)
{
    char *c CLEANUP(freep) = NULL;
    return path && path_canonical(path, &c) >= 0 && strcmp(c, path) == 0;
}

/* Programs of the system and what the kernel shows: what a person cannot mean by a work folder. */
static const char *refused_system(const struct machine *m, const char *path, enum access access)
{
    static const char *const KERNEL[] = {"/dev", "/proc", "/sys"};
    static const char *const PROGRAMS[] = {"/bin",       "/boot",        "/etc",     "/lib",
                                           "/sbin",      "/usr/bin",     "/usr/lib", "/usr/lib32",
                                           "/usr/lib64", "/usr/libexec", "/usr/sbin"};
    for (size_t i = 0; i < ARRAY_LEN(KERNEL); i++)
        if (is_in_or_around(path, KERNEL[i]))
            return KERNEL[i];
    if (access != ACCESS_RW)
        return NULL;
    for (size_t i = 0; i < ARRAY_LEN(PROGRAMS); i++)
        if (is_in_or_around(path, PROGRAMS[i]))
            return PROGRAMS[i];
    for (size_t i = 0; i < m->system_dirs.n; i++)
        if (strcmp(m->system_dirs.items[i], "/opt") != 0 &&
            path_is_under(m->system_dirs.items[i], path))
            return m->system_dirs.items[i];
    return NULL;
}

/* Text only; sandbox/machine looked at the files before, and this holds whoever calls. */
static int folder_check(const struct machine *m, const struct policy_folder *f, size_t i,
                        struct err *err)
{
    char pointer[48];
    snprintf(pointer, sizeof pointer, "/folders/%zu/path", i);
    if (!is_canonical(f->path) || !is_canonical(f->real))
        return err_member(err, -EINVAL, "path_invalid", pointer, "not an absolute, plain path");
    if (f->access == ACCESS_NONE)
        return err_member(err, -EINVAL, "path_invalid", pointer, "a folder without access");
    const char *system = refused_system(m, f->real, f->access);
    if (system)
        return err_member(err, -EINVAL, "path_invalid", pointer, "%s belongs to the system",
                          system);
    if (strcmp(f->real, "/tmp") == 0 || strcmp(f->real, "/var/tmp") == 0 ||
        strcmp(f->real, "/var") == 0 || strcmp(f->real, "/run") == 0)
        return err_member(err, -EPERM, "protected_place", pointer, "%s as a whole is too wide",
                          f->real);
    if (path_is_under(m->home, f->real))
        return err_member(err, -EPERM, "protected_place", pointer, "holds the whole home folder");
    for (size_t k = 0; k < m->protected_dirs.n; k++)
        if (is_in_or_around(f->real, m->protected_dirs.items[k]))
            return err_member(err, -EPERM, "protected_place", pointer,
                              "in or around a protected place: %s", m->protected_dirs.items[k]);
    return 0;
}

static int folder_copy(const struct policy_folder *from, struct policy_folder *to)
{
    *to = (struct policy_folder){.access = from->access,
                                 .dev = from->dev,
                                 .ino = from->ino,
                                 .born_ns = from->born_ns,
                                 .missing = from->missing,
                                 .id = strdup(from->id ? from->id : ""),
                                 .path = from->path ? strdup(from->path) : NULL,
                                 .real = strdup(from->real ? from->real : "")};
    return to->id && to->path && to->real ? 0 : -ENOMEM;
}

static int folders_compile(const struct policy_input *in, const struct machine *m, struct policy *p,
                           struct err *err)
{
    int r = 0;
    if (in->n_folders > POLICY_FOLDERS_MAX)
        return err_member(err, -E2BIG, "too_many", "/folders", "at most %d folders",
                          POLICY_FOLDERS_MAX);
    if (!in->n_folders)
        return 0;
    p->folders = calloc(in->n_folders, sizeof *p->folders);
    if (!p->folders)
        return -ENOMEM;
    for (size_t i = 0; i < in->n_folders && r >= 0; i++) {
        const struct policy_folder *f = &in->folders[i];
        if (!f->missing && p->tier != TIER_OPEN)
            r = folder_check(m, f, i, err);
        if (r < 0)
            break;
        r = folder_copy(f, &p->folders[p->n_folders++]);
        if (r >= 0 && !f->missing)
            r = pathset_add(&p->paths, f->real, f->access == ACCESS_RW ? PATH_WRITE : PATH_READ,
                            PATH_FOLDER);
    }
    return r;
}

/* ---- Tier walled ----------------------------------------------------------------------------- */

static int system_add(const struct machine *m, struct pathset *s)
{
    int r = pathset_add(s, "/etc", PATH_READ, PATH_SYSTEM);
    for (size_t i = 0; i < m->system_dirs.n && r >= 0; i++) {
        if (strcmp(m->system_dirs.items[i], "/nix") != 0) {
            r = pathset_add(s, m->system_dirs.items[i], PATH_READ, PATH_SYSTEM);
            continue;
        }
        for (size_t k = 0; k < ARRAY_LEN(NIX_PARTS) && r >= 0; k++)
            r = pathset_add(s, NIX_PARTS[k], PATH_READ, PATH_SYSTEM);
    }
    for (size_t i = 0; i < ARRAY_LEN(SYSTEM_EXTRAS) && r >= 0; i++)
        r = pathset_add(s, SYSTEM_EXTRAS[i], PATH_READ, PATH_SYSTEM);
    for (size_t i = 0; i < m->etc_secrets.n && r >= 0; i++)
        if (!strchr(m->etc_secrets.items[i], '*')) /* not expanded by who looked: names nothing */
            r = pathset_add(s, m->etc_secrets.items[i], PATH_DENY, PATH_PROTECTED);
    return r;
}

static int add_below(struct pathset *s, const char *dir, const char *name, enum path_access access,
                     enum path_kind kind)
{
    char *path CLEANUP(freep) = NULL;
    int r = path_join(dir, name, &path);
    return r < 0 ? r : pathset_add(s, path, access, kind);
}

const char *const POLICY_CREDENTIAL_FILES[] = {"credentials",
                                               "credentials.toml",
                                               "credentials.json",
                                               "credentials.lock",
                                               "credentials.bak",
                                               "credentials.old",
                                               "credentials.orig",
                                               "credentials.new",
                                               "credentials.tmp",
                                               "credentials~",
                                               NULL};

static int credential_files_add(struct pathset *s, const char *dir)
{
    int r = 0;
    for (size_t i = 0; POLICY_CREDENTIAL_FILES[i] && r >= 0; i++)
        r = add_below(s, dir, POLICY_CREDENTIAL_FILES[i], PATH_DENY, PATH_PROTECTED);
    return r;
}

static int home_add(const struct policy_input *in, struct policy *p)
{
    char *git CLEANUP(freep) = NULL;
    struct pathset *s = &p->paths;
    int r = pathset_add(s, p->home, PATH_WRITE, PATH_PRIVATE);
    if (r >= 0)
        r = pathset_add(s, "/tmp", PATH_WRITE, PATH_PRIVATE);
    if (r >= 0)
        r = pathset_add(s, "/var/tmp", PATH_WRITE, PATH_PRIVATE);
    if (r >= 0)
        r = add_below(s, p->home, ".gitconfig", PATH_READ, PATH_CONFIG);
    if (r >= 0)
        r = path_join(p->home, ".config/git", &git);
    if (r >= 0)
        r = pathset_add(s, git, PATH_READ, PATH_CONFIG);
    if (r >= 0)
        r = credential_files_add(s, git);
    for (size_t i = 0; in->toolchains && i < in->toolchains->n && r >= 0; i++) {
        const char *t = in->toolchains->items[i];
        r = pathset_add(s, t, PATH_READ, PATH_TOOLCHAIN);
        if (r >= 0 && strcmp(path_last(t), ".cargo") == 0)
            r = credential_files_add(s, t);
    }
    return r;
}

/* HOME inside: the real home's path, so that every way of finding home agrees; a path of our own
 * where the account's home lies where the view has something else (system accounts, "/"). */
static int home_choose(const struct machine *m, char **ret)
{
    static const char *const TAKEN[] = {"/dev", "/proc", "/sys", "/etc", "/bin", "/sbin", "/lib"};
    bool usable = is_canonical(m->home) && strcmp(m->home, "/") != 0 &&
                  strcmp(m->home, "/tmp") != 0 && strcmp(m->home, "/var/tmp") != 0 &&
                  strcmp(m->home, "/run") != 0 && strcmp(m->home, "/var") != 0;
    for (size_t i = 0; i < ARRAY_LEN(TAKEN) && usable; i++)
        usable = !path_is_under(m->home, TAKEN[i]);
    for (size_t i = 0; i < m->system_dirs.n && usable; i++)
        usable = !is_in_or_around(m->home, m->system_dirs.items[i]);
    for (size_t i = 0; i < ARRAY_LEN(SYSTEM_EXTRAS) && usable; i++)
        usable = !is_in_or_around(m->home, SYSTEM_EXTRAS[i]);
    *ret = strdup(usable ? m->home : "/home/user");
    return *ret ? 0 : -ENOMEM;
}

static int cwd_choose(const struct policy_input *in, const struct machine *m, struct policy *p,
                      struct err *err)
{
    char *inside CLEANUP(freep) = NULL;
    const char *cwd = in->cwd;
    for (size_t i = 0; i < p->n_folders && !cwd; i++)
        if (!p->folders[i].missing)
            cwd = p->folders[i].path;
    if (!cwd)
        cwd = p->home;
    int r = path_canonical(cwd, &p->cwd);
    if (r < 0)
        return r == -ENOMEM
                   ? r
                   : err_member(err, -EINVAL, "path_invalid", "/cwd", "not an absolute path");
    if (p->tier == TIER_OPEN)
        return 0;
    r = policy_spelling(p, m, p->cwd, &inside);
    if (r >= 0 && pathset_match(&p->paths, inside, NULL) == PATH_DENY)
        return err_member(err, -EINVAL, "path_invalid", "/cwd", "lies in no folder of the session");
    return r;
}

static int walled_compile(const struct policy_input *in, const struct machine *m, struct policy *p,
                          struct err *err)
{
    p->reads = READS_ONLY_THESE;
    int r = home_choose(m, &p->home);
    if (r >= 0)
        r = system_add(m, &p->paths);
    if (r >= 0)
        r = home_add(in, p);
    if (r >= 0)
        r = folders_compile(in, m, p, err);
    return r;
}

static int open_compile(const struct policy_input *in, const struct machine *m, struct policy *p,
                        struct err *err)
{
    p->reads = READS_ALL_BUT;
    p->home = strdup(m->home);
    int r = p->home ? pathset_add(&p->paths, "/", PATH_WRITE, PATH_SYSTEM) : -ENOMEM;
    return r < 0 ? r : folders_compile(in, m, p, err);
}

static int tier_compile(const struct policy_input *in, const struct machine *m, struct policy *p,
                        struct err *err)
{
    switch (in->tier) {
    case TIER_WALLED:
        return walled_compile(in, m, p, err);
    case TIER_OPEN:
        return open_compile(in, m, p, err);
    case TIER_AIRLOCK:
    case TIER_GUARDED:
        return err_member(err, -ENOTSUP, "body_invalid", "/tier", "tier %s is not in this version",
                          TIER_NAMES[in->tier]);
    }
    return err_member(err, -EINVAL, "body_invalid", "/tier", "no such tier");
}

int policy_compile(const struct policy_input *in, const struct machine *m, struct policy *ret,
                   struct err *err)
{
    struct policy p = {
        .tier = in->tier, .network = in->network, .limits = in->limits, .door_port = in->door_port};
    int r = tier_compile(in, m, &p, err);
    if (r >= 0 && in->private_dir && !(p.private_dir = strdup(in->private_dir)))
        r = -ENOMEM;
    if (r >= 0)
        r = env_compile(in, m, &p, err);
    if (r >= 0)
        r = cwd_choose(in, m, &p, err);
    if (r < 0) {
        policy_done(&p);
        return err_set(err, r, "internal", NULL, "the policy could not be compiled: %s",
                       strerror(-r));
    }
    *ret = p;
    return 0;
}
