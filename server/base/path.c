/* Runs in: any. Reads: hostile. May block: files. */
#include "base/path.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Drops the last component of the canonical text in S, whose root is "". */
static void drop_last(struct str *s)
{
    while (s->len > 0 && s->data[s->len - 1] != '/')
        s->len--;
    if (s->len > 0)
        s->len--;
    if (s->data)
        s->data[s->len] = '\0';
}

static int add_component(struct str *s, const char *part, size_t n)
{
    if (n == 0 || (n == 1 && part[0] == '.'))
        return 0;
    if (n == 2 && part[0] == '.' && part[1] == '.') {
        drop_last(s);
        return 0;
    }
    int r = str_putc(s, '/');
    return r < 0 ? r : str_add(s, part, n);
}

int path_canonical(const char *path, char **ret)
{
    if (path[0] != '/')
        return -EINVAL;
    CLEANUP(str_done) struct str out = {0};
    for (const char *p = path; *p;) {
        p += strspn(p, "/");
        size_t n = strcspn(p, "/");
        int r = add_component(&out, p, n);
        if (r < 0)
            return r;
        p += n;
    }
    if (out.len == 0 && str_putc(&out, '/') < 0)
        return -ENOMEM;
    if (out.len >= PATH_MAX)
        return -ENAMETOOLONG;
    *ret = TAKE(out.data);
    return 0;
}

bool path_is_canonical(const char *path)
{
    size_t n = strlen(path);
    if (path[0] != '/' || n >= PATH_MAX)
        return false;
    if (n == 1)
        return true;
    for (const char *p = path; *p;) {
        p++; /* the slash */
        size_t part = strcspn(p, "/");
        if (part == 0 || (part == 1 && p[0] == '.') || (part == 2 && p[0] == '.' && p[1] == '.'))
            return false;
        p += part;
    }
    return true;
}

int path_join(const char *dir, const char *name, char **ret)
{
    if (name[0] == '/')
        return path_canonical(name, ret);
    CLEANUP(str_done) struct str text = {0};
    int r = str_printf(&text, "%s/%s", dir, name);
    return r < 0 ? r : path_canonical(text.data, ret);
}

