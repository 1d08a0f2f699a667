/* A child process on the loop: its end is reported once, and dropping it kills and reaps it.
 * Embedded in its owner, like struct deadline. Linux: a pidfd (pidfd_open(2)), so a recycled pid is
 * never signalled and no SIGCHLD handler is needed.
 *
 *     child_init(&e->child);
 *     pid = fd_spawn(&sp); r = child_watch(loop, &e->child, &e->closing, pid, exited);
 *     child_kill(&e->child, SIGKILL);      // exited() follows
 *     child_done(&e->child);               // in the owner's freed(): kills and reaps what is left
 */
#pragma once
#include "base/loop.h"
#include <sys/types.h>

struct child {
    pid_t pid; /* 0 = none, or reaped */
    int pidfd;
    uv_poll_t poll;
    struct closing *owner;
    void (*exited)(struct child *c, int status); /* status as of waitpid(2) */
};
void child_init(struct child *c);
/* Takes PID, also on failure (it is killed and reaped then). */
int child_watch(uv_loop_t *loop, struct child *c, struct closing *owner, pid_t pid,
                void (*exited)(struct child *c, int status));
void child_kill(struct child *c, int signo); /* does nothing once it was reaped */
void child_done(struct child *c);
