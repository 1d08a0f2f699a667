/* Runs in: egress. Reads: nothing (who connects goes to egress/conn unread). May block: no. */
#include "egress/listen.h"
#include "base/fd.h"
#include "base/mem.h"
#include "egress/conn.h"
#include <errno.h>
#include <stdlib.h>

struct listener {
    struct listener *next;
    struct egress *eg;
    struct peer *peer;
    enum eg_door door;
    uint16_t port;
};

static void listener_ready(void *arg, struct peer *p, int events)
{
    const struct listener *l = arg;
    (void)events;
    egress_accept(l->eg, p->fd, l->door, l->port);
}

int listen_add(struct egress *eg, enum eg_door door, uint16_t port, int take_fd)
{
    unsigned n = 0;
    for (const struct listener *l = eg->listeners; l != NULL; l = l->next)
        n++;
    struct listener *l = n < LISTENERS_MAX ? calloc(1, sizeof *l) : NULL;
    if (l == NULL) {
        fd_close(take_fd);
        return n < LISTENERS_MAX ? -ENOMEM : -ENOSPC;
    }
    *l = (struct listener){eg->listeners, eg, NULL, door, port};
    int r = peer_new(eg->loop, take_fd, listener_ready, l, &l->peer);
    if (r < 0) {
        free(l);
        return r;
    }
    eg->listeners = l;
    peer_want(l->peer, UV_READABLE);
    return 0;
}

void listen_drop(struct egress *eg, enum eg_door door, uint16_t port)
{
    for (struct listener **at = &eg->listeners, *l; (l = *at) != NULL;) {
        if (l->door != door || l->port != port) {
            at = &l->next;
            continue;
        }
        *at = l->next;
        peer_close(l->peer, false); /* nothing comes of it after this */
        free(l);
    }
}

void listen_want(struct egress *eg, int events)
{
    for (const struct listener *l = eg->listeners; l != NULL; l = l->next)
        peer_want(l->peer, events);
}
