/* Runs in: daemon. Reads: trusted (the person's environment). May block: yes (at start). */
#include "daemon/places.h"
#include "base/fd.h"
#include "base/home.h"
#include "base/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SOCKET_NAME "api.sock"

static int no_memory(struct err *err)
{
    return err_set(err, -ENOMEM, "internal", NULL, "out of memory");
}

/* ---- Names ------------------------------------------------------------------------------------
 */

static char *below(const char *dir, const char *name)
{
    char *ret = NULL;
    return asprintf(&ret, "%s/%s", dir, name) < 0 ? NULL : ret;
}

/* ---- Folders ----------------------------------------------------------------------------------
 */

/* DIR is a folder of ours that nobody else can write to; its mode is made 0700. */
static int check_ours(const char *dir, struct err *err)
{
    struct stat st;
    CLEANUP(fd_done) int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_set(err, -errno, "internal", "it must be a folder, and no link",
                       "%s cannot be opened: %s", dir, strerror(errno));
    if (fstat(fd, &st) < 0 || st.st_uid != geteuid())
        return err_set(err, -EPERM, "internal", "run Cordon as its owner, or remove it",
                       "%s belongs to somebody else", dir);
    if ((st.st_mode & 077) && fchmod(fd, 0700) < 0)
        return err_set(err, -errno, "internal", "make it mode 0700", "%s: %s", dir,
                       strerror(errno));
    /* A file system without modes takes the call and keeps the mode. */
    if (fstat(fd, &st) < 0 || (st.st_mode & 077))
        return err_set(err, -EPERM, "internal",
                       "set XDG_STATE_HOME to a folder on a file system that keeps modes",
                       "%s cannot be closed to others", dir);
    return 0;
}

/* mkdir -p. A link on the way is the person's own (a moved home); the last one must be none. */
static int make_ours(const char *dir, struct err *err)
{
    char path[PATH_MAX];
    if ((size_t)snprintf(path, sizeof path, "%s", dir) >= sizeof path)
        return err_set(err, -ENAMETOOLONG, "internal", NULL, "%s is too long", dir);
    for (char *at = strchr(path + 1, '/');; at = strchr(at + 1, '/')) {
        if (at)
            *at = '\0';
        if (mkdir(path, 0700) < 0 && errno != EEXIST && errno != EROFS && errno != EACCES)
            return err_set(err, -errno, "internal", "set HOME to a folder of yours",
                           "%s cannot be made: %s", path, strerror(errno));
        if (!at)
            break;
        *at = '/';
    }
    return check_ours(dir, err);
}

/* ---- Locks ------------------------------------------------------------------------------------
 */

/* A file's existence says nothing, its lock does. */
static int take_lock(const char *dir, struct err *err)
{
    CLEANUP(freep) char *path = below(dir, "lock");
    if (!path)
        return no_memory(err);
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set(err, -errno, "internal", "remove it; it must be a regular file of yours",
                       "%s cannot be opened: %s", path, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        int r = errno == EWOULDBLOCK ? -EBUSY : -errno;
        fd_close(fd);
        return err_set(err, r, "internal", "cordon stop",
                       r == -EBUSY ? "another daemon runs on %s" : "%s cannot be locked", dir);
    }
    return fd;
}

/* ---- The socket -------------------------------------------------------------------------------
 */

static bool fits(const char *dir)
{
    return strlen(dir) + sizeof SOCKET_NAME < sizeof((struct sockaddr_un *)NULL)->sun_path;
}

/* 1 = taken, 0 = not this one, negative = refused. */
static int try_run(struct places *p, char *take_dir, struct err *err)
{
    CLEANUP(freep) char *dir = take_dir;
    if (!dir)
        return no_memory(err);
    if (!fits(dir))
        return 0;
    int r = make_ours(dir, err);
    if (r < 0)
        return r;
    int lock = take_lock(dir, err);
    if (lock < 0)
        return lock;
    p->run_lock = lock;
    p->run = TAKE(dir);
    return 1;
}

/* The first folder (base/home) that is short enough for a socket. The one of XDG_RUNTIME_DIR is
 * also passed over when it is not ours to use, or a daemon of another state folder holds it. */
static int choose_run(struct places *p, struct err *err)
{
    int r = 0;
    for (enum home_run i = 0; i < HOME_RUNS && r == 0; i++) {
        char *dir = NULL;
        r = home_run_folder(p->state, i, &dir);
        if (r >= 0)
            r = try_run(p, dir, i == HOME_RUN_XDG ? NULL : err);
        if (r < 0 && i == HOME_RUN_XDG)
            r = 0;
    }
    return r;
}

static int name_files(struct places *p, struct err *err)
{
    p->database = below(p->state, "cordon.db");
    p->spool = below(p->state, "spool");
    p->token = below(p->state, "token");
    p->notice = below(p->state, "server.json");
    p->notice_copy = below(p->run, "server.json");
    p->socket = below(p->run, SOCKET_NAME);
    if (!p->database || !p->spool || !p->token || !p->notice || !p->notice_copy || !p->socket)
        return no_memory(err);
    return make_ours(p->spool, err);
}

int places_open(struct places *ret, struct err *err)
{
    CLEANUP(freep) char *home = home_find();
    *ret = (struct places){.lock = -1, .run_lock = -1};
    if (!home)
        return err_set(err, -ENOENT, "internal", "set HOME", "no home folder is known");
    ret->state = home_folder("XDG_STATE_HOME", home, ".local/state");
    ret->config = home_folder("XDG_CONFIG_HOME", home, ".config");
    ret->cache = home_folder("XDG_CACHE_HOME", home, ".cache");
    if (!ret->state || !ret->config || !ret->cache)
        return no_memory(err);
    int r = make_ours(ret->state, err);
    if (r < 0)
        return r;
    ret->lock = take_lock(ret->state, err);
    if (ret->lock < 0)
        return ret->lock;
    r = choose_run(ret, err);
    if (r < 0)
        return r;
    r = name_files(ret, err);
    if (r == 0) /* of a daemon that died: ours alone, as we hold the folder's lock */
        (void)unlink(ret->socket);
    return r;
}

int places_notice(const struct places *p, const char *json, struct err *err)
{
    int r = fd_write_file(AT_FDCWD, p->notice, json, strlen(json), 0600);
    if (r == 0)
        r = fd_write_file(AT_FDCWD, p->notice_copy, json, strlen(json), 0600);
    return r < 0 ? err_set(err, r, "disk_full", "free some space for the state folder",
                           "server.json cannot be written: %s", strerror(-r))
                 : 0;
}

void places_close(struct places *p)
{
    if (p->notice && p->lock >= 0)
        (void)unlink(p->notice);
    if (p->notice_copy && p->run_lock >= 0)
        (void)unlink(p->notice_copy);
    if (p->socket && p->run_lock >= 0)
        (void)unlink(p->socket);
    char **all[] = {&p->state, &p->config, &p->cache,  &p->run,    &p->database,
                    &p->spool, &p->token,  &p->socket, &p->notice, &p->notice_copy};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        free(*all[i]);
        *all[i] = NULL;
    }
    fd_done(&p->run_lock);
    fd_done(&p->lock);
}
