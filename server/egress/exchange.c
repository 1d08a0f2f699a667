/* Runs in: egress. Reads: hostile. May block: no.
 *
 * An exchange of plain HTTP: the request to the server, its response to the client. */
#include "base/mem.h"
#include "egress/conn_parts.h"
#include "egress/rewrite.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#define INTERIMS_MAX 32 /* 1xx responses before the final one */

static int head_put(struct conn *c)
{
    CLEANUP(str_done) struct str head = {0};
    if (!c->is_forwarded)
        return flow_put(&c->to_up, c->up_head.data, c->up_head.len);
    int r = rewrite_for_proxy(&head, &c->up_head, c->proxy->authorization);
    return r < 0 ? r : flow_put(&c->to_up, head.data, head.len);
}

/* The request to c->up. Its response may begin while its body is still under way. */
void exchange_start(struct conn *c)
{
    c->state = CONN_REQUEST;
    c->up_garbage = false;
    deadline_set(&c->deadline, QUIET_MS);
    head_start(c, true);
    flow_init(&c->to_up, c->eg->pool, c->body, c->body_len);
    flow_init(&c->to_client, c->eg->pool, BODY_NONE, 0);
    if (c->head == NULL || head_put(c) < 0) {
        conn_close(c, true);
        return;
    }
    ssize_t used = flow_take(&c->to_up, c->in.data, c->in.len);
    if (used == -EBADMSG) {
        tell_end(c, "bad chunking");
        answer_bad(c, 400, "the chunked body is malformed", NULL);
        return;
    }
    if (used < 0) {
        conn_close(c, true);
        return;
    }
    str_consume(&c->in, (size_t)used);
    exchange_step(c);
}

/* The whole response is with the client. */
static void exchange_end(struct conn *c, bool up_stays)
{
    bool whole = c->to_up.state == FLOW_DONE;
    tell_end(c, "");
    if (!up_stays || !whole || c->up_garbage)
        up_drop(c, !whole);
    if (!whole || !c->keep_alive) {
        conn_drain(c);
        return;
    }
    if (c->to_up.rest.len > 0) { /* the next request came with the end of this one's body */
        if (str_add(&c->to_up.rest, c->in.data, c->in.len) < 0) {
            conn_close(c, true);
            return;
        }
        str_done(&c->in);
        c->in = c->to_up.rest;
        c->to_up.rest = (struct str){0};
    }
    request_next(c);
}

/* The server ended before it answered. */
static void exchange_unanswered(struct conn *c, const char *why)
{
    /* A kept connection may have been closed just when it was used again (RFC 9112, 9.3.1). */
    if (c->up_reused && c->is_safe && c->head->raw.len == 0 && c->interims == 0) {
        flow_done(&c->to_up);
        flow_done(&c->to_client);
        conn_dial(c);
        return;
    }
    tell_end(c, "");
    answer_trouble(c, 502, "upstream_failed", why);
}

static void exchange_upgrade(struct conn *c, const char *rest, size_t n)
{
    struct rewrite_response how = {.keep_alive = true, .client_minor = c->minor, .upgraded = true};
    CLEANUP(str_done) struct str head = {0};
    uint64_t up = c->to_up.bytes, down = c->to_client.bytes;
    if (rewrite_response(&head, c->head, &how) < 0) {
        conn_close(c, true);
        return;
    }
    head_drop(c);
    flow_done(&c->to_up);
    flow_init(&c->to_up, c->eg->pool, BODY_UNTIL_CLOSE, 0);
    c->to_client.kind = BODY_UNTIL_CLOSE;
    c->to_client.ended = false;
    c->to_client.state = FLOW_OPEN;
    c->to_up.bytes = up;
    c->to_client.bytes = down;
    c->state = CONN_TUNNEL;
    c->responded = true;
    deadline_clear(&c->deadline);
    if (flow_put(&c->to_client, head.data, head.len) < 0 || flow_take(&c->to_client, rest, n) < 0 ||
        flow_take(&c->to_up, c->in.data, c->in.len) < 0) {
        conn_close(c, true);
        return;
    }
    str_done(&c->in);
    tunnel_step(c);
}

static void response_interim(struct conn *c, const char *rest, size_t n);

