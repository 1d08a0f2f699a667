/* Runs in: egress. Reads: hostile (thrown away). May block: no.
 *
 * The last words to a client, and the end behind them. */
#include "base/mem.h"
#include "egress/conn_parts.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* Closing with unread bytes would reset the connection and take our last words with it: so the
 * client is told the end, and what it still sends is read away for a while. */
void conn_drain(struct conn *c)
{
    tell_end(c, "");
    up_drop(c, false);
    c->state = CONN_DRAINING;
    (void)shutdown(c->client->fd, SHUT_WR);
    deadline_set(&c->deadline, DRAIN_MS);
    peer_want(c->client, UV_READABLE);
}

void drain_step(struct conn *c)
{
    char waste[READ_BYTES];
    for (int i = 0; i < 16; i++) {
        ssize_t n = recv(c->client->fd, waste, sizeof waste, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            conn_close(c, false);
            return;
        }
    }
}

void answer_step(struct conn *c)
{
    while (c->out_at < c->out.len) {
        ssize_t n =
            send(c->client->fd, c->out.data + c->out_at, c->out.len - c->out_at, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            peer_want(c->client, UV_WRITABLE);
            return;
        }
        if (n < 0) {
            conn_close(c, false);
            return;
        }
        c->out_at += (size_t)n;
    }
    conn_drain(c);
}

/* c->out is the last thing the client hears. */
void answer_start(struct conn *c)
{
    head_drop(c);
    up_drop(c, true);
    c->state = CONN_ANSWERING;
    deadline_set(&c->deadline, DRAIN_MS);
    answer_step(c);
}

static enum socks_code socks_code(const struct reply *reply, int error)
{
    if (reply->status == 403)
        return SOCKS_NOT_ALLOWED;
    if (reply->status == 504)
        return SOCKS_TIMED_OUT;
    if (strcmp(reply->code, "resolve_failed") == 0 || error == EHOSTUNREACH)
        return SOCKS_HOST_UNREACHABLE;
    if (error == ENETUNREACH)
        return SOCKS_NET_UNREACHABLE;
    return error == ECONNREFUSED ? SOCKS_REFUSED : SOCKS_FAILED;
}

/* In the words of the client's door. ERROR: errno of the last attempt, 0 when there was none. */
static int answer_put(struct conn *c, const struct reply *reply, int error)
{
    uint8_t said[SOCKS_REPLY_MAX];
    switch (c->door) {
    case EG_DOOR_CONNECT:
    case EG_DOOR_HTTP:
        return reply_put(&c->out, reply, c->wants_json, c->is_head);
    case EG_DOOR_SOCKS5:
    case EG_DOOR_SOCKS4:
        return str_add(&c->out, said, socks_said(c, socks_code(reply, error), said));
    case EG_DOOR_REDIRECT:
    case EG_DOOR_TLS_NAME:
    case EG_DOOR_LOCAL:
    case EG_DOOR_PUBLISH:
        break;
    }
    return -EOPNOTSUPP;
}

static void conn_answer_error(struct conn *c, const struct reply *reply, int error)
{
    if (c->door == EG_DOOR_REDIRECT && !c->responded)
        redirect_reset(c); /* does not know of us: a reset is all it can understand */
    else if (c->responded || answer_put(c, reply, error) < 0)
        conn_close(c, true);
    else
        answer_start(c);
}

static void conn_answer(struct conn *c, const struct reply *reply)
{
    conn_answer_error(c, reply, 0);
}

void answer_bad(struct conn *c, int status, const char *detail, const char *hint)
{
    conn_answer(c, &(struct reply){.status = status,
                                   .code = status == 503 ? "limit" : "bad_request",
                                   .detail = detail,
                                   .hint = hint});
}

void answer_trouble(struct conn *c, int status, const char *code, const char *detail)
{
    conn_answer(
        c, &(struct reply){
               .status = status, .code = code, .host = c->host, .port = c->port, .detail = detail});
}

void answer_undialled(struct conn *c, const struct dialled *r)
{
    switch (r->outcome) {
    case EG_ADDRESS_CLASS:
        conn_answer(c, &(struct reply){.status = 403,
                                       .code = "private_address",
                                       .host = c->host,
                                       .port = c->port,
                                       .detail = r->detail,
                                       .rule = "address classes that are never dialled for a name",
                                       .hint = strstr(r->detail, " a private ") != NULL
                                                   ? "allow exactly this: a site for the host with "
                                                     "allow_private"
                                                   : "none: such addresses stay refused whatever "
                                                     "a rule says"});
        return;
    case EG_RESOLVE_FAILED:
        answer_trouble(c, 502, "resolve_failed", r->detail);
        return;
    case EG_TIMED_OUT:
        answer_trouble(c, 504, "upstream_timeout", r->detail);
        return;
    case EG_FAILED:
    case EG_OPENED:
    case EG_OWN_PORT:
    case EG_CONNECT_FAILED:
        conn_answer_error(c,
                          &(struct reply){.status = 502,
                                          .code = "upstream_failed",
                                          .host = c->host,
                                          .port = c->port,
                                          .detail = r->detail},
                          r->error);
        return;
    }
}

void verdict_deny(struct conn *c, const struct verdict_in *v)
{
    char detail[HOST_MAX + 200], target[HOST_MAX + 10];
    host_port_text(c->host, c->port, target);
    snprintf(detail, sizeof detail, "%s %s", target, reply_reason_text(v->reason));
    conn_answer(c, &(struct reply){.status = 403,
                                   .code = reply_reason_code(v->reason),
                                   .host = c->host,
                                   .port = c->port,
                                   .detail = detail,
                                   .rule = v->rule,
                                   .hint = v->hint});
}
