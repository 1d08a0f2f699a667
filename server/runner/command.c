/* Runs in: runner. Reads: trusted (the daemon's frames), hostile (what is started). May block: yes.
 */
#include "runner/command.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/kernel.h"
#include "base/mem.h"
#include "runner/answer.h"
#include "runner/tree.h"
#include "wire/frame.h"
#include "wire/msg.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ITEMS_MAX 65536
#define BYTES_MAX ((size_t)2 << 20)

void start_done(struct start *st)
{
    strv_done(&st->argv);
    strv_done(&st->env);
    free(st->cwd);
}

int start_get(struct unpack *u, struct start *ret)
{
    ret->id = unpack_u32(u);
    ret->flags = unpack_u32(u);
    (void)unpack_strv(u, ITEMS_MAX, BYTES_MAX, &ret->argv);
    (void)unpack_strv(u, ITEMS_MAX, BYTES_MAX, &ret->env);
    ret->cwd = unpack_str(u, PATH_MAX);
    ret->umask = (mode_t)(unpack_u64(u) & 0777);
    int r = unpack_end(u);
    return r == 0 && ret->argv.n == 0 ? -EBADMSG : r;
}

/* ---- The command itself, between vfork and exec: only calls that are safe there ----------------
 */

struct launch {
    const struct start *st;
    const int *fds;
    const char *path;          /* of the command's own environment */
    volatile int stage, error; /* shared with the parent by vfork */
};

static const char *env_get(const struct strv *env, const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < env->n; i++)
        if (strncmp(env->items[i], name, n) == 0 && env->items[i][n] == '=')
            return env->items[i] + n + 1;
    return "/usr/bin:/bin";
}

/* As execvpe(3), but with the command's own PATH: an entry that cannot be read is passed over, and
 * EACCES is told only when nothing better was found. */
static int exec_search(const struct launch *l)
{
    char file[PATH_MAX];
    const char *name = l->st->argv.items[0];
    int error = ENOENT;
    if (strchr(name, '/')) {
        (void)execve(name, l->st->argv.items, l->st->env.items);
        return errno;
    }
    if (name[0] == '\0')
        return ENOENT;
    for (const char *at = l->path; at; at = *at ? at + 1 : NULL) {
        size_t n = strcspn(at, ":");
        const char *dir = at;
        at += n;
        if (n == 0 || dir[0] != '/' || n + strlen(name) + 2 > sizeof file)
            continue; /* relative entries would be looked up where the agent can write */
        memcpy(file, dir, n);
        file[n] = '/';
        memcpy(file + n + 1, name, strlen(name) + 1);
        (void)execve(file, l->st->argv.items, l->st->env.items);
        if (errno == EACCES)
            error = EACCES;
        else if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
            return errno;
    }
    return error;
}

/* By the system call: the C library keeps 32 and 33 to itself, and its posix_spawn has them ignored
 * in the runner. All zero is SIG_DFL, no flags, an empty mask (rt_sigaction(2)). */
static void signals_reset(void)
{
    static const unsigned long standard[8];
    sigset_t none;
    for (int signo = 1; signo < NSIG; signo++)
        (void)syscall(SYS_rt_sigaction, signo, standard, NULL, (NSIG - 1) / 8);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

static void __attribute__((noreturn)) launch_child(struct launch *l)
{
    l->stage = START_AT_WALL;
    if (setsid() < 0)
        goto failed;
    (void)umask(l->st->umask);
    for (int fd = START_STDIN; fd <= START_STDERR; fd++)
        if (dup2(l->fds[fd], fd) < 0)
            goto failed;
    if (kernel_close_range(START_STDERR + 1, ~0U, K_CLOSE_RANGE_CLOEXEC) < 0)
        goto failed;
    l->stage = START_AT_CWD;
    if (chdir(l->st->cwd[0] ? l->st->cwd : "/") < 0)
        goto failed;
    l->stage = START_AT_EXEC;
    signals_reset();
    l->error = exec_search(l);
    _exit(127);
failed:
    l->error = errno;
    _exit(127);
}

/* vfork: the supervisor's memory is shared until exec, so a failure is told in it, for nothing. */
static pid_t launch(struct launch *l)
{
    pid_t pid = vfork();
    if (pid == 0)
        launch_child(l);
    if (pid < 0) {
        l->stage = START_AT_LIMIT;
        l->error = errno;
    } else if (l->error != 0) {
        (void)waitpid(pid, NULL, 0);
        return -1;
    }
    return pid;
}

/* ---- The supervisor ----------------------------------------------------------------------------
 */

struct supervisor {
    int channel, signals;
    pid_t leader; /* 0 once it was reaped */
    bool killing; /* SIGKILL for the tree was asked: whatever is born is killed as well */
    struct frame_reader in;
};

static void tell(int channel, uint8_t kind, struct pack *p)
{
    if (runner_answer(channel, kind, p, -1) < 0) { /* the daemon is gone */
        (void)tree_signal_below(SIGKILL);
        _exit(CHILD_PARENT_GONE);
    }
    pack_done(p);
}

static void tell_started(const struct supervisor *s)
{
    struct pack p = {0};
    pack_u32(&p, (uint32_t)s->leader);
    tell(s->channel, M_CMD_STARTED, &p);
}

static void tell_failed(int channel, const struct launch *l)
{
    struct pack p = {0};
    pack_u8(&p, (uint8_t)l->stage);
    pack_u32(&p, (uint32_t)l->error);
    tell(channel, M_CMD_FAILED, &p);
}

static uint64_t micros(struct timeval tv)
{
    return (uint64_t)tv.tv_sec * 1000000 + (uint64_t)tv.tv_usec;
}

static void tell_exit(const struct supervisor *s, int status, const struct rusage *ru)
{
    struct pack p = {0};
    pack_u8(&p, WIFSIGNALED(status) ? 1 : 0);
    pack_u32(&p, (uint32_t)(WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status)));
    pack_u64(&p, micros(ru->ru_utime) + micros(ru->ru_stime));
    pack_u64(&p, (uint64_t)ru->ru_maxrss * 1024);
    pack_str(&p, "");
    tell(s->channel, M_CMD_EXIT, &p);
}

