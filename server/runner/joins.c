/* Runs in: runner (stage). Reads: trusted (the daemon's order), paths of hostile folders. May
 * block: yes. */
#include "runner/joins.h"
#include "base/fd.h"
#include "base/kernel.h"
#include "base/mem.h"
#include "base/path.h"
#include "runner/etc.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Enough for names, links, a few small files of ours and the layers; nothing else is written. */
#define VIEW_SIZE   "8m"
#define VIEW_INODES "16384"

static int fail(struct err *err, int r, const char *step, const char *path)
{
    return err_set(err, r, "view", NULL, "%s: %s", step, path);
}

/* ---- Mounts on descriptors ------------------------------------------------------------------- */

static int tmpfs_make(void)
{
    CLEANUP(fd_done) int fs = kernel_fsopen("tmpfs", K_FSOPEN_CLOEXEC);
    if (fs < 0)
        return -errno;
    if (kernel_fsconfig(fs, K_FSCONFIG_SET_STRING, "mode", "0755") < 0 ||
        kernel_fsconfig(fs, K_FSCONFIG_SET_STRING, "size", VIEW_SIZE) < 0 ||
        kernel_fsconfig(fs, K_FSCONFIG_SET_STRING, "nr_inodes", VIEW_INODES) < 0 ||
        kernel_fsconfig(fs, K_FSCONFIG_CMD_CREATE, NULL, NULL) < 0)
        return -errno;
    int tree = kernel_fsmount(fs, K_FSMOUNT_CLOEXEC, K_ATTR_NOSUID | K_ATTR_NODEV);
    return tree < 0 ? -errno : tree;
}

int joins_attach(int tree, int target)
{
    return kernel_move_mount(tree, target) < 0 ? -errno : 0;
}

int joins_clone(int source, uint64_t attributes)
{
    struct kernel_mount_attr attr = {.attr_set = attributes | K_ATTR_NOSUID | K_ATTR_NODEV};
    /* Recursive always: without it a folder with mounts below is EINVAL in a user namespace. */
    int tree = kernel_tree_clone(source);
    if (tree < 0)
        return -errno;
    if (kernel_tree_setattr(tree, &attr) < 0) {
        int r = -errno;
        close(tree);
        return r;
    }
    return tree;
}

