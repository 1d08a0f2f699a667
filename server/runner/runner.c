/* Runs in: runner. Reads: trusted (the daemon's frames). May block: while the daemon does not read.
 */
#include "runner/runner.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "runner/answer.h"
#include "runner/command.h"
#include "runner/lockdown.h"
#include "runner/ports.h"
#include "runner/probe.h"
#include "runner/tree.h"
#include "runner/worker.h"
#include "wire/frame.h"
#include "wire/msg.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define SUPERVISORS_MAX 1024
#define FDS_QUEUED_MAX  64

#define ANSWERS_MAX 16384

struct runner {
    int control, signals;
    bool is_locked;
    int code; /* of the exit; CHILD_OK goes on */
    bool ended;
    struct frame_reader in;
    struct str answers;      /* to the probes of one read, sent together */
    int fds[FDS_QUEUED_MAX]; /* received, not yet taken by a frame */
    size_t n_fds;
    struct workers workers;
    pid_t supervisors[SUPERVISORS_MAX];
    size_t n_supervisors;
};

static struct runner self; /* one a process; static, so that fork copies little */

bool runner_owns_fd(int fd)
{
    if (fd <= self.control || fd == self.signals)
        return true;
    for (size_t i = 0; i < self.workers.n; i++)
        if (fd == self.workers.rows[i].socket || fd == self.workers.rows[i].fd)
            return true;
    for (size_t i = 0; i < self.n_fds; i++)
        if (fd == self.fds[i])
            return true;
    return false;
}

static int fd_take(int *fd)
{
    int taken = *fd;
    *fd = -1;
    return taken;
}

static void end(struct runner *r, int code)
{
    r->ended = true;
    r->code = code;
}

/* ---- Frames
 * -------------------------------------------------------------------------------------- */

static void tell_ready(struct runner *r, int abi, const char *failure, int error)
{
    struct pack p = {0};
    char text[128] = "";
    if (failure)
        (void)snprintf(text, sizeof text, "%s: %s", failure, strerror(error));
    pack_u32(&p, (uint32_t)abi);
    pack_str(&p, text);
    (void)runner_answer(r->control, M_READY, &p, -1);
    pack_done(&p);
}

static void do_lockdown(struct runner *r, const struct frame *f)
{
    struct unpack u = unpack_from(f->payload, f->len);
    struct rules rules = {0};
    const char *what = "rules";
    int code = CHILD_PROTOCOL, error = rules_get(&u, &rules);
    if (error == 0)
        error = unpack_end(&u);
    if (error == 0)
        error = lockdown_enter(&rules, &code, &what);
    rules_done(&rules);
    r->is_locked = error >= 0;
    tell_ready(r, error < 0 ? 0 : error, error < 0 ? what : NULL, -error);
    if (error < 0)
        end(r, code);
}

static void start_failed(struct runner *r, uint32_t id, int stage, int error)
{
    struct pack p = {0};
    pack_u32(&p, id);
    pack_u8(&p, (uint8_t)stage);
    pack_u32(&p, (uint32_t)error);
    if (runner_answer(r->control, M_START_FAILED, &p, -1) < 0)
        end(r, CHILD_PROTOCOL);
    pack_done(&p);
}

static void do_start(struct runner *r, const struct frame *f, const int *fds)
{
    struct unpack u = unpack_from(f->payload, f->len);
    struct start st = {0};
    int got = start_get(&u, &st);
    if (got < 0) {
        start_done(&st);
        end(r, CHILD_PROTOCOL);
        return;
    }
    pid_t pid = r->n_supervisors == SUPERVISORS_MAX ? -EAGAIN : command_start(&st, fds);
    if (pid > 0)
        r->supervisors[r->n_supervisors++] = pid;
    else
        start_failed(r, st.id, START_AT_LIMIT, -pid);
    start_done(&st);
}

static void do_term_all(struct runner *r)
{
    for (size_t i = 0; i < r->n_supervisors; i++) {
        (void)tree_signal_below_of(r->supervisors[i], SIGTERM);
        (void)tree_signal_below_of(r->supervisors[i], SIGCONT); /* the stopped see it too */
    }
}

static void frame_do(struct runner *r, const struct frame *f, int *fds, size_t n)
{
    struct unpack u = unpack_from(f->payload, f->len);
    if (!r->is_locked && f->kind != M_LOCKDOWN) {
        end(r, CHILD_PROTOCOL);
        return;
    }
    switch (f->kind) {
    case M_LOCKDOWN:
        if (r->is_locked)
            end(r, CHILD_PROTOCOL); /* once only */
        else
            do_lockdown(r, f);
        break;
    case M_PROBE:
        probe_call(&u, &r->answers);
        if (r->answers.len > ANSWERS_MAX)
            (void)runner_flush(r->control, &r->answers);
        break;
    case M_START:
        do_start(r, f, fds);
        break;
    case M_TOOL:
        workers_start(&r->workers, f, n > 0 ? fd_take(&fds[0]) : -1, r->control);
        break;
    case M_TERM_ALL:
        do_term_all(r);
        break;
    case M_LISTEN:
    case M_CONNECT:
        if ((f->kind == M_LISTEN ? port_listen : port_connect)(f, r->control) < 0)
            end(r, CHILD_PROTOCOL);
        break;
    default:
        end(r, CHILD_PROTOCOL);
    }
}