/* Reaps what ended. False when nothing below lives any more. */
static bool reap(struct supervisor *s)
{
    struct rusage ru;
    int status;
    pid_t pid;
    while ((pid = wait4(-1, &status, WNOHANG, &ru)) > 0) {
        if (pid != s->leader)
            continue;
        s->leader = 0;
        tell_exit(s, status, &ru);
    }
    if (pid < 0 && errno == ECHILD)
        return false;
    if (s->killing)
        (void)tree_signal_below(SIGKILL);
    return true;
}

static void obey(struct supervisor *s, const struct frame *f)
{
    struct unpack u = unpack_from(f->payload, f->len);
    int signo = (int)unpack_u32(&u);
    uint8_t to = unpack_u8(&u);
    if (f->kind != M_CMD_SIGNAL || unpack_end(&u) < 0 || signo < 1 || signo >= NSIG)
        return;
    if (to == SIGNAL_TO_TREE) {
        s->killing = s->killing || signo == SIGKILL;
        (void)tree_signal_below(signo);
        if (signo == SIGTERM) /* a stopped process would not see it */
            (void)tree_signal_below(SIGCONT);
    } else if (s->leader > 0) {
        (void)kill(to == SIGNAL_TO_GROUP ? -s->leader : s->leader, signo);
    }
}

/* False when the daemon is gone: all below is killed then, until nothing lives. */
static bool listen_once(struct supervisor *s)
{
    char buf[1024];
    struct frame f;
    ssize_t n = recv(s->channel, buf, sizeof buf, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (n <= 0 || frame_feed(&s->in, buf, (size_t)n) < 0)
        return false;
    int r;
    while ((r = frame_next(&s->in, &f)) > 0)
        obey(s, &f);
    return r == 0;
}

static void __attribute__((noreturn)) supervise(struct supervisor *s)
{
    struct pollfd p[] = {{.fd = s->signals, .events = POLLIN},
                         {.fd = s->channel, .events = POLLIN}};
    while (reap(s)) {
        struct signalfd_siginfo info;
        if (poll(p, ARRAY_LEN(p), -1) < 0)
            continue;
        if (p[0].revents)
            (void)!read(s->signals, &info, sizeof info);
        if (p[1].revents && !listen_once(s)) {
            s->killing = true;
            p[1].fd = -1; /* ignored by poll from now on */
            (void)tree_signal_below(SIGKILL);
        }
    }
    if (p[1].fd >= 0) {
        struct pack none = {0};
        (void)runner_answer(s->channel, M_CMD_GONE, &none, -1);
    }
    _exit(0);
}

/* Keeps nothing but the channel, so that no pipe of the command is held open by its supervisor. */
static int descriptors_keep(int channel)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(channel, 3) < 0)
        return -errno;
    return kernel_close_range(4, ~0U, 0) < 0 ? -errno : 0;
}

static void __attribute__((noreturn)) supervisor_main(const struct start *st, const int *fds)
{
    struct launch l = {.st = st, .fds = fds, .path = env_get(&st->env, "PATH")};
    struct supervisor s = {.channel = fds[START_CHANNEL]};
    sigset_t chld;
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
        _exit(CHILD_FORK);
    s.leader = launch(&l);
    if (s.leader < 0) {
        tell_failed(s.channel, &l);
        _exit(0);
    }
    tell_started(&s);
    (void)sigemptyset(&chld);
    (void)sigaddset(&chld, SIGCHLD);
    if (descriptors_keep(s.channel) < 0) {
        (void)tree_signal_below(SIGKILL);
        _exit(CHILD_DESCRIPTORS);
    }
    s.channel = 3;
    s.signals = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s.signals < 0) {
        (void)tree_signal_below(SIGKILL);
        _exit(CHILD_DESCRIPTORS);
    }
    supervise(&s);
}

pid_t command_start(const struct start *st, const int fds[static START_FDS])
{
    pid_t pid = fork();
    if (pid == 0)
        supervisor_main(st, fds);
    return pid < 0 ? -errno : pid;
}
