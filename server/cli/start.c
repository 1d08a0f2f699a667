/* Runs in: cli. Reads: trusted. May block: yes (until the daemon is ready). */
#include "cli/start.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LOG_MAX   ((off_t)8 << 20) /* then it is moved to cordond.log.1 */
#define READY_MS  30000
#define ENDING_MS 15000
extern char **environ;

static int open_state(const struct places *places, struct err *err)
{
    int r = path_make_dirs(AT_FDCWD, places->state, 0700);
    if (r < 0)
        return err_set(err, r, "internal", "set HOME or XDG_STATE_HOME to a folder of yours",
                       "%s cannot be made: %s", places->state, strerror(-r));
    if ((r = home_is_ours(places->state)) < 0)
        return err_set(err, r, "internal", "make it yours, mode 0700",
                       "the state folder %s is not a folder that only you can write: %s",
                       places->state, strerror(-r));
    int fd = open(places->state, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd >= 0
               ? fd
               : err_set(err, -errno, "internal", NULL, "%s: %s", places->state, strerror(errno));
}

/* A regular file of ours, and nothing else: no link is followed, no FIFO waited for. */
static int open_ours(int state, const char *name, int flags)
{
    struct stat st;
    int fd = openat(state, name, flags | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid()) {
        fd_close(fd);
        return -EPERM;
    }
    if (st.st_mode & 077)
        (void)fchmod(fd, 0600);
    return fd;
}

static int open_log(int state)
{
    struct stat st;
    if (fstatat(state, "cordond.log", &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_size > LOG_MAX)
        (void)renameat(state, "cordond.log", state, "cordond.log.1");
    return open_ours(state, "cordond.log", O_WRONLY | O_APPEND);
}

/* The child: a session of its own, so that no terminal's signal reaches the daemon. */
static void exec_daemon(const char *file, char **argv, int log, int ready)
{
    (void)setsid();
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || chdir("/") < 0)
        _exit(127);
    /* READY and LOG may themselves be below 4: first out of the way, then onto their numbers. */
    ready = fcntl(ready, F_DUPFD_CLOEXEC, 10);
    log = fcntl(log, F_DUPFD_CLOEXEC, 10);
    null = fcntl(null, F_DUPFD_CLOEXEC, 10);
    if (ready < 0 || log < 0 || null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 ||
        dup2(log, 2) < 0 || dup2(ready, 3) < 0)
        _exit(127);
    (void)fd_cloexec_from(4);
    execve(file, argv, environ);
    _exit(127);
}

static void reset_signals(void)
{
    struct sigaction dfl = {.sa_handler = SIG_DFL};
    sigset_t none;
    for (int s = 1; s < 32; s++)
        (void)sigaction(s, &dfl, NULL);
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Waits for the daemon's one line; NUL-terminated in LINE. */
static int read_ready(int fd, char *line, size_t size)
{
    size_t n = 0;
    while (n + 1 < size) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int r = poll(&p, 1, READY_MS);
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0)
            return -ETIMEDOUT;
        ssize_t got = read(fd, line + n, size - 1 - n);
        if (got <= 0)
            break;
        n += (size_t)got;
        if (memchr(line, '\n', n))
            break;
    }
    line[n] = '\0';
    line[strcspn(line, "\n")] = '\0';
    return 0;
}

/* 0 = it is ready, 1 = another one has the state folder's lock. */
static int judge_ready(const char *line, const struct places *places, struct err *err)
{
    if (strcmp(line, "ready") == 0 || strcmp(line, "running") == 0)
        return line[1] == 'u';
    if (!str_starts(line, "failed "))
        return err_set(err, -ECHILD, "internal", "cordond.log in the state folder says why",
                       "cordond did not start (state folder %s)", places->state);
    const char *detail = line + 7, *tab = strchr(detail, '\t');
    char hint[400];
    snprintf(hint, sizeof hint, "%s", tab ? tab + 1 : "");
    return err_set(err, -ECHILD, "internal", hint, "cordond did not start: %.*s",
                   (int)strcspn(detail, "\t"), detail);
}