bool path_is_under(const char *path, const char *dir)
{
    size_t n = strlen(dir);
    if (n == 1 && dir[0] == '/')
        return path[0] == '/';
    return strncmp(path, dir, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

const char *path_last(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] != '\0' ? slash + 1 : path;
}

int path_resolve(const char *path, char **ret)
{
    char *resolved = realpath(path, NULL);
    if (!resolved)
        return -errno;
    *ret = resolved;
    return 0;
}

static int open_how(int at, const char *path, int flags, mode_t mode, uint64_t resolve)
{
    bool makes = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
    struct open_how how = {.flags = (uint64_t)(unsigned)(flags | O_CLOEXEC | O_NOCTTY),
                           .mode = makes ? mode : 0,
                           .resolve = resolve};
    if (flags & O_PATH) /* openat2(2) refuses what O_PATH would ignore */
        how.flags &= O_PATH | O_CLOEXEC | O_DIRECTORY | O_NOFOLLOW;
    long fd;
    int tries = 32; /* EAGAIN: a rename raced with "..", openat2(2) */
    do
        fd = syscall(SYS_openat2, at, path, &how, sizeof(how));
    while (fd < 0 && (errno == EINTR || (errno == EAGAIN && --tries > 0)));
    return fd < 0 ? -errno : (int)fd;
}

int path_open_beneath(int at, const char *path, int flags, mode_t mode, bool follow)
{
    uint64_t resolve = at == AT_FDCWD ? 0 : RESOLVE_BENEATH;
    if (!follow)
        resolve |= RESOLVE_NO_SYMLINKS;
    return open_how(at, path, flags, mode, resolve | RESOLVE_NO_MAGICLINKS);
}

/* ---- Removing a tree ---------------------------------------------------------------------------
 * A descriptor a level, so the depth is bounded: what lies deeper than DEPTH_MAX is moved up to the
 * top of the tree, which is read again until it is empty. */
#define DEPTH_MAX 64

struct removal {
    int top;           /* the folder that is being removed */
    unsigned n_moved;  /* for names of what was moved up */
    bool has_progress; /* since the last look at the top */
    int r;             /* the first failure */
};

static void removal_failed(struct removal *rm, int r)
{
    if (rm->r == 0)
        rm->r = r;
}

static void remove_entry(struct removal *rm, int dir, const char *name, unsigned depth);

/* A folder below which nobody may write (module caches make such) is opened up first. */
static int open_to_empty(int dir, const char *name)
{
    static const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;
    static const uint64_t resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV;
    int fd = open_how(dir, name, flags, 0, resolve);
    if (fd == -EACCES && fchmodat(dir, name, 0700, 0) == 0) /* NOFOLLOW above said it is no link */
        fd = open_how(dir, name, flags, 0, resolve);
    return fd;
}

static void empty_dir(struct removal *rm, int take_fd, unsigned depth)
{
    DIR *entries = fdopendir(take_fd);
    if (!entries) {
        removal_failed(rm, -errno);
        fd_close(take_fd);
        return;
    }
    int fd = dirfd(entries);
    struct stat st;
    if (fstat(fd, &st) == 0 && (st.st_mode & S_IRWXU) != S_IRWXU)
        (void)fchmod(fd, (st.st_mode & 07777) | S_IRWXU);
    const struct dirent *e;
    while ((e = readdir(entries)))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            remove_entry(rm, fd, e->d_name, depth);
    (void)closedir(entries);
}

static void move_up(struct removal *rm, int dir, const char *name)
{
    char up[64];
    (void)snprintf(up, sizeof(up), ".cordon-removing-%u-%d", rm->n_moved++, (int)getpid());
    if (renameat(dir, name, rm->top, up) < 0)
        removal_failed(rm, -errno);
    else
        rm->has_progress = true;
}

static void remove_entry(struct removal *rm, int dir, const char *name, unsigned depth)
{
    if (unlinkat(dir, name, 0) == 0) {
        rm->has_progress = true;
        return;
    }
    if (errno == ENOENT)
        return;
    if (errno != EISDIR && errno != EPERM) { /* EPERM: POSIX's word for a folder */
        removal_failed(rm, -errno);
        return;
    }
    if (unlinkat(dir, name, AT_REMOVEDIR) == 0) {
        rm->has_progress = true;
        return;
    }
    if (depth >= DEPTH_MAX) {
        move_up(rm, dir, name);
        return;
    }
    int fd = open_to_empty(dir, name);
    if (fd < 0) {
        removal_failed(rm, fd);
        return;
    }
    empty_dir(rm, fd, depth + 1);
    if (unlinkat(dir, name, AT_REMOVEDIR) == 0)
        rm->has_progress = true;
    else if (errno != ENOENT && errno != ENOTEMPTY) /* not empty: told already, or moved up later */
        removal_failed(rm, -errno);
}

static int empty_top(int take_top)
{
    CLEANUP(fd_done) int top = take_top;
    struct removal rm = {.top = top};
    do {
        int again = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (again < 0)
            return -errno;
        rm.has_progress = false;
        rm.r = 0;
        unsigned moved = rm.n_moved;
        empty_dir(&rm, again, 0);
        if (rm.n_moved == moved && rm.r == 0)
            return 0;
    } while (rm.has_progress);
    return rm.r;
}

/* The folder that holds PATH's last component, and that component. */
static int open_parent(int at, const char *path, const char **ret_name)
{
    const char *slash = strrchr(path, '/');
    if (!slash) {
        *ret_name = path;
        return path_open_beneath(at, ".", O_PATH | O_DIRECTORY, 0, false);
    }
    *ret_name = slash + 1;
    CLEANUP(freep) char *parent = strndup(path, slash == path ? 1 : (size_t)(slash - path));
    if (!parent)
        return -ENOMEM;
    return path_open_beneath(at, parent, O_PATH | O_DIRECTORY, 0, false);
}

int path_remove_tree(int at, const char *path)
{
    const char *name;
    CLEANUP(fd_done) int parent = open_parent(at, path, &name);
    if (parent < 0)
        return parent;
    if (unlinkat(parent, name, 0) == 0)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return -errno;
    int top = open_to_empty(parent, name);
    if (top < 0)
        return top == -ENOTDIR ? -EPERM : top;
    int r = empty_top(top);
    if (r == 0 && unlinkat(parent, name, AT_REMOVEDIR) < 0)
        r = -errno;
    return r;
}

int path_make_dirs(int at, const char *path, mode_t mode)
{
    bool is_absolute = path[0] == '/';
    if (is_absolute && at != AT_FDCWD)
        return -EXDEV;
    CLEANUP(fd_done)
    int dir = path_open_beneath(at, is_absolute ? "/" : ".", O_PATH | O_DIRECTORY, 0, false);
    if (dir < 0)
        return dir;
    for (const char *p = path + strspn(path, "/"); *p; p += strspn(p, "/")) {
        char name[NAME_MAX + 1];
        size_t n = strcspn(p, "/");
        if (n > NAME_MAX)
            return -ENAMETOOLONG;
        memcpy(name, p, n);
        name[n] = '\0';
        p += n;
        bool is_made = mkdirat(dir, name, mode) == 0;
        if (!is_made && errno != EEXIST && errno != EROFS && errno != EACCES && errno != EPERM)
            return -errno;
        int failed = is_made ? 0 : -errno;
        int next = path_open_beneath(dir, name, O_PATH | O_DIRECTORY, 0, false);
        if (next < 0) /* there was none, and it could not be made */
            return next == -ENOENT && failed ? failed : next;
        fd_close(dir);
        dir = next;
    }
    return 0;
}
