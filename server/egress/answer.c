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

static void conn_answer(struct conn *c, const struct reply *reply)
{
    if (c->responded || reply_put(&c->out, reply, c->wants_json, c->is_head) < 0) {
        conn_close(c, true);
        return;
    }
    answer_start(c);
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
        answer_trouble(c, 502, "upstream_failed", r->detail);
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
