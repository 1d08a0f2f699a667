/* Runs in: daemon. Reads: trusted (the machine), hostile (folders that an agent could write). May
 * block: on the file system and the account database. */
#include "sandbox/machine.h"
#include "base/fd.h"
#include "base/landlock.h"
#include "base/mem.h"
#include "base/path.h"
#include "policy/catalog.h"
#include "sandbox/owner.h"
#include "sandbox/places.h"
#include "sandbox/private.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

static int set(char **slot, const char *text)
{
    *slot = strdup(text);
    return *slot ? 0 : -ENOMEM;
}

/* ---- Kernel, programs ------------------------------------------------------------------------ */

static void look_kernel(struct machine *m)
{
    struct utsname u;
    m->landlock_abi = landlock_abi();
    if (uname(&u) < 0)
        return;
    snprintf(m->kernel, sizeof m->kernel, "%s", u.release);
    (void)sscanf(u.release, "%u.%u", &m->kernel_major, &m->kernel_minor);
    m->pid_max_per_namespace = m->kernel_major * 1000 + m->kernel_minor >= 6014;
}

static int look_programs(struct machine *m)
{
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n < 0)
        return -errno;
    exe[n] = '\0';
    char *slash = strrchr(exe, '/');
    if (!slash || slash == exe)
        return -EINVAL;
    *slash = '\0';
    int r = set(&m->programs_dir, exe);
    if (r >= 0)
        r = path_join(exe, "cordon-runner", &m->runner);
    if (r >= 0)
        r = path_join(exe, "cordon-egress", &m->egress);
    return r < 0 ? r : path_join(exe, "cordon-fetch", &m->fetch);
}

/* ---- User and home --------------------------------------------------------------------------- */

/* A home that a private folder can stand for inside: absolute, not "/", in no system folder. */
static bool is_usable_home(const struct machine *m, const char *home)
{
    static const char *const NOT[] = {"/etc", "/proc", "/sys", "/dev", "/run/cordon", "/boot"};
    if (!path_is_canonical(home) || strcmp(home, "/") == 0 || strcmp(home, "/tmp") == 0)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(NOT); i++)
        if (path_is_under(home, NOT[i]))
            return false;
    for (size_t i = 0; i < m->system_dirs.n; i++)
        if (path_is_under(home, m->system_dirs.items[i]) ||
            path_is_under(m->system_dirs.items[i], home))
            return false;
    return true;
}

/* The first of CANDIDATES (NULL-terminated, entries may be NULL) that is usable, resolved. */
static int home_choose(struct machine *m, const char *const *candidates, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        CLEANUP(freep) char *text = NULL;
        CLEANUP(freep) char *real = NULL;
        if (!candidates[i] || path_canonical(candidates[i], &text) < 0)
            continue;
        const char *home = path_resolve(text, &real) < 0 ? text : real;
        if (is_usable_home(m, home))
            return set(&m->home, home);
    }
    return -ENOENT;
}

/* NAME leads to home inside, when home has other names. */
static int home_link(struct machine *m, const char *name)
{
    CLEANUP(freep) char *text = NULL;
    if (!name || path_canonical(name, &text) < 0 || strcmp(text, m->home) == 0 ||
        !is_usable_home(m, text) || path_is_under(text, m->home) || path_is_under(m->home, text) ||
        strv_has(&m->home_links, text))
        return 0;
    return strv_add(&m->home_links, text);
}

static int look_user(struct machine *m)
{
    char made[300];
    m->uid = geteuid();
    m->gid = getegid();
    const struct passwd *pw = getpwuid(m->uid);
    const struct group *gr = getgrgid(m->gid);
    int r = set(&m->user, pw && pw->pw_name[0] ? pw->pw_name : "user");
    if (r >= 0)
        r = set(&m->group, gr && gr->gr_name[0] ? gr->gr_name : "user");
    if (r < 0)
        return r;
    snprintf(made, sizeof made, "/home/%.200s", m->user);
    const char *env = getenv("HOME"), *account = pw ? pw->pw_dir : NULL;
    const char *const candidates[] = {env, account, made, "/home/user"};
    r = home_choose(m, candidates, ARRAY_LEN(candidates));
    if (r >= 0)
        r = home_link(m, env);
    if (r >= 0)
        r = home_link(m, account);
    return r;
}