static int spawn_daemon(const struct places *places, int state, uint16_t port, struct err *err)
{
    CLEANUP(freep) char *file = NULL;
    char port_text[8], line[1200];
    int r = path_join(places->programs, "cordond", &file), pipe_fds[2];
    if (r < 0)
        return err_set(err, r, "internal", NULL, "out of memory");
    if (access(file, X_OK) < 0)
        return err_set(err, -errno, "internal", "install Cordon anew (packaging/up)",
                       "%s cannot be started: %s", file, strerror(errno));
    CLEANUP(fd_done) int log = open_log(state);
    if (log < 0)
        return err_set(err, log, "internal", "remove it; it must be a regular file of yours",
                       "%s/cordond.log cannot be opened: %s", places->state, strerror(-log));
    if ((r = fd_pipe(pipe_fds)) < 0)
        return err_set(err, r, "internal", NULL, "no pipe: %s", strerror(-r));
    snprintf(port_text, sizeof port_text, "%u", (unsigned)port);
    char name[] = "cordond", ready_opt[] = "--ready-fd", ready_fd[] = "3", port_opt[] = "--port";
    char *argv[] = {name, ready_opt, ready_fd, port ? port_opt : NULL, port_text, NULL};
    pid_t pid = fork();
    if (pid == 0) {
        reset_signals();
        exec_daemon(file, argv, log, pipe_fds[1]);
    }
    fd_close(pipe_fds[1]);
    r = pid < 0 ? -errno : read_ready(pipe_fds[0], line, sizeof line);
    fd_close(pipe_fds[0]);
    if (r < 0)
        return err_set(err, r, "internal", "cordond.log in the state folder says why",
                       "cordond did not get ready: %s", strerror(-r));
    r = judge_ready(line, places, err);
    if (r != 0)
        (void)waitpid(pid, NULL, 0);
    return r;
}

/* Opens what runs for this state folder. */
static int open_own(const struct places *places, struct client **ret)
{
    struct places own = *places;
    own.n_run = 0;
    return client_open(&own, ret, NULL);
}

/* One that is ending still holds the lock and answers no more: it is waited for. */
static int spawn_and_open(const struct places *places, int state, uint16_t port,
                          struct client **ret, bool *ret_started, struct err *err)
{
    uint64_t end = clock_now_ms() + ENDING_MS;
    struct timespec pause = {0, 20000000};
    do {
        int r = spawn_daemon(places, state, port, err);
        if (r < 0)
            return r;
        *ret_started = r == 0;
        if (open_own(places, ret) == 0)
            return 0;
        (void)nanosleep(&pause, NULL);
    } while (clock_now_ms() < end);
    return err_set(err, -ETIMEDOUT, "internal", "cordond.log in the state folder says more",
                   "cordond runs for %s but does not answer", places->state);
}

int start_daemon(const struct places *places, uint16_t port, struct client **ret, bool *ret_started,
                 struct err *err)
{
    *ret_started = false;
    if (open_own(places, ret) == 0)
        return 0;
    CLEANUP(fd_done) int state = open_state(places, err);
    if (state < 0)
        return state;
    CLEANUP(fd_done) int lock = open_ours(state, "start.lock", O_RDWR);
    if (lock < 0)
        return err_set(err, lock, "internal", "remove it; it must be a regular file of yours",
                       "%s/start.lock cannot be opened: %s", places->state, strerror(-lock));
    while (flock(lock, LOCK_EX) < 0)
        if (errno != EINTR)
            return err_set(err, -errno, "internal", NULL, "start.lock: %s", strerror(errno));
    if (open_own(places, ret) == 0)
        return 0;
    return spawn_and_open(places, state, port, ret, ret_started, err);
}

int start_or_open(const struct places *places, struct client **ret, struct err *err)
{
    bool started;
    int r = client_open(places, ret, err);
    if (r != -ENOENT)
        return r;
    err_clear(err);
    return start_daemon(places, 0, ret, &started, err);
}

int start_foreground(const struct places *places, uint16_t port, struct err *err)
{
    CLEANUP(freep) char *file = NULL;
    char name[] = "cordond", port_opt[] = "--port", port_text[8];
    int r = path_join(places->programs, "cordond", &file);
    if (r < 0)
        return err_set(err, r, "internal", NULL, "out of memory");
    snprintf(port_text, sizeof port_text, "%u", (unsigned)port);
    char *argv[] = {name, port ? port_opt : NULL, port_text, NULL};
    execve(file, argv, environ);
    return err_set(err, -errno, "internal", "install Cordon anew (packaging/up)",
                   "%s cannot be started: %s", file, strerror(errno));
}