/* The response's head is here; REST, N bytes, came behind it. */
static void response_start(struct conn *c, const char *rest, size_t n)
{
    const struct httphead *h = c->head;
    struct rewrite_response how = {.client_minor = c->minor};
    if (h->status == 101) {
        if (c->is_upgrade && c->to_up.state == FLOW_DONE) {
            exchange_upgrade(c, rest, n);
            return;
        }
        tell_end(c, "");
        answer_trouble(c, 502, "upstream_failed", "the server switched protocols unasked");
        return;
    }
    if (h->status < 200) {
        response_interim(c, rest, n);
        return;
    }
    if (c->is_forwarded && h->status == 407) {
        tell_end(c, "");
        answer_trouble(c, 502, "upstream_failed", "the upstream proxy wants other credentials");
        return;
    }
    enum body_kind body = c->is_head ? BODY_NONE : h->body;
    if (c->minor == 0 && body == BODY_CHUNKED) {
        tell_end(c, "");
        answer_trouble(c, 502, "upstream_failed",
                       "the server answered HTTP/1.0 with a chunked body");
        return;
    }
    c->keep_alive = c->keep_alive && body != BODY_UNTIL_CLOSE && c->to_up.state == FLOW_DONE;
    how.keep_alive = c->keep_alive;
    c->up_garbage = !h->keep_alive || body == BODY_UNTIL_CLOSE;
    CLEANUP(str_done) struct str head = {0};
    if (rewrite_response(&head, h, &how) < 0) {
        conn_close(c, true);
        return;
    }
    struct flow *f = &c->to_client;
    f->kind = body;
    f->left = body == BODY_LENGTH ? h->body_len : 0;
    f->ended = body == BODY_NONE;
    f->state = FLOW_OPEN;
    head_drop(c);
    c->state = CONN_RESPONSE;
    c->responded = true;
    if (flow_put(f, head.data, head.len) < 0) {
        conn_close(c, true);
        return;
    }
    ssize_t used = flow_take(f, rest, n);
    if (used < 0) {
        conn_close(c, true);
        return;
    }
    c->up_garbage |= (size_t)used < n;
    exchange_step(c);
}

static void response_take(struct conn *c, const char *bytes, size_t n)
{
    size_t used;
    switch (httphead_feed(c->head, bytes, n, &used)) {
    case HEAD_MORE:
        return;
    case HEAD_BAD:
        tell_end(c, "");
        answer_trouble(c, 502, "upstream_failed",
                       "the server's answer is not HTTP that can be passed on");
        return;
    case HEAD_DONE:
        response_start(c, bytes + used, n - used);
        return;
    }
}

/* 100, 102, 103: passed on to clients that know them; another head follows. */
static void response_interim(struct conn *c, const char *rest, size_t n)
{
    struct rewrite_response how = {.keep_alive = true, .client_minor = c->minor};
    CLEANUP(str_done) struct str head = {0};
    if (++c->interims > INTERIMS_MAX) {
        conn_close(c, true);
        return;
    }
    if (c->minor > 0 && (rewrite_response(&head, c->head, &how) < 0 ||
                         flow_put(&c->to_client, head.data, head.len) < 0)) {
        conn_close(c, true);
        return;
    }
    c->to_client.state = FLOW_OPEN;
    httphead_done(c->head);
    head_start(c, true);
    if (n > 0)
        response_take(c, rest, n);
}

/* Reads on in the response's head. */
static void response_read(struct conn *c)
{
    char bytes[READ_BYTES];
    ssize_t n = recv(c->up->fd, bytes, sizeof bytes, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n == 0) {
        exchange_unanswered(c, "the server closed the connection before it answered");
        return;
    }
    if (n < 0) {
        exchange_unanswered(c, "the server reset the connection before it answered");
        return;
    }
    response_take(c, bytes, (size_t)n);
}

/* False when that was the end of it. */
static bool request_pump(struct conn *c)
{
    if (c->to_up.state != FLOW_OPEN)
        return true;
    switch (flow_pump(&c->to_up, c->client, c->up)) {
    case FLOW_OPEN:
    case FLOW_DONE:
    case FLOW_BROKEN_TO: /* it may have answered before: that is still to be read */
        return true;
    case FLOW_BAD:
        tell_end(c, "");
        answer_bad(c, 400, "the chunked body is malformed", NULL);
        return false;
    case FLOW_BROKEN_FROM:
        break;
    }
    conn_close(c, true);
    return false;
}

void exchange_step(struct conn *c)
{
    if (!request_pump(c))
        return;
    if (c->state == CONN_REQUEST) {
        enum flow_state interim = flow_pump(&c->to_client, c->up, c->client);
        if (interim == FLOW_BROKEN_TO) {
            conn_close(c, true);
            return;
        }
        response_read(c);
        if (c->state == CONN_REQUEST && c->to_client.first.len > 0 &&
            flow_pump(&c->to_client, c->up, c->client) == FLOW_BROKEN_TO) {
            conn_close(c, true);
            return;
        }
        if (c->state == CONN_REQUEST)
            waits_follow(c);
        return;
    }
    switch (flow_pump(&c->to_client, c->up, c->client)) {
    case FLOW_OPEN:
        waits_follow(c);
        return;
    case FLOW_DONE:
        c->up_garbage |= c->to_client.rest.len > 0;
        exchange_end(c, true);
        return;
    case FLOW_BAD:
    case FLOW_BROKEN_FROM:
    case FLOW_BROKEN_TO: /* a reset, so that half a body is not taken for a whole one */
        conn_close(c, true);
        return;
    }
}