int joins_begin(struct joins *j, const char *root, struct err *err)
{
    *j = (struct joins){.root = -1, .mask = -1, .private_dir = root};
    const char *slash = strrchr(root, '/');
    j->private_len = slash ? (size_t)(slash - root) : 0;
    if (j->private_len == 0)
        return fail(err, -EINVAL, "place of the view", root);
    CLEANUP(fd_done)
    int at = path_open_beneath(AT_FDCWD, root, O_PATH | O_DIRECTORY | O_CLOEXEC, 0, false);
    if (at < 0)
        return fail(err, at, "place of the view", root);
    CLEANUP(fd_done) int tree = tmpfs_make();
    if (tree < 0)
        return fail(err, tree, "tmpfs of the view", root);
    int r = joins_attach(tree, at);
    if (r < 0)
        return fail(err, r, "tmpfs of the view", root);
    if (mkdirat(tree, "root", 0755) < 0 || mkdirat(tree, "mask", 0755) < 0)
        return fail(err, -errno, "folders of the view", root);
    j->root = openat(tree, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
    j->mask = openat(tree, "mask", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return j->root < 0 || j->mask < 0 ? fail(err, -errno, "folders of the view", root) : 0;
}

void joins_done(struct joins *j)
{
    fd_close(j->root);
    fd_close(j->mask);
    free(j->sealed);
    *j = (struct joins){.root = -1, .mask = -1};
}

/* ---- Targets --------------------------------------------------------------------------------- */

static bool is_private(const struct joins *j, const char *source)
{
    return strncmp(source, j->private_dir, j->private_len) == 0 && source[j->private_len] == '/';
}

static int seal(struct joins *j, const char *target)
{
    if (j->n_sealed == j->cap_sealed) {
        size_t cap = j->cap_sealed ? 2 * j->cap_sealed : 32;
        const char **grown = realloc(j->sealed, cap * sizeof *grown);
        if (!grown)
            return -ENOMEM;
        j->sealed = grown;
        j->cap_sealed = cap;
    }
    j->sealed[j->n_sealed++] = target;
    return 0;
}

/* May something be made at TARGET? Not when it lies in a folder of the host. */
static bool may_make(const struct joins *j, const char *target)
{
    size_t deepest = 0;
    for (size_t i = 0; i < j->n_sealed; i++)
        if (path_is_under(target, j->sealed[i]) && strcmp(target, j->sealed[i]) != 0)
            deepest = 1;
    return deepest == 0;
}

/* What is at TARGET in the view (O_PATH, also a link itself), or a negative errno. */
static int target_open(const struct joins *j, const char *target)
{
    return path_open_beneath(j->root, target[1] ? target + 1 : ".", O_PATH | O_NOFOLLOW | O_CLOEXEC,
                             0, false);
}

int joins_parent(struct joins *j, const char *target, const char **ret_name, struct err *err)
{
    char dir[4096];
    const char *name = strrchr(target, '/');
    size_t n = name ? (size_t)(name - target) : 0;
    if (!name || target[0] != '/' || name[1] == '\0' || n >= sizeof dir)
        return fail(err, -EINVAL, "target", target);
    memcpy(dir, target, n);
    dir[n] = '\0';
    *ret_name = name + 1;
    if (n == 0) {
        int fd = openat(j->root, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
        return fd < 0 ? fail(err, -errno, "root of the view", target) : fd;
    }
    int fd = path_open_beneath(j->root, dir + 1, O_PATH | O_DIRECTORY | O_CLOEXEC, 0, false);
    if (fd == -ENOENT) {
        if (!may_make(j, dir))
            return fail(err, -EROFS, "mount point missing in a granted folder", target);
        int r = path_make_dirs(j->root, dir + 1, 0755);
        if (r < 0)
            return fail(err, r, "folders on the way", target);
        fd = path_open_beneath(j->root, dir + 1, O_PATH | O_DIRECTORY | O_CLOEXEC, 0, false);
    }
    return fd < 0 ? fail(err, fd, "folders on the way", target) : fd;
}

/* A descriptor of the mount point TARGET, made when it is missing: a folder or an empty file. */
static int target_make(struct joins *j, const char *target, bool is_file, struct err *err)
{
    const char *name;
    int fd = target_open(j, target);
    if (fd >= 0)
        return fd;
    if (fd != -ENOENT)
        return fail(err, fd, "mount point", target);
    if (!may_make(j, target))
        return fail(err, -EROFS, "mount point missing in a granted folder", target);
    CLEANUP(fd_done) int parent = joins_parent(j, target, &name, err);
    if (parent < 0)
        return parent;
    int r = is_file ? mknodat(parent, name, S_IFREG | 0444, 0) : mkdirat(parent, name, 0755);
    if (r < 0)
        return fail(err, -errno, "mount point", target);
    fd = target_open(j, target);
    return fd < 0 ? fail(err, fd, "mount point", target) : fd;
}

/* ---- The rows -------------------------------------------------------------------------------- */

int joins_source(const struct join *row, struct err *err)
{
    int flags = O_PATH | O_CLOEXEC | (row->flags & JOIN_FILE ? O_NOFOLLOW : O_DIRECTORY);
    int fd = path_open_beneath(AT_FDCWD, row->source, flags, 0, false);
    if (fd < 0)
        return fail(err, fd, "open", row->source);
    struct stat st;
    if (fstat(fd, &st) < 0 || (row->flags & JOIN_FILE && S_ISDIR(st.st_mode))) {
        close(fd);
        return fail(err, -EISDIR, "open", row->source);
    }
    if (row->flags & JOIN_IDENTITY && (st.st_dev != row->dev || st.st_ino != row->ino)) {
        close(fd);
        return fail(err, -ESTALE, "replaced since it was granted", row->source);
    }
    return fd;
}

/* A link is not followed: what it would lead to is then simply absent inside. */
bool joins_pass_over(const struct join *row, int r, struct err *err)
{
    if (!(row->flags & JOIN_OPTIONAL) ||
        (r != -ENOENT && r != -ENOTDIR && r != -ELOOP && r != -EACCES))
        return false;
    err_clear(err);
    return true;
}

static int run_bind(struct joins *j, const struct join *row, struct err *err)
{
    bool is_pin = row->flags & JOIN_PIN;
    bool is_file = row->flags & JOIN_FILE;
    CLEANUP(fd_done) int source = is_pin ? target_open(j, row->target) : joins_source(row, err);
    if (joins_pass_over(row, source, err))
        return 0;
    if (source < 0)
        return is_pin ? fail(err, source, "pin", row->target) : source;
    CLEANUP(fd_done)
    int tree = joins_clone(source, row->flags & JOIN_READ_ONLY ? K_ATTR_RDONLY : 0);
    if (tree < 0)
        return fail(err, tree, "clone", is_pin ? row->target : row->source);
    CLEANUP(fd_done) int target = target_make(j, row->target, is_file, err);
    if (target < 0)
        return target;
    int r = joins_attach(tree, target);
    if (r < 0)
        return fail(err, r, "mount", row->target);
    return is_pin || is_private(j, row->source) ? 0 : seal(j, row->target);
}

static int run_dir(struct joins *j, const struct join *row, struct err *err)
{
    const char *name;
    CLEANUP(fd_done) int there = target_open(j, row->target);
    if (there >= 0)
        return 0;
    if (!may_make(j, row->target))
        return fail(err, -EROFS, "folder missing in a granted folder", row->target);
    CLEANUP(fd_done) int parent = joins_parent(j, row->target, &name, err);
    if (parent < 0)
        return parent;
    if (mkdirat(parent, name, row->mode) < 0)
        return fail(err, -errno, "folder", row->target);
    return 0;
}

static int run_link(struct joins *j, const struct join *row, struct err *err)
{
    const char *name;
    if (!may_make(j, row->target))
        return fail(err, -EROFS, "link in a granted folder", row->target);
    CLEANUP(fd_done) int parent = joins_parent(j, row->target, &name, err);
    if (parent < 0)
        return parent;
    return symlinkat(row->source, parent, name) < 0 ? fail(err, -errno, "link", row->target) : 0;
}

static int run_data(struct joins *j, const struct join *row, struct err *err)
{
    const char *name;
    if (!may_make(j, row->target))
        return fail(err, -EROFS, "file in a granted folder", row->target);
    CLEANUP(fd_done) int parent = joins_parent(j, row->target, &name, err);
    if (parent < 0)
        return parent;
    CLEANUP(fd_done)
    int fd =
        openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, row->mode ? row->mode : 0444);
    int r = fd < 0 ? -errno : fd_write_all(fd, row->data, row->data_len);
    return r < 0 ? fail(err, r, "file", row->target) : 0;
}

int joins_run(struct joins *j, const struct join *rows, size_t n, struct err *err)
{
    int r = 0;
    for (size_t i = 0; i < n && r >= 0; i++) {
        const struct join *row = &rows[i];
        size_t names = 0;
        switch (row->kind) {
        case JOIN_DIR:
            r = run_dir(j, row, err);
            break;
        case JOIN_BIND:
            r = run_bind(j, row, err);
            break;
        case JOIN_LINK:
            r = run_link(j, row, err);
            break;
        case JOIN_DATA:
            r = run_data(j, row, err);
            break;
        case JOIN_ETC:
            while (i + 1 + names < n && (rows[i + 1 + names].kind == JOIN_HIDE ||
                                         rows[i + 1 + names].kind == JOIN_COVER))
                names++;
            r = etc_join(j, row, row + 1, names, err);
            if (r >= 0)
                r = seal(j, row->target);
            i += names;
            break;
        case JOIN_HIDE:
        case JOIN_COVER:
            r = fail(err, -EBADMSG, "name below no layer", row->target);
            break;
        }
    }
    return r;
}
