/* Runs in: egress. Reads: hostile. May block: no.
 *
 * The door of HTTP clients: CONNECT, and plain HTTP with an absolute URI. */
#include "base/mem.h"
#include "egress/conn_parts.h"
#include "egress/names.h"
#include "egress/rewrite.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#define HEAD_MS 60000  /* for a whole request head */
#define IDLE_MS 300000 /* between two requests */

void head_start(struct conn *c, bool is_response)
{
    if (c->head == NULL)
        c->head = malloc(sizeof *c->head);
    if (c->head != NULL)
        httphead_init(c->head, c->eg->start.head_max, is_response);
}

void request_next(struct conn *c)
{
    flow_done(&c->to_up);
    flow_done(&c->to_client);
    str_clear(&c->up_head);
    c->to_up.bytes = c->to_client.bytes = c->seen = 0;
    c->responded = c->is_named = c->is_tunnel = c->is_upgrade = c->is_head = c->wants_json = false;
    c->interims = 0;
    c->host[0] = '\0';
    c->state = CONN_HEAD;
    head_start(c, false);
    if (c->head == NULL) {
        conn_close(c, true);
        return;
    }
    deadline_set(&c->deadline, c->request == 0 ? HEAD_MS : IDLE_MS);
    peer_want(c->client, UV_READABLE);
    if (c->up != NULL)
        peer_want(c->up, UV_READABLE); /* whatever it says now, it is not used again */
    if (c->in.len > 0)
        head_read(c);
}

static bool method_is(const struct httphead *h, const char *method)
{
    return h->method_len == strlen(method) && memcmp(h->method, method, h->method_len) == 0;
}

static void request_note(struct conn *c, const struct httphead *h)
{
    const struct head_field *accept = httphead_find(h, "accept");
    c->is_tunnel = h->target_kind == TARGET_AUTHORITY;
    c->door = c->is_tunnel ? EG_DOOR_CONNECT : EG_DOOR_HTTP;
    c->is_head = method_is(h, "HEAD");
    c->is_upgrade = h->upgrade;
    c->is_safe =
        h->body == BODY_NONE && (c->is_head || method_is(h, "GET") || method_is(h, "OPTIONS"));
    c->minor = h->minor > 0 ? 1 : 0;
    c->keep_alive = h->keep_alive;
    c->body = h->body;
    c->body_len = h->body_len;
    c->wants_json = accept != NULL && memmem(accept->value, accept->value_len, "json", 4) != NULL;
}

static void request_refuse(struct conn *c, const char *why, const char *hint)
{
    tell_refused(c, c->head->target, c->head->target_len, why);
    answer_bad(c, 400, why, hint);
}

/* False when it is refused. */
static bool host_settle(struct conn *c)
{
    if (names_settle(c->eg->names, c->host) == 0)
        return true;
    request_refuse(c, "the address is one of this session that stands for no name", NULL);
    return false;
}

static void request_start(struct conn *c)
{
    const struct httphead *h = c->head;
    const char *path = "", *why;
    size_t path_len = 0;
    c->request++;
    request_note(c, h);
    if (c->over_limit) {
        tell_refused(c, h->target, h->target_len, "too many connections at once");
        answer_bad(c, 503, "this session has too many connections open",
                   "close some, or make fewer at once");
        return;
    }
    if (c->is_tunnel) {
        if (h->body != BODY_NONE) {
            request_refuse(c, "a CONNECT request has no body", NULL);
            return;
        }
        if (host_port_parse(h->target, h->target_len, 0, c->host, &c->port) == HOST_BAD) {
            request_refuse(c, "the target of CONNECT is not a plain host:port",
                           "a name, an IPv4 address in four decimal parts, or IPv6 in "
                           "brackets, then a port");
            return;
        }
        if (host_settle(c))
            request_check(c);
        return;
    }
    if (h->target_kind != TARGET_ABSOLUTE) {
        request_refuse(c, "this is a proxy: it takes CONNECT, and http:// URIs",
                       "set it as HTTP_PROXY and HTTPS_PROXY");
        return;
    }
    why = uri_parse(h->target, h->target_len, c->host, &c->port, &path, &path_len);
    if (why != NULL) {
        request_refuse(c, why, NULL);
        return;
    }
    if (!host_settle(c))
        return;
    if (rewrite_request(&c->up_head, h, c->host, c->port, path, path_len) < 0) {
        conn_close(c, true);
        return;
    }
    request_check(c);
}

/* The first byte of a connection tells the clients of other protocols. */
static bool is_socks(const struct conn *c, char first)
{
    return c->request == 0 && c->head->raw.len == 0 && socks_is_first(first);
}

static void head_take(struct conn *c, const char *bytes, size_t n, size_t *ret_used)
{
    *ret_used = 0;
    if (c->socks == NULL && is_socks(c, bytes[0]) && socks_start(c, bytes[0]) < 0) {
        conn_close(c, true);
        return;
    }
    if (c->socks != NULL) {
        socks_take(c, bytes, n, ret_used);
        return;
    }
    switch (httphead_feed(c->head, bytes, n, ret_used)) {
    case HEAD_MORE:
        return;
    case HEAD_BAD:
        tell_refused(c, c->head->raw.data != NULL ? c->head->raw.data : "", c->head->raw.len,
                     c->head->why);
        answer_bad(c, 400, c->head->why, NULL);
        return;
    case HEAD_DONE:
        return;
    }
}

static bool head_is_done(const struct conn *c)
{
    return c->state == CONN_HEAD && c->head != NULL && c->head->end == 4;
}

void head_read(struct conn *c)
{
    char bytes[READ_BYTES];
    size_t used;
    if (c->in.len > 0) {
        head_take(c, c->in.data, c->in.len, &used);
        if (c->state != CONN_CLOSED)
            str_consume(&c->in, used);
    } else {
        ssize_t n = recv(c->client->fd, bytes, sizeof bytes, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            conn_close(c, false);
            return;
        }
        head_take(c, bytes, (size_t)n, &used);
        if (c->state == CONN_HEAD && used < (size_t)n &&
            str_add(&c->in, bytes + used, (size_t)n - used) < 0) {
            conn_close(c, true);
            return;
        }
    }
    if (head_is_done(c))
        request_start(c);
    else if (socks_is_asked(c))
        socks_request(c);
}
