/* Runs in: daemon. Reads: hostile (the tree a session left, names in /tmp). May block: yes. */
#include "sandbox/private.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/str.h"
#include "sandbox/owner.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PLACE       "/tmp"
#define RANDOM_TEXT 22 /* 128 bits in base64url */
#define TRIES       8
#define YOUNG_S     60 /* without a lock it may be one that is being made */

static const struct {
    const char *name;
    mode_t mode;
} FOLDERS[] = {{"home", 0700}, {"tmp", 01777}, {"cache", 0700}, {"view", 0700}};

/* /tmp, when nobody else can rename what we make there: it is root's or ours, and sticky when
 * others may write to it. */
static int place_open(struct err *err)
{
    struct stat st;
    CLEANUP(fd_done) int at = open(PLACE, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (at < 0 || fstat(at, &st) < 0)
        return err_set(err, -errno, "session_refused", "make /tmp a folder with mode 1777",
                       "the private folder cannot be made: " PLACE ": %s", strerror(errno));
    bool is_ours = st.st_uid == geteuid() || owner_is_system(st.st_uid);
    if (!is_ours || (st.st_mode & 022 && !(st.st_mode & S_ISVTX)))
        return err_set(err, -EPERM, "session_refused", "chown root /tmp; chmod 1777 /tmp",
                       PLACE " can be changed by other users");
    int fd = at;
    at = -1;
    return fd;
}

/* A new folder in AT, locked; its name in NAME. */
static int folder_new(int at, char *name, size_t size)
{
    for (int i = 0; i < TRIES; i++) {
        unsigned char random[16];
        char text[RANDOM_TEXT + 1];
        int r = random_bytes(random, sizeof random);
        if (r < 0)
            return r;
        base64url(random, sizeof random, text);
        snprintf(name, size, PRIVATE_PREFIX "%s", text);
        if (mkdirat(at, name, 0700) < 0) {
            if (errno == EEXIST)
                continue;
            return -errno;
        }
        CLEANUP(fd_done) int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 || fchmod(fd, 0700) < 0)
            return -errno;
        int taken = fd;
        fd = -1;
        return taken;
    }
    return -EEXIST;
}

int private_new(char **ret_path, int *ret_lock_fd, struct err *err)
{
    char name[sizeof PRIVATE_PREFIX + RANDOM_TEXT];
    CLEANUP(freep) char *path = NULL;
    CLEANUP(fd_done) int at = place_open(err);
    if (at < 0)
        return at;
    CLEANUP(fd_done) int fd = folder_new(at, name, sizeof name);
    int r = fd < 0 ? fd : path_join(PLACE, name, &path);
    for (size_t i = 0; i < ARRAY_LEN(FOLDERS) && r >= 0; i++)
        if (mkdirat(fd, FOLDERS[i].name, 0700) < 0 ||
            fchmodat(fd, FOLDERS[i].name, FOLDERS[i].mode, 0) < 0)
            r = -errno;
    if (r < 0) {
        if (fd >= 0)
            (void)path_remove_tree(at, name);
        return err_set(err, r, "session_refused", "free space or inodes in /tmp",
                       "the private folder cannot be made in " PLACE ": %s", strerror(-r));
    }
    *ret_path = TAKE(path);
    *ret_lock_fd = fd;
    fd = -1;
    return 0;
}

static bool name_is_ours(const char *name)
{
    size_t prefix = sizeof PRIVATE_PREFIX - 1;
    return strncmp(name, PRIVATE_PREFIX, prefix) == 0 && strlen(name + prefix) == RANDOM_TEXT &&
           strspn(name + prefix,
                  "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") ==
               RANDOM_TEXT;
}

int private_remove(const char *path)
{
    if (strncmp(path, PLACE "/", sizeof PLACE) != 0 || !name_is_ours(path + sizeof PLACE))
        return -EINVAL;
    CLEANUP(fd_done) int at = open(PLACE, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return at < 0 ? -errno : path_remove_tree(at, path + sizeof PLACE);
}

/* Removes NAME in AT when it is a private folder of ours that nobody holds: 1, else 0. */
static int sweep_one(int at, const char *name)
{
    struct stat st;
    CLEANUP(fd_done) int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & 07777) != 0700)
        return 0;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return 0;
    /* Between mkdir and flock a new one is unlocked and empty. */
    if (faccessat(fd, "view", F_OK, AT_SYMLINK_NOFOLLOW) < 0 && time(NULL) - st.st_mtime < YOUNG_S)
        return 0;
    return path_remove_tree(at, name) < 0 ? 0 : 1;
}

int private_sweep(void)
{
    int n = 0;
    DIR *d = opendir(PLACE);
    if (!d)
        return -errno;
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (name_is_ours(e->d_name))
            n += sweep_one(dirfd(d), e->d_name);
    closedir(d);
    return n;
}
