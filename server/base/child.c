/* Runs in: daemon. Reads: trusted. May block: no (child_done waits for a killed child). */
#include "base/child.h"
#include "base/fd.h"
#include "base/mem.h"
#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

void child_init(struct child *c)
{
    c->pid = 0;
    c->pidfd = -1;
    c->owner = NULL;
    c->exited = NULL;
}

static void reap_killed(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct child *c = container_of(poll, struct child, poll);
    int how = 0;
    (void)status;
    (void)events;
    pid_t got = waitpid(c->pid, &how, WNOHANG);
    if (got == 0 || (got < 0 && errno == EINTR))
        return;
    c->pid = 0;
    closing_drop(c->owner, (uv_handle_t *)&c->poll);
    fd_done(&c->pidfd);
    c->exited(c, got < 0 ? 0 : how);
}

int child_watch(uv_loop_t *loop, struct child *c, struct closing *owner, pid_t pid,
                void (*exited)(struct child *c, int status))
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    int r = fd < 0 ? -errno : 0;
    if (r == 0)
        r = uv_poll_init(loop, &c->poll, fd);
    if (r < 0) {
        fd_close(fd);
        reap_killed(pid);
        return r;
    }
    c->pid = pid;
    c->pidfd = fd;
    c->owner = owner;
    c->exited = exited;
    closing_add(owner, (uv_handle_t *)&c->poll);
    return uv_poll_start(&c->poll, UV_READABLE, on_poll);
}

void child_kill(struct child *c, int signo)
{
    if (c->pid > 0)
        (void)syscall(SYS_pidfd_send_signal, c->pidfd, signo, NULL, 0);
}

void child_done(struct child *c)
{
    if (c->pid > 0)
        reap_killed(c->pid);
    c->pid = 0;
    fd_done(&c->pidfd);
}
