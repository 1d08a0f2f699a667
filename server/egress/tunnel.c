/* Runs in: egress. Reads: hostile. May block: no.
 *
 * A tunnel: bytes both ways, each end passed on by itself. */
#include "egress/conn_parts.h"
#include <string.h>
#include <sys/socket.h>

void tunnel_start(struct conn *c)
{
    static const char ESTABLISHED[] = "HTTP/1.1 200 Connection established\r\n\r\n";
    c->state = CONN_TUNNEL;
    deadline_clear(&c->deadline);
    c->responded = true;
    /* The client's buffer is empty, so this fits. */
    if (send(c->client->fd, ESTABLISHED, sizeof ESTABLISHED - 1, MSG_NOSIGNAL) !=
        sizeof ESTABLISHED - 1) {
        conn_close(c, true);
        return;
    }
    flow_init(&c->to_up, c->eg->pool, BODY_UNTIL_CLOSE, 0);
    flow_init(&c->to_client, c->eg->pool, BODY_UNTIL_CLOSE, 0);
    if (flow_take(&c->to_up, c->in.data, c->in.len) < 0) {
        conn_close(c, true);
        return;
    }
    str_done(&c->in);
    tunnel_step(c);
}

void waits_follow(struct conn *c)
{
    bool up = c->up != NULL;
    peer_want(c->client, (c->to_up.wants_read && up ? UV_READABLE : 0) |
                             (c->to_client.wants_write ? UV_WRITABLE : 0));
    if (up)
        peer_want(c->up, (c->to_client.wants_read || c->state == CONN_REQUEST ? UV_READABLE : 0) |
                             (c->to_up.wants_write ? UV_WRITABLE : 0));
}

/* Pumps; passes the end on when it has just come. */
static enum flow_state tunnel_pump(struct flow *f, struct peer *from, struct peer *to)
{
    enum flow_state before = f->state, now = flow_pump(f, from, to);
    if (now == FLOW_DONE && before != FLOW_DONE)
        (void)shutdown(to->fd, SHUT_WR);
    return now;
}

void tunnel_step(struct conn *c)
{
    enum flow_state up = tunnel_pump(&c->to_up, c->client, c->up);
    enum flow_state down = tunnel_pump(&c->to_client, c->up, c->client);
    if (up == FLOW_DONE && down == FLOW_DONE) {
        conn_close(c, false);
        return;
    }
    /* The server takes no more, but what it said before is still passed on. */
    if (up == FLOW_BROKEN_TO && down == FLOW_DONE) {
        conn_drain(c);
        return;
    }
    if (up == FLOW_BROKEN_FROM || down == FLOW_BROKEN_FROM || down == FLOW_BROKEN_TO) {
        conn_close(c, true);
        return;
    }
    waits_follow(c);
}
