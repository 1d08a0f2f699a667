/* Runs in: daemon, in a thread of the pool. Reads: names and sizes in the spool folder. May block:
 * yes. Shares nothing with the loop but the files. */
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include "store/spool.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DAY_MS INT64_C(86400000)

struct entry {
    char id[64];
    uint64_t bytes;
    int64_t latest_ms; /* when it was written last: its end is the last thing */
};

static void closedirp(DIR **dir)
{
    if (*dir)
        (void)closedir(*dir);
}

static DIR *dir_at(int at, const char *name)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir)
        fd_close(fd);
    return dir;
}

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static void entry_add_file(struct entry *e, const struct stat *sb)
{
    int64_t ms = (int64_t)sb->st_mtim.tv_sec * 1000 + sb->st_mtim.tv_nsec / 1000000;
    e->bytes += (uint64_t)sb->st_blocks * 512;
    if (ms > e->latest_ms)
        e->latest_ms = ms;
}

static int entry_read(int at, const char *name, struct entry *ret)
{
    CLEANUP(closedirp) DIR *dir = dir_at(at, name);
    if (!dir)
        return -errno;
    struct entry e = {0};
    struct stat sb;
    (void)memcpy(e.id, name, strlen(name) + 1);
    if (fstat(dirfd(dir), &sb) == 0)
        entry_add_file(&e, &sb);
    const struct dirent *d;
    while ((d = readdir(dir)))
        if (!is_dots(d->d_name) && fstatat(dirfd(dir), d->d_name, &sb, AT_SYMLINK_NOFOLLOW) == 0)
            entry_add_file(&e, &sb);
    *ret = e;
    return 0;
}

static int by_end(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->latest_ms != y->latest_ms)
        return x->latest_ms < y->latest_ms ? -1 : 1;
    return strcmp(x->id, y->id);
}

/* All spools, the one that ended first in front; an id would say when it began. */
static int entries_read(const char *path, struct entry **ret, size_t *ret_n)
{
    CLEANUP(closedirp) DIR *dir = dir_at(AT_FDCWD, path);
    if (!dir)
        return errno == ENOENT ? 0 : -errno;
    CLEANUP(freep) struct entry *list = NULL;
    size_t n = 0, cap = 0;
    const struct dirent *d;
    while ((d = readdir(dir))) {
        if (d->d_name[0] == '.' || strlen(d->d_name) >= sizeof list->id)
            continue;
        if (n == cap) {
            cap = cap ? 2 * cap : 64;
            struct entry *more = realloc(list, cap * sizeof *more);
            if (!more)
                return -ENOMEM;
            list = more;
        }
        if (entry_read(dirfd(dir), d->d_name, &list[n]) == 0)
            n++;
    }
    if (n > 1)
        qsort(list, n, sizeof *list, by_end);
    *ret = TAKE(list);
    *ret_n = n;
    return 0;
}

int spool_delete(const char *dir, const char *id)
{
    if (id[0] == '\0' || id[0] == '.' || strchr(id, '/'))
        return -ENOENT;
    CLEANUP(fd_done) int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : path_remove_tree(fd, id);
}

int spool_retain(const char *dir, uint64_t bytes, unsigned days,
                 bool (*keep)(const char *id, void *arg), void *arg)
{
    CLEANUP(freep) struct entry *list = NULL;
    size_t n = 0;
    int r = entries_read(dir, &list, &n), gone = 0;
    uint64_t total = 0;
    int64_t oldest = clock_wall_ms() - (int64_t)days * DAY_MS;
    for (size_t i = 0; i < n; i++)
        total += list[i].bytes;
    for (size_t i = 0; r == 0 && i < n; i++) {
        bool must_go = total > bytes || list[i].latest_ms < oldest;
        if (!must_go || (keep && keep(list[i].id, arg)))
            continue;
        if (spool_delete(dir, list[i].id) == 0) {
            total -= list[i].bytes;
            gone++;
        }
    }
    return r < 0 ? r : gone;
}
