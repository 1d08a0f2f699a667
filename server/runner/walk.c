/* Runs in: runner. Reads: hostile. May block: files. */
#include "runner/walk.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int walk_names(int fd, struct strv *ret)
{
    int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = own < 0 ? NULL : fdopendir(own);
    if (!dir) {
        int failed = -errno;
        fd_close(own);
        return failed;
    }
    int r = 0;
    errno = 0;
    const struct dirent *e;
    while (r == 0 && (e = readdir(dir))) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        r = ret->n < WALK_NAMES_MAX ? strv_add(ret, e->d_name) : -E2BIG;
        errno = 0;
    }
    if (r == 0 && errno != 0)
        r = -errno;
    (void)closedir(dir);
    if (ret->n > 1)
        qsort(ret->items, ret->n, sizeof(*ret->items), compare_names);
    return r;
}

/* File systems whose files are no data. */
static bool is_of_the_kernel(int fd)
{
    struct statfs fs;
    if (fstatfs(fd, &fs) < 0)
        return true;
    return fs.f_type == PROC_SUPER_MAGIC || fs.f_type == SYSFS_MAGIC ||
           fs.f_type == DEVPTS_SUPER_MAGIC || fs.f_type == CGROUP2_SUPER_MAGIC ||
           fs.f_type == CGROUP_SUPER_MAGIC;
}

static bool is_late(struct walk *w)
{
    if (w->deadline && clock_now_ms() >= w->deadline)
        w->is_out_of_time = true;
    return w->is_out_of_time;
}

static int walk_folder(struct walk *w, int fd, const char *path, unsigned depth);

static int walk_entry(struct walk *w, int dir, const char *name, const char *parent, unsigned depth)
{
    CLEANUP(str_done) struct str path = {0};
    struct stat st;
    if (is_late(w))
        return 1;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0; /* gone */
    bool has_slash = parent[0] == '\0' || parent[strlen(parent) - 1] == '/';
    if (str_printf(&path, "%s%s%s", parent, has_slash ? "" : "/", name) < 0)
        return -ENOMEM;
    int r = w->entry(w, dir, name, path.data, S_ISDIR(st.st_mode));
    if (r != 0 || !S_ISDIR(st.st_mode) || depth >= WALK_DEPTH_MAX)
        return r;
    CLEANUP(fd_done) int fd = path_open_beneath(dir, name, O_RDONLY | O_DIRECTORY, 0, false);
    return fd < 0 || is_of_the_kernel(fd) ? 0 : walk_folder(w, fd, path.data, depth + 1);
}

static int walk_folder(struct walk *w, int fd, const char *path, unsigned depth)
{
    if (w->enter && !w->enter(w, fd, path))
        return 0;
    CLEANUP(strv_done) struct strv names = {0};
    int r = walk_names(fd, &names);
    if (r != -ENOMEM) /* a folder that is too large or unreadable is passed over */
        r = 0;
    for (size_t i = 0; i < names.n && r == 0; i++)
        r = walk_entry(w, fd, names.items[i], path, depth);
    if (w->leave)
        w->leave(w, path);
    return r;
}

int walk_tree(struct walk *w, int fd, const char *path)
{
    int r = walk_folder(w, fd, path, 0);
    return r < 0 ? r : 0;
}
