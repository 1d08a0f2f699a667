/* Runs in: runner. Reads: hostile. May block: files. */
#include "runner/replace.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/kernel.h"
#include "base/mem.h"
#include "base/path.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define TEMP_PREFIX ".cordon-"
#define TEMP_SUFFIX ".tmp"
#define TEMP_RANDOM 22 /* characters: 16 bytes in base64url */
#define TEMP_MAX    (sizeof(TEMP_PREFIX) + TEMP_RANDOM + sizeof(TEMP_SUFFIX))
#define SWEEP_MAX   50000 /* names looked at; a larger folder keeps its leftovers */

static bool is_temp_name(const char *name)
{
    size_t n = strlen(name), fixed = strlen(TEMP_PREFIX) + strlen(TEMP_SUFFIX);
    return n == fixed + TEMP_RANDOM && str_starts(name, TEMP_PREFIX) &&
           strcmp(name + n - strlen(TEMP_SUFFIX), TEMP_SUFFIX) == 0;
}

static void sweep_one(int dir, const char *name)
{
    CLEANUP(fd_done) int fd = path_open_beneath(dir, name, O_RDONLY | O_NONBLOCK, 0, false);
    struct stat st;
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
        flock(fd, LOCK_EX | LOCK_NB) == 0)
        (void)unlinkat(dir, name, 0);
}

static void sweep(int dir)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    if (!entries) {
        fd_close(fd);
        return;
    }
    const struct dirent *e;
    for (unsigned n = 0; n < SWEEP_MAX && (e = readdir(entries)); n++)
        if (is_temp_name(e->d_name))
            sweep_one(dir, e->d_name);
    (void)closedir(entries);
}

/* A locked temporary file. A sweeper may see it before the lock is there: then it is another
 * name's turn. */
static int make_temp(int dir, char name[static TEMP_MAX])
{
    for (int tries = 0; tries < 8; tries++) {
        unsigned char raw[16];
        char text[TEMP_RANDOM + 1];
        int r = random_bytes(raw, sizeof(raw));
        if (r < 0)
            return r;
        base64url(raw, sizeof(raw), text);
        (void)snprintf(name, TEMP_MAX, TEMP_PREFIX "%s" TEMP_SUFFIX, text);
        int fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
            return -errno;
        struct stat st;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &st) == 0 && st.st_nlink > 0)
            return fd;
        (void)unlinkat(dir, name, 0);
        fd_close(fd);
    }
    return -EAGAIN;
}

static bool is_unchanged(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static int check_known(const struct replacing *rp)
{
    struct stat now;
    if (!rp->known)
        return 0;
    int r = place_stat(rp->place, &now);
    if (r == -ENOENT || (r == 0 && !is_unchanged(&now, rp->known)))
        return -ESTALE;
    return r;
}

static int give_name(const struct replacing *rp, const char *temp)
{
    int dir = rp->place->dir;
    const char *name = rp->place->name;
    if (!rp->must_be_new)
        return renameat(dir, temp, dir, name) < 0 ? -errno : 0;
    if (kernel_rename_new(dir, temp, dir, name) == 0)
        return 0;
    if (errno != EINVAL) /* a file system without that flag */
        return -errno;
    if (linkat(dir, temp, dir, name, 0) < 0)
        return -errno;
    (void)unlinkat(dir, temp, 0);
    return 0;
}

static int fill_and_name(const struct replacing *rp, int fd, const char *temp)
{
    int r = rp->fill(fd, rp->arg);
    if (r == 0 && fchmod(fd, rp->mode) < 0)
        r = -errno;
    if (r == 0 && fsync(fd) < 0)
        r = -errno;
    if (r == 0)
        r = check_known(rp);
    return r < 0 ? r : give_name(rp, temp);
}

/* The rename itself is made durable; where a folder cannot be synced there is nothing to do. */
static void sync_folder(int dir)
{
    CLEANUP(fd_done) int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0)
        (void)fsync(fd);
}

static int write_in_place(const struct replacing *rp)
{
    CLEANUP(fd_done) int fd = place_open_entry(rp->place, O_WRONLY | O_NONBLOCK);
    if (fd < 0)
        return fd;
    int r = check_known(rp);
    if (r == 0)
        r = rp->fill(fd, rp->arg);
    off_t end = r == 0 ? lseek(fd, 0, SEEK_CUR) : -1;
    if (r == 0 && (end < 0 || ftruncate(fd, end) < 0 || fsync(fd) < 0))
        r = -errno;
    return r;
}

static bool has_no_folder(const struct replacing *rp, int r)
{
    return rp->place->is_root && !rp->must_be_new &&
           (r == -EROFS || r == -EACCES || r == -EPERM || r == -EBUSY);
}

int replace_file(const struct replacing *rp)
{
    char temp[TEMP_MAX];
    sweep(rp->place->dir);
    CLEANUP(fd_done) int fd = make_temp(rp->place->dir, temp);
    int r = fd < 0 ? fd : fill_and_name(rp, fd, temp);
    if (fd >= 0 && r < 0)
        (void)unlinkat(rp->place->dir, temp, 0);
    if (r == 0)
        sync_folder(rp->place->dir);
    return has_no_folder(rp, r) ? write_in_place(rp) : r;
}
