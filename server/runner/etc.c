/* Runs in: runner (stage). Reads: trusted. May block: yes. */
#include "runner/etc.h"
#include "base/fd.h"
#include "base/kernel.h"
#include "base/mem.h"
#include "base/path.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static int fail(struct err *err, int r, const char *step, const char *path)
{
    return err_set(err, r, "view", NULL, "%s: %s", step, path);
}

/* A file of ours; MODE whatever the umask is (the stage clears it). */
static int file_make(int at, const char *name, const char *data, size_t len, mode_t mode)
{
    CLEANUP(fd_done) int fd = openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    return fd < 0 ? -errno : fd_write_all(fd, data, len);
}

/* A new folder in the mask folder, for one layer. */
static int mask_dir(struct joins *j)
{
    char name[24];
    snprintf(name, sizeof name, "layer%u", j->n_masks++);
    if (mkdirat(j->mask, name, 0755) < 0)
        return -errno;
    int fd = openat(j->mask, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* ---- The layer ------------------------------------------------------------------------------- */

/* Hides the name REL of the folder below (overlayfs.rst, "whiteouts and opaque directories"). */
static int whiteout_make(int layer, const char *rel)
{
    return mknodat(layer, rel, S_IFCHR, makedev(0, 0)) < 0 && errno != EEXIST ? -errno : 0;
}

static bool is_whiteout(int layer, const char *rel)
{
    struct stat st;
    return fstatat(layer, rel, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISCHR(st.st_mode);
}

static bool is_folder(int at, const char *rel)
{
    struct stat st;
    return fstatat(at, rel, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

/* Puts the name REL (below the overlay) into LAYER. A folder on the way that the host lacks is
 * itself hidden, so that nothing shows that is not there and what comes there later stays hidden;
 * one that it has is made with the host's mode, as the upper folder's attributes win. */
static int layer_put(int layer, int lower, const char *rel, const struct join *row)
{
    char part[4096];
    const char *end = rel;
    for (;;) {
        size_t n = strcspn(end, "/");
        end += n;
        if (*end == '\0')
            break;
        n = (size_t)(end - rel);
        if (n >= sizeof part)
            return -ENAMETOOLONG;
        memcpy(part, rel, n);
        part[n] = '\0';
        struct stat st;
        bool is_there = fstatat(lower, part, &st, AT_SYMLINK_NOFOLLOW) == 0;
        if (is_there && !S_ISDIR(st.st_mode))
            return row->kind == JOIN_HIDE ? 0 : -ENOTDIR; /* a file or link: nothing below it */
        if (row->kind == JOIN_HIDE && is_whiteout(layer, part))
            return 0; /* hidden with what it lies in */
        if (!is_there && row->kind == JOIN_HIDE && !is_folder(layer, part))
            return whiteout_make(layer, part);
        if (mkdirat(layer, part, is_there ? st.st_mode & 0777 : 0755) < 0 && errno != EEXIST)
            return -errno;
        end++;
    }
    if (row->kind == JOIN_HIDE)
        return whiteout_make(layer, rel);
    return file_make(layer, rel, row->data, row->data_len, row->mode ? row->mode : 0444);
}

/* A read-only overlay of LAYER above LOWER; a mount's descriptor or a negative errno. */
static int overlay_make(int layer, int lower)
{
    char dirs[96];
    snprintf(dirs, sizeof dirs, "/proc/self/fd/%d:/proc/self/fd/%d", layer, lower);
    CLEANUP(fd_done) int fs = kernel_fsopen("overlay", K_FSOPEN_CLOEXEC);
    if (fs < 0)
        return -errno;
    if (kernel_fsconfig(fs, K_FSCONFIG_SET_STRING, "lowerdir", dirs) < 0 ||
        kernel_fsconfig(fs, K_FSCONFIG_SET_FLAG, "userxattr", NULL) < 0 ||
        kernel_fsconfig(fs, K_FSCONFIG_CMD_CREATE, NULL, NULL) < 0)
        return -errno;
    int tree = kernel_fsmount(fs, K_FSMOUNT_CLOEXEC, K_ATTR_NOSUID | K_ATTR_NODEV | K_ATTR_RDONLY);
    return tree < 0 ? -errno : tree;
}

/* The name of ROW below ETC, or NULL. */
static const char *name_below(const struct join *etc, const struct join *row)
{
    size_t n = strlen(etc->target);
    return path_is_under(row->target, etc->target) && row->target[n] == '/' ? row->target + n + 1
                                                                            : NULL;
}

/* Covers first: a folder that one makes is not hidden by a name that lies in it too. Then what is
 * hidden, and last what is hidden below something hidden (sudoers.d, and an unreadable file in it):
 * the other way round the folder that holds the inner one would keep the outer one from being. */
static size_t turn_of(const struct join *row, const struct join *names, size_t n)
{
    if (row->kind == JOIN_COVER)
        return 0;
    for (size_t i = 0; i < n; i++)
        if (names[i].kind == JOIN_HIDE && strcmp(names[i].target, row->target) != 0 &&
            path_is_under(row->target, names[i].target))
            return 2;
    return 1;
}

/* The layer above LOWER, with the names in it: a folder's descriptor. */
static int layer_make(struct joins *j, const struct join *etc, int lower, const struct join *names,
                      size_t n, struct err *err)
{
    int layer = mask_dir(j);
    if (layer < 0)
        return fail(err, layer, "layer", etc->target);
    for (size_t i = 0; i < 3 * n; i++) {
        const struct join *row = &names[i % n];
        const char *rel = name_below(etc, row);
        if (turn_of(row, names, n) != i / n)
            continue;
        int r = rel ? layer_put(layer, lower, rel, row) : -EINVAL;
        if (r < 0) {
            close(layer);
            return fail(err, r, "name in a layer", row->target);
        }
    }
    return layer;
}

/* ---- Without overlayfs ----------------------------------------------------------------------- */

/* Mounts the mask NAME, read-only, on what is AT. */
static int mask_attach(struct joins *j, const char *name, int at)
{
    CLEANUP(fd_done) int source = openat(j->mask, name, O_PATH | O_CLOEXEC | O_NOFOLLOW);
    if (source < 0)
        return -errno;
    CLEANUP(fd_done) int tree = joins_clone(source, K_ATTR_RDONLY);
    return tree < 0 ? tree : joins_attach(tree, at);
}

/* A COVER whose name is a link (resolv.conf, most often): the file is made where the link leads
 * when that is in the view's own tmpfs, which has nothing of the host's there. */
static int cover_link(struct joins *j, const struct join *row, int at)
{
    char text[4096], *inside = NULL, *dir_end;
    ssize_t n = readlinkat(at, "", text, sizeof text - 1);
    if (n < 0)
        return -errno;
    text[n] = '\0';
    char dir[4096];
    snprintf(dir, sizeof dir, "%s", row->target);
    dir_end = strrchr(dir, '/');
    *dir_end = '\0';
    int r = path_join(dir, text, &inside);
    if (r < 0)
        return r;
    struct join made = *row;
    made.kind = JOIN_DATA;
    made.target = inside;
    r = joins_run(j, &made, 1, NULL);
    free(inside);
    return r == -EROFS || r == -EEXIST ? 0 : r; /* it is the host's: left as it is, read-only */
}

static int name_mask(struct joins *j, const struct join *row)
{
    char mask[24];
    CLEANUP(fd_done)
    int at = path_open_beneath(j->root, row->target + 1, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0, false);
    if (at == -ENOENT || at == -ENOTDIR || at == -ELOOP)
        return 0; /* nothing there to hide, and nothing can be made on the host */
    if (at < 0)
        return at;
    struct stat st;
    if (fstat(at, &st) < 0)
        return -errno;
    snprintf(mask, sizeof mask, "mask%u", j->n_masks++);
    if (S_ISLNK(st.st_mode))
        return row->kind == JOIN_COVER ? cover_link(j, row, at) : 0;
    int r;
    if (row->kind == JOIN_COVER)
        r = file_make(j->mask, mask, row->data, row->data_len, row->mode ? row->mode : 0444);
    else if (S_ISDIR(st.st_mode))
        r = mkdirat(j->mask, mask, 0) < 0 ? -errno : 0;
    else
        r = file_make(j->mask, mask, "", 0, 0);
    return r < 0 ? r : mask_attach(j, mask, at);
}

static int bind_join(struct joins *j, int lower, const struct join *names, size_t n, int target,
                     struct err *err)
{
    CLEANUP(fd_done) int tree = joins_clone(lower, K_ATTR_RDONLY);
    int r = tree < 0 ? tree : joins_attach(tree, target);
    for (size_t i = 0; i < n && r >= 0; i++) {
        r = name_mask(j, &names[i]);
        if (r < 0)
            return fail(err, r, names[i].kind == JOIN_HIDE ? "hide" : "cover", names[i].target);
    }
    return r;
}

int etc_join(struct joins *j, const struct join *etc, const struct join *names, size_t n,
             struct err *err)
{
    const char *name;
    CLEANUP(fd_done) int lower = joins_source(etc, err);
    if (joins_pass_over(etc, lower, err))
        return 0;
    if (lower < 0)
        return lower;
    CLEANUP(fd_done) int parent = joins_parent(j, etc->target, &name, err);
    if (parent < 0)
        return parent;
    if (mkdirat(parent, name, 0755) < 0 && errno != EEXIST)
        return fail(err, -errno, "mount point", etc->target);
    CLEANUP(fd_done)
    int target = openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (target < 0)
        return fail(err, -errno, "mount point", etc->target);
    CLEANUP(fd_done) int layer = layer_make(j, etc, lower, names, n, err);
    if (layer < 0)
        return layer;
    CLEANUP(fd_done) int tree = overlay_make(layer, lower);
    int r = tree < 0 ? bind_join(j, lower, names, n, target, err) : joins_attach(tree, target);
    return r < 0 ? fail(err, r, "layer", etc->target) : 0;
}
