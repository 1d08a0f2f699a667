/* Runs in: runner. Reads: hostile. May block: files. */
#include "runner/place.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static char *parent_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

/* The deepest part of PATH that exists is resolved, the rest is kept as it is. */
static int resolve_existing(const char *path, char **ret)
{
    int r = path_resolve(path, ret);
    if (r != -ENOENT || path[1] == '\0')
        return r;
    CLEANUP(freep) char *parent = parent_of(path), *resolved = NULL;
    if (!parent)
        return -ENOMEM;
    r = resolve_existing(parent, &resolved);
    return r < 0 ? r : path_join(resolved, path_last(path), ret);
}

static int resolve(const char *path, bool follow, char **ret)
{
    if (follow || path[1] == '\0')
        return resolve_existing(path, ret);
    CLEANUP(freep) char *parent = parent_of(path), *resolved = NULL;
    if (!parent)
        return -ENOMEM;
    int r = resolve_existing(parent, &resolved);
    return r < 0 ? r : path_join(resolved, path_last(path), ret);
}

/* The most specific root that holds PATH; of two that are equal the one that allows less. */
static const char *find_root(const struct strv *roots, const char *path)
{
    const char *best = NULL;
    for (size_t i = 0; i < roots->n; i++) {
        const char *root = roots->items[i];
        if (!path_is_under(path, root + 3))
            continue;
        size_t n = strlen(root), n_best = best ? strlen(best) : 0;
        if (n > n_best || (n == n_best && str_starts(root, "ro:")))
            best = root;
    }
    return best;
}

static int open_parent(struct place *p)
{
    CLEANUP(freep) char *parent = parent_of(p->path);
    if (!parent)
        return -ENOMEM;
    const char *name = p->path[1] == '\0' ? "." : path_last(p->path);
    if (strlen(name) > NAME_MAX)
        return -ENAMETOOLONG;
    strcpy(p->name, name);
    p->dir = path_open_beneath(AT_FDCWD, parent, O_PATH | O_DIRECTORY, 0, false);
    return p->dir < 0 ? p->dir : 0;
}

int place_open(const struct strv *roots, const char *path, bool follow, struct place *ret,
               uint8_t *ret_layer)
{
    *ret = (struct place){.dir = -1, .is_writable = true};
    int r = resolve(path, follow, &ret->path);
    if (r < 0)
        return r;
    if (roots->n > 0) {
        const char *root = find_root(roots, ret->path);
        if (!root) {
            *ret_layer = TOOL_LAYER_ROOTS;
            return -EACCES;
        }
        ret->is_writable = str_starts(root, "rw:");
        ret->is_root = strcmp(root + 3, ret->path) == 0;
    }
    return open_parent(ret);
}

bool place_holds_read_only(const struct strv *roots, const struct place *p)
{
    for (size_t i = 0; i < roots->n; i++)
        if (str_starts(roots->items[i], "ro:") && path_is_under(roots->items[i] + 3, p->path))
            return true;
    return false;
}

void place_done(struct place *p)
{
    fd_done(&p->dir);
    free(p->path);
    p->path = NULL;
}

int place_stat(const struct place *p, struct stat *ret)
{
    return fstatat(p->dir, p->name, ret, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

int place_open_entry(const struct place *p, int flags)
{
    return path_open_beneath(p->dir, p->name, flags | O_NOFOLLOW, 0, false);
}

void place_describe(int dir, const char *name, const struct stat *st, bool is_writable,
                    struct tool_stat *ret)
{
    ret->type = S_ISREG(st->st_mode)   ? 'f'
                : S_ISDIR(st->st_mode) ? 'd'
                : S_ISLNK(st->st_mode) ? 'l'
                                       : 'o';
    ret->size = (uint64_t)st->st_size;
    ret->mode = st->st_mode & 07777;
    ret->mtime_ns = (uint64_t)st->st_mtim.tv_sec * 1000000000U + (uint64_t)st->st_mtim.tv_nsec;
    ret->ino = st->st_ino;
    if (is_writable && ret->type != 'l')
        is_writable = faccessat(dir, name, W_OK, AT_EACCESS | AT_SYMLINK_NOFOLLOW) == 0;
    ret->access = is_writable ? 'w' : 'r';
}