/* REL below home with links resolved when it has the wanted TYPE (S_IFREG, S_IFDIR) and lies in no
 * protected place; else NULL. */
static char *home_config(const struct machine *m, const struct places *places, const char *rel,
                         mode_t type)
{
    struct stat st;
    CLEANUP(freep) char *path = NULL;
    CLEANUP(freep) char *real = NULL;
    if (path_join(m->home, rel, &path) < 0 || path_resolve(path, &real) < 0 ||
        stat(real, &st) < 0 || (st.st_mode & S_IFMT) != type)
        return NULL;
    for (size_t i = 0; i < places->n; i++)
        if (path_is_under(real, places->items[i].path))
            return NULL;
    return TAKE(real);
}

/* ---- The system ------------------------------------------------------------------------------ */

static bool is_covered(const struct machine *m, const char *path)
{
    for (size_t i = 0; i < m->system_dirs.n; i++)
        if (path_is_under(path, m->system_dirs.items[i]))
            return true;
    return false;
}

/* A folder as it is, or a link with what it leads to. */
static int look_system_dir(struct machine *m, const char *path)
{
    struct stat st;
    char text[PATH_MAX];
    CLEANUP(freep) char *real = NULL;
    if (lstat(path, &st) < 0 || (S_ISLNK(st.st_mode) && !owner_is_system(st.st_uid)))
        return 0;
    if (S_ISDIR(st.st_mode))
        return strv_add(&m->system_dirs, path);
    ssize_t n = S_ISLNK(st.st_mode) ? readlink(path, text, sizeof text - 1) : -1;
    if (n <= 0 || path_resolve(path, &real) < 0 || stat(real, &st) < 0 || !S_ISDIR(st.st_mode) ||
        !owner_is_system(st.st_uid) || strcmp(real, "/") == 0)
        return 0;
    text[n] = '\0';
    int r = is_covered(m, real) ? 0 : strv_add(&m->system_dirs, real);
    return r < 0 ? r : strv_addf(&m->system_links, "%s=%s", path + 1, text);
}

static int look_system(struct machine *m)
{
    static const char *const DIRS[] = {"/usr",
                                       "/bin",
                                       "/sbin",
                                       "/lib",
                                       "/lib32",
                                       "/lib64",
                                       "/libx32",
                                       "/opt",
                                       "/nix",
                                       "/snap",
                                       "/home/linuxbrew/.linuxbrew"};
    int r = 0;
    for (size_t i = 0; i < ARRAY_LEN(DIRS) && r >= 0; i++)
        r = look_system_dir(m, DIRS[i]);
    return r;
}

/* ---- /etc ------------------------------------------------------------------------------------ */

#define ETC_SECRETS_MAX                                                                            \
    1024 /* more, or more to look at: no wall, rather than a wall with a hole                      \
          */
#define ETC_LOOKED_MAX 65536
#define ETC_DEPTH_MAX  5

static int secret_add(struct machine *m, const char *path)
{
    if (strv_has(&m->etc_secrets, path))
        return 0;
    return m->etc_secrets.n >= ETC_SECRETS_MAX ? -E2BIG : strv_add(&m->etc_secrets, path);
}

/* A name of the catalogue; its last component may be a pattern: those that exist. */
static int look_etc_name(struct machine *m, const char *name)
{
    char dir[512];
    snprintf(dir, sizeof dir, "/etc/%s", name);
    if (!strchr(name, '*'))
        return secret_add(m, dir);
    char *pattern = strrchr(dir, '/');
    *pattern++ = '\0';
    DIR *d = opendir(dir);
    int r = 0;
    for (struct dirent *e; d && r >= 0 && (e = readdir(d)) != NULL;) {
        char path[sizeof dir + NAME_MAX + 2];
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (fnmatch(pattern, e->d_name, FNM_PERIOD) == 0)
            r = secret_add(m, path);
    }
    if (d)
        closedir(d);
    return r;
}

struct etc_walk {
    struct machine *m;
    unsigned looked;
};

