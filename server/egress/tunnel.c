/* Runs in: egress. Reads: hostile. May block: no.
 *
 * A tunnel: bytes both ways, each end passed on by itself. */
#include "base/mem.h"
#include "egress/conn_parts.h"
#include <string.h>
#include <sys/socket.h>

int opened_put(struct str *out, const struct conn *c)
{
    uint8_t reply[SOCKS_REPLY_MAX];
    switch (c->door) {
    case EG_DOOR_CONNECT:
        return str_puts(out, "HTTP/1.1 200 Connection established\r\n\r\n");
    case EG_DOOR_SOCKS5:
    case EG_DOOR_SOCKS4:
        return str_add(out, reply, socks_said(c, SOCKS_OPENED, reply));
    case EG_DOOR_HTTP:
    case EG_DOOR_REDIRECT: /* thinks that it is connected already */
    case EG_DOOR_TLS_NAME:
    case EG_DOOR_LOCAL:
    case EG_DOOR_PUBLISH:
        break;
    }
    return 0;
}

void tunnel_start(struct conn *c)
{
    CLEANUP(str_done) struct str opened = {0};
    c->state = CONN_TUNNEL;
    deadline_clear(&c->deadline);
    c->responded = true;
    flow_init(&c->to_up, c->eg->pool, BODY_UNTIL_CLOSE, 0);
    flow_init(&c->to_client, c->eg->pool, BODY_UNTIL_CLOSE, 0);
    /* The client's buffer is empty, so this fits. */
    if (opened_put(&opened, c) < 0 ||
        (opened.len > 0 &&
         send(c->client->fd, opened.data, opened.len, MSG_NOSIGNAL) != (ssize_t)opened.len) ||
        (c->door < EG_DOOR_LOCAL && hello_start(c) < 0)) {
        conn_close(c, true);
        return;
    }
    if (c->state != CONN_TUNNEL)
        return;
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
    if (c->hello != NULL)
        hello_step(c);
    if (c->state != CONN_TUNNEL)
        return;
    enum flow_state up = c->hello != NULL ? FLOW_OPEN : tunnel_pump(&c->to_up, c->client, c->up);
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
