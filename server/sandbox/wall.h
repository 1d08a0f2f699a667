/* Between provider.c and the files of the mechanisms: what a wall is while it is being put up.
 * Private to this room. */
#pragma once
#include "base/child.h"
#include "base/fd.h"
#include "base/loop.h"
#include "sandbox/cgroup.h"
#include "sandbox/provider.h"
#include "wire/frame.h"
#include <stdbool.h>

#define WALL_SAID_MAX 2048 /* bytes of standard error kept for the refusal's text */

struct wall_kind;
enum wall_state { WALL_LAUNCHING = 0, WALL_UP, WALL_FAILING, WALL_FAILED, WALL_CLOSING };

struct wall {
    enum wall_state state;
    const struct wall_kind *kind;
    const struct machine *machine;
    struct closing closing;
    struct child child; /* the stage's outer process, or the plain runner */
    uv_poll_t control_poll, said_poll;
    struct deadline deadline;
    uint64_t deadline_ms;
    int control, said_fd;
    struct frame_reader reader;
    struct str out;               /* what is not yet written to the control socket */
    int out_fds[2 + CGROUPS_MAX]; /* travel with OUT's first byte */
    size_t n_out_fds;
    int in_fds[FDS_PER_MESSAGE]; /* received, not yet matched to a frame */
    size_t n_in_fds;
    bool want_doors, want_redirect, has_redirect, is_gone;
    uint16_t door_port;
    int doors[WALL_DOORS_MAX];
    size_t n_doors;
    struct cgroup *group; /* or NULL */
    int landlock_abi, status;
    char said[WALL_SAID_MAX];
    size_t n_said, n_logged;
    struct err err;
    wall_launched_fn *launched;
    void *launched_arg;
    wall_died_fn *died;
    void *died_arg;
    wall_closed_fn *closed;
    void *closed_arg;
};

/* A mechanism: how its runner is started, and what it is told first. */
struct wall_kind {
    const char *argument; /* of cordon-runner: "stage", "plain" */
    int signal;           /* that ends the process and, for the stage, waits for all inside */
    /* Fills w->out and w->out_fds while the child already starts. */
    int (*prepare)(struct wall *w, const struct wall_request *rq, struct err *err);
    /* What M_STAGE_FAILED or an exit code CODE with ERRNUM means to a person. */
    void (*explain)(const struct wall *w, unsigned code, int errnum, const char *what,
                    struct err *err);
};
extern const struct wall_kind WALL_LINUX, WALL_DIRECT;

/* Checks the N sockets that came up as doors; negative errno with ERR. *ret_redirect: the last is
 * the name server's. */
int doors_check(const int *fds, size_t n, uint16_t port, bool *ret_redirect, struct err *err);
/* Why this machine refuses namespaces, or has no Landlock (-ENOTSUP), and what a person can do. */
int cure_landlock(struct err *err);
void cure_namespaces(int errnum, const char *what, struct err *err);
/* /usr/bin/bwrap or /bin/bwrap, root's and changeable by root alone; NULL with ERR. */
const char *bwrap_find(struct err *err);
