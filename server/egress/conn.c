/* Runs in: egress. Reads: hostile. May block: no. */
#include "egress/conn.h"
#include "base/fd.h"
#include "base/mem.h"
#include "egress/conn_parts.h"
#include "egress/redirect.h"
#include <stdlib.h>

static void conn_freed(struct closing *closing)
{
    free(container_of(closing, struct conn, closing));
}

void head_drop(struct conn *c)
{
    if (c->head != NULL)
        httphead_done(c->head);
    free(TAKE(c->head));
}

void up_drop(struct conn *c, bool reset)
{
    peer_close(TAKE(c->up), reset);
    c->up_host[0] = '\0';
    free(TAKE(c->up_proxy));
}

void conn_close(struct conn *c, bool reset)
{
    if (c->state == CONN_CLOSED)
        return;
    tell_end(c, "the connection ended");
    c->state = CONN_CLOSED;
    egress_conn_remove(c->eg, c->id);
    dial_cancel(TAKE(c->dial));
    via_cancel(TAKE(c->via));
    free(TAKE(c->proxy));
    head_drop(c);
    hello_drop(c);
    free(TAKE(c->socks));
    peer_close(TAKE(c->client), reset);
    up_drop(c, reset);
    flow_done(&c->to_up);
    flow_done(&c->to_client);
    str_done(&c->in);
    str_done(&c->up_head);
    str_done(&c->out);
    closing_start(&c->closing);
}

static void deadline_passed(struct deadline *d)
{
    struct conn *c = container_of(d, struct conn, deadline);
    uint64_t moved = c->to_up.bytes + c->to_client.bytes;
    switch (c->state) {
    case CONN_REQUEST:
    case CONN_RESPONSE:
        if (moved != c->seen) {
            c->seen = moved;
            deadline_set(d, QUIET_MS);
        } else {
            answer_trouble(c, 504, "upstream_timeout", "the server was silent for an hour");
        }
        return;
    case CONN_CHECKING:
        answer_trouble(c, 504, "no_verdict", "nobody decided about this request");
        return;
    case CONN_TUNNEL:
        hello_late(c);
        return;
    case CONN_RESETTING:
        conn_close(c, true);
        return;
    case CONN_CLOSED:
    case CONN_HEAD:
    case CONN_DIALLING:
    case CONN_ANSWERING:
    case CONN_DRAINING:
        conn_close(c, false);
        return;
    }
}

void conn_ready(void *arg, struct peer *p, int events)
{
    struct conn *c = arg;
    (void)events;
    switch (c->state) {
    case CONN_HEAD:
        if (p == c->up)
            up_drop(c, false);
        else
            head_read(c);
        return;
    case CONN_TUNNEL:
        tunnel_step(c);
        return;
    case CONN_REQUEST:
    case CONN_RESPONSE:
        exchange_step(c);
        return;
    case CONN_ANSWERING:
        answer_step(c);
        return;
    case CONN_DRAINING:
        drain_step(c);
        return;
    case CONN_RESETTING:
        conn_close(c, true);
        return;
    case CONN_CHECKING:
        if (c->is_held && p == c->client) {
            held_left(c);
            return;
        }
        peer_want(p, 0);
        return;
    case CONN_CLOSED:
    case CONN_DIALLING:
        if (p->wanted != 0)
            peer_want(p, 0);
        return;
    }
}

void conn_cut(struct conn *c)
{
    conn_close(c, true);
}

void conn_accept(struct egress *eg, int take_fd, bool over_limit, enum eg_door door, uint16_t port)
{
    struct sockaddr_storage wanted;
    enum redirected redirected =
        door >= EG_DOOR_LOCAL ? REDIRECTED_NO : redirected_from(take_fd, &wanted);
    struct conn *c = redirected == REDIRECTED_UNKNOWN ? NULL : calloc(1, sizeof *c);
    if (c == NULL || egress_conn_add(eg, c, &c->id) < 0) {
        fd_close(take_fd);
        free(c);
        return;
    }
    c->eg = eg;
    c->over_limit = over_limit;
    c->state = CONN_HEAD;
    closing_init(&c->closing, conn_freed);
    deadline_init(eg->loop, &c->deadline, &c->closing, deadline_passed);
    socket_prepare(take_fd);
    if (peer_new(eg->loop, take_fd, conn_ready, c, &c->client) < 0) {
        conn_close(c, true);
        return;
    }
    if (door >= EG_DOOR_LOCAL)
        port_request(c, door, port);
    else if (redirected == REDIRECTED_YES)
        redirect_request(c, &wanted);
    else
        request_next(c);
}