/* Run by root, the kernel's own modes hide nothing inside (root inside is the files' owner): what
 * is not for everyone is hidden. Bounded. */
static int walk_etc(struct etc_walk *w, const char *dir, unsigned depth)
{
    DIR *d = opendir(dir);
    int r = 0;
    for (struct dirent *e; d && r >= 0 && (e = readdir(d)) != NULL;) {
        char path[PATH_MAX];
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            snprintf(path, sizeof path, "%s/%s", dir, e->d_name) >= (int)sizeof path ||
            fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISLNK(st.st_mode))
            continue;
        if (++w->looked > ETC_LOOKED_MAX)
            r = -E2BIG;
        else if (!(st.st_mode & S_IROTH) ||
                 (S_ISDIR(st.st_mode) && (!(st.st_mode & S_IXOTH) || depth == ETC_DEPTH_MAX)))
            r = secret_add(w->m, path); /* what lies too deep to be looked at is hidden whole */
        else if (S_ISDIR(st.st_mode))
            r = walk_etc(w, path, depth + 1);
    }
    if (d)
        closedir(d);
    return r;
}

static int look_etc(struct machine *m)
{
    size_t n;
    const char *const *names = catalog_etc_secrets(&n);
    int r = 0;
    for (size_t i = 0; i < n && r >= 0; i++)
        r = look_etc_name(m, names[i]);
    if (r >= 0 && m->uid == 0)
        r = walk_etc(&(struct etc_walk){.m = m}, "/etc", 0);
    return r;
}

int machine_look_etc(struct machine *m)
{
    struct strv old = m->etc_secrets;
    m->etc_secrets = (struct strv){0};
    int r = look_etc(m);
    if (r < 0) {
        strv_done(&m->etc_secrets);
        m->etc_secrets = old;
        return r;
    }
    strv_done(&old);
    return 0;
}

/* ---- /proc ------------------------------------------------------------------------------------
 */

/* bubblewrap cannot make what is not there; what this user cannot read it needs no bind for. */
static int look_proc(struct machine *m)
{
    size_t n;
    const char *const *names = catalog_proc_secrets(&n);
    int r = 0;
    for (size_t i = 0; i < n && r >= 0; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "/proc/%s", names[i]);
        if (access(path, R_OK) == 0)
            r = strv_add(&m->proc_secrets, path);
    }
    return r;
}

/* ---- All of it ------------------------------------------------------------------------------- */

/* DIR with links resolved as far as it exists. */
static int look_own_dir(const char *dir, char **slot)
{
    if (!dir)
        return 0;
    return path_resolve(dir, slot) >= 0 ? 0 : path_canonical(dir, slot);
}

static int look_protected(struct machine *m)
{
    struct places places = {0};
    int r = places_look(m, &places);
    for (size_t i = 0; i < places.n && r >= 0; i++)
        if (!strv_has(&m->protected_dirs, places.items[i].path))
            r = strv_add(&m->protected_dirs, places.items[i].path);
    if (r >= 0) {
        m->gitconfig = home_config(m, &places, ".gitconfig", S_IFREG);
        m->gitdir = home_config(m, &places, ".config/git", S_IFDIR);
    }
    places_done(&places);
    return r;
}

int machine_look(const struct machine_dirs *dirs, struct machine *ret, struct err *err)
{
    struct machine m = {.landlock_abi = 0};
    look_kernel(&m);
    int r = look_programs(&m);
    if (r >= 0)
        r = look_system(&m);
    if (r >= 0)
        r = look_user(&m);
    if (r >= 0)
        r = look_etc(&m);
    if (r >= 0)
        r = look_proc(&m);
    if (r >= 0)
        r = look_own_dir(dirs->state, &m.state_dir);
    if (r >= 0)
        r = look_own_dir(dirs->config, &m.config_dir);
    if (r >= 0)
        r = look_own_dir(dirs->cache, &m.cache_dir);
    if (r >= 0)
        r = look_own_dir(dirs->run, &m.run_dir);
    if (r >= 0)
        r = look_protected(&m);
    if (r < 0) {
        machine_done(&m);
        return err_set(err, r, "internal", NULL, "this machine cannot be looked at: %s",
                       strerror(-r));
    }
    *ret = m;
    return 0;
}