static void frames_do(struct runner *r)
{
    struct frame f;
    int got = 0;
    while (!r->ended && (got = frame_next(&r->in, &f)) > 0) {
        int n = msg_fds(&f, r->n_fds);
        if (n < 0) {
            end(r, CHILD_PROTOCOL);
            return;
        }
        int fds[FDS_PER_MESSAGE];
        memcpy(fds, r->fds, (size_t)n * sizeof *fds);
        r->n_fds -= (size_t)n;
        memmove(r->fds, r->fds + n, r->n_fds * sizeof *fds);
        frame_do(r, &f, fds, (size_t)n);
        for (int i = 0; i < n; i++)
            fd_close(fds[i]);
    }
    if (r->answers.len > 0) /* the loop sees that the socket is gone */
        (void)runner_flush(r->control, &r->answers);
    if (!r->ended && got < 0)
        end(r, CHILD_PROTOCOL);
}

static void control_read(struct runner *r)
{
    static char buf[65536];
    int fds[FDS_PER_MESSAGE];
    size_t n_fds = 0;
    ssize_t n = fd_recv(r->control, buf, sizeof buf, fds, &n_fds);
    if (n == -EINTR || n == -EAGAIN)
        return;
    for (size_t i = 0; i < n_fds; i++) {
        if (r->n_fds < FDS_QUEUED_MAX)
            r->fds[r->n_fds++] = fds[i];
        else
            fd_close(fds[i]);
    }
    if (n <= 0)
        end(r, n == 0 ? CHILD_OK : CHILD_PROTOCOL); /* the daemon is gone, or let go */
    else if (frame_feed(&r->in, buf, (size_t)n) < 0)
        end(r, CHILD_MEMORY);
    else
        frames_do(r);
}

/* ---- Children
 * ------------------------------------------------------------------------------------ */

static bool is_ours(const struct runner *r, pid_t pid)
{
    for (size_t i = 0; i < r->n_supervisors; i++)
        if (r->supervisors[i] == pid)
            return true;
    for (size_t i = 0; i < r->workers.n; i++)
        if (r->workers.rows[i].pid == pid)
            return true;
    return false;
}

/* A command may kill its own supervisor; what that looked after then falls to the runner, and goes:
 * nothing runs on that cannot be listed and stopped. */
static void orphans_kill(const struct runner *r)
{
    pid_t pids[1024];
    size_t n = tree_children(pids, ARRAY_LEN(pids));
    for (size_t i = 0; i < n; i++)
        if (!is_ours(r, pids[i]))
            (void)tree_signal(pids[i], SIGKILL);
}

static bool supervisor_forget(struct runner *r, pid_t pid)
{
    for (size_t i = 0; i < r->n_supervisors; i++) {
        if (r->supervisors[i] != pid)
            continue;
        r->supervisors[i] = r->supervisors[--r->n_supervisors];
        return true;
    }
    return false;
}

/* A command may also stop its own supervisor, which then obeys nothing: not its time-out, nor the
 * end of the command. So that is its end. */
static void children_reap(struct runner *r)
{
    struct signalfd_siginfo info;
    bool killed = false;
    int status;
    (void)!read(r->signals, &info, sizeof info);
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0;) {
        if (WIFSTOPPED(status)) {
            if (is_ours(r, pid))
                (void)kill(pid, SIGKILL);
            continue;
        }
        if (!supervisor_forget(r, pid) || WIFSIGNALED(status))
            killed = true;
    }
    if (killed)
        orphans_kill(r);
}

/* ---- The loop
 * ------------------------------------------------------------------------------------ */

static void turn(struct runner *r)
{
    struct pollfd p[2 + WORKERS_MAX] = {{.fd = r->control, .events = POLLIN},
                                        {.fd = r->signals, .events = POLLIN}};
    size_t n = r->workers.n;
    for (size_t i = 0; i < n; i++)
        p[2 + i] = (struct pollfd){.fd = r->workers.rows[i].socket, .events = POLLIN};
    if (poll(p, 2 + n, -1) < 0)
        return;
    for (size_t i = n; i-- > 0;) /* from the end: a dropped row is filled by the last one */
        if (p[2 + i].revents && !workers_take(&r->workers, i, r->control))
            end(r, CHILD_PROTOCOL);
    if (p[1].revents)
        children_reap(r);
    if (p[0].revents && !r->ended)
        control_read(r);
}

static int signals_take(struct runner *r)
{
    sigset_t chld;
    (void)sigemptyset(&chld);
    (void)sigaddset(&chld, SIGCHLD);
    if (sigprocmask(SIG_BLOCK, &chld, NULL) < 0)
        return -errno;
    r->signals = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
    return r->signals < 0 ? -errno : 0;
}

int runner_main(int control)
{
    struct runner *r = &self;
    r->control = control;
    if (fd_cloexec(control, true) < 0 || signals_take(r) < 0)
        return CHILD_DESCRIPTORS;
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
        return CHILD_FORK;
    while (!r->ended)
        turn(r);
    /* As pid 1 the kernel ends the rest; in plain mode the supervisors see their channels close. */
    return r->code;
}
