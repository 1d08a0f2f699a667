/* One socket on the loop: descriptor, poll handle, and what is waited for now. Readiness only: who
 * owns a peer reads and writes by recv(2) and send(2) itself, so no byte is read that has no place.
 *
 *     peer_new(loop, fd, ready, arg, &p);      // the peer owns the descriptor from now on
 *     peer_want(p, UV_READABLE);               // ready(arg, p, events) until changed
 *     peer_close(p, false);                    // closed and freed on the loop's next turn */
#pragma once
#include "base/loop.h"

struct peer;
typedef void peer_ready_fn(void *arg, struct peer *p, int events);
struct peer {
    struct closing closing;
    uv_poll_t poll;
    int fd; /* -1 once closed */
    int wanted;
    peer_ready_fn *ready;
    void *arg;
};
/* Takes FD, also on failure; makes it non-blocking. */
int peer_new(uv_loop_t *loop, int take_fd, peer_ready_fn *ready, void *arg, struct peer **ret);
void peer_want(struct peer *p, int events); /* UV_READABLE | UV_WRITABLE */
/* RESET: the other side sees a reset, not an end. NULL is fine. */
void peer_close(struct peer *p, bool reset);