/* ---- Folders to grant ------------------------------------------------------------------------ */

int64_t path_born_ns(const char *path)
{
    struct statx st;
    if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_BTIME, &st) < 0 ||
        !(st.stx_mask & STATX_BTIME))
        return 0;
    return st.stx_btime.tv_sec * INT64_C(1000000000) + (int64_t)st.stx_btime.tv_nsec;
}

static int folder_open(struct policy_folder *f, struct err *err)
{
    struct stat st;
    if (!f->path || !path_is_canonical(f->path))
        return err_set(err, -EINVAL, "path_invalid", "give an absolute path",
                       "not an absolute path without empty, . and .. parts");
    free(f->real);
    f->real = NULL;
    int r = path_resolve(f->path, &f->real);
    if (r >= 0 && stat(f->real, &st) < 0)
        r = -errno;
    if (r < 0)
        return err_set(err, r, "path_invalid", NULL, "%s cannot be used: %s", f->path,
                       strerror(-r));
    if (!S_ISDIR(st.st_mode))
        return err_set(err, -ENOTDIR, "path_invalid", "grant the folder that the file is in",
                       "%s is not a folder", f->path);
    f->dev = st.st_dev;
    f->ino = st.st_ino;
    f->born_ns = path_born_ns(f->real);
    return 0;
}

static bool is_private_folder(const char *path)
{
    static const char PREFIX[] = "/tmp/" PRIVATE_PREFIX;
    return str_starts(path, PREFIX) && strcspn(path + sizeof PREFIX - 1, "/") == 22;
}

/* What REAL must not be, whatever is in it; NULL when it may. */
static const char *whole_place(const struct machine *m, const char *real)
{
    static const char *const WHOLE[] = {"/tmp", "/var/tmp", "/dev/shm", "/run/user"};
    static const char *const KERNEL[] = {"/proc", "/sys", "/dev"};
    for (size_t i = 0; i < ARRAY_LEN(WHOLE); i++)
        if (path_is_under(WHOLE[i], real))
            return WHOLE[i];
    for (size_t i = 0; i < ARRAY_LEN(KERNEL); i++)
        if (path_is_under(real, KERNEL[i]))
            return KERNEL[i];
    if (path_is_under(m->home, real))
        return m->home;
    for (size_t i = 0; i < m->home_links.n; i++) {
        CLEANUP(freep) char *home = NULL;
        if (path_is_under(m->home_links.items[i], real) ||
            (path_resolve(m->home_links.items[i], &home) >= 0 && path_is_under(home, real)))
            return m->home_links.items[i];
    }
    return is_private_folder(real) ? "a session's private folder" : NULL;
}

int machine_folder_check(const struct machine *m, struct policy_folder *f, struct err *err)
{
    struct places places = {0};
    int r = folder_open(f, err);
    if (r < 0)
        return r;
    const char *whole = whole_place(m, f->real);
    if (whole)
        return err_set(err, -EPERM, "protected_place", "grant a folder below it",
                       "the folder is, lies in or contains %s", whole);
    r = places_look(m, &places);
    if (r < 0)
        return err_set(err, r, "internal", NULL, "out of memory");
    const struct place *place = places_match(&places, f->real);
    if (place && strcmp(place->name, place->path) != 0)
        r = err_set(err, -EPERM, "protected_place", "grant another folder",
                    "this folder holds what %s points to", place->name);
    else if (place)
        r = err_set(err, -EPERM, "protected_place", "grant another folder",
                    "the folder is, lies in or contains the protected place %s", place->name);
    places_done(&places);
    return r;
}

bool machine_folder_writable(const struct machine *m, const char *path)
{
    struct stat st;
    if (m->uid != 0)
        return faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS) == 0;
    if (stat(path, &st) < 0)
        return false;
    return st.st_uid == 0   ? (st.st_mode & S_IWUSR) != 0
           : st.st_gid == 0 ? (st.st_mode & S_IWGRP) != 0
                            : (st.st_mode & S_IWOTH) != 0;
}
