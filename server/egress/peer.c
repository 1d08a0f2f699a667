/* Runs in: egress. Reads: nothing. May block: no. */
#include "egress/peer.h"
#include "base/fd.h"
#include "base/mem.h"
#include <errno.h>
#include <sys/socket.h>

static void peer_free(struct closing *closing)
{
    free(container_of(closing, struct peer, closing));
}

int peer_new(uv_loop_t *loop, int take_fd, peer_ready_fn *ready, void *arg, struct peer **ret)
{
    struct peer *p = calloc(1, sizeof *p);
    int r = p != NULL ? uv_poll_init(loop, &p->poll, take_fd) : -ENOMEM;
    if (r < 0) {
        fd_close(take_fd);
        free(p);
        return r;
    }
    closing_init(&p->closing, peer_free);
    closing_add(&p->closing, (uv_handle_t *)&p->poll);
    p->fd = take_fd;
    p->ready = ready;
    p->arg = arg;
    *ret = p;
    return 0;
}

static void peer_polled(uv_poll_t *poll, int status, int events)
{
    struct peer *p = container_of(poll, struct peer, poll);
    if (p->fd < 0)
        return;
    if (status < 0) { /* an error is pending: the next recv or send tells which */
        events = p->wanted;
        p->wanted = 0;
    }
    p->ready(p->arg, p, events);
}

void peer_want(struct peer *p, int events)
{
    if (p->fd < 0 || p->wanted == events)
        return;
    p->wanted = events;
    if (events == 0)
        (void)uv_poll_stop(&p->poll);
    else
        (void)uv_poll_start(&p->poll, events, peer_polled);
}

void peer_close(struct peer *p, bool reset)
{
    const struct linger none = {.l_onoff = 1, .l_linger = 0};
    if (p == NULL || p->fd < 0)
        return;
    if (reset)
        (void)setsockopt(p->fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    int fd = p->fd;
    p->fd = -1;
    closing_start(&p->closing); /* before the descriptor goes: the loop still knows its number */
    fd_close(fd);
}
