/* Runs in: egress. Reads: hostile. May block: no. */
#include "egress/conn.h"
#include "base/fd.h"
#include "base/mem.h"
#include "egress/reply.h"
#include "egress/rewrite.h"
#include <errno.h>
#include <linux/netfilter_ipv4.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define HEAD_MS      60000                   /* for a whole request head */
#define IDLE_MS      300000                  /* between two requests */
#define CHECK_MS     (3700 * UINT64_C(1000)) /* a held answer may take an hour */
#define QUIET_MS     (3600 * UINT64_C(1000)) /* an exchange in which no byte moves */
#define DRAIN_MS     2000
#define READ_BYTES   16384
#define INTERIMS_MAX 32 /* 1xx responses before the final one */

enum conn_state {
    CONN_CLOSED = 0,
    CONN_HEAD,
    CONN_CHECKING,
    CONN_DIALLING,
    CONN_TUNNEL,
    CONN_REQUEST,  /* the response head is still to come; the request body may be under way */
    CONN_RESPONSE, /* the response body is under way; the request body may be too */
    CONN_ANSWERING,
    CONN_DRAINING /* all is said; what the client still sends is thrown away */
};

/* What the daemon is still owed for the present request. */
enum owed { OWED_NOTHING = 0, OWED_RESULT, OWED_CLOSED };

struct conn {
    struct closing closing;
    struct deadline deadline;
    struct egress *eg;
    uint32_t id, request;
    enum conn_state state;
    enum owed owed;
    struct peer *client, *up;
    struct str in;         /* read from the client, not yet taken */
    struct httphead *head; /* the one being read, of a request or a response */
    struct dial *dial;
    bool over_limit;

    /* The present request. */
    char host[HOST_MAX];
    uint16_t port;
    bool is_connect, is_head, is_upgrade, is_safe, wants_json, keep_alive, allow_private;
    int minor;
    enum body_kind body;
    uint64_t body_len;
    struct str up_head; /* as upstream will get it */
    unsigned interims;
    bool responded; /* bytes of a response are with the client */
    bool up_garbage;

    /* The upstream connection, which a later request to the same place may use again. */
    char up_host[HOST_MAX], up_address[DIAL_ADDRESS_MAX];
    uint16_t up_port;
    bool up_private, up_reused;

    struct flow to_up, to_client;
    uint64_t seen; /* bytes both ways when the deadline last passed */
    struct str out;
    size_t out_at;
};

static void conn_ready(void *arg, struct peer *p, int events);
static void head_read(struct conn *c);
static void exchange_step(struct conn *c);
static void tunnel_step(struct conn *c);

/* ---- What the daemon is told ---------------------------------------------------------------- */

static void tell_closed(struct conn *c)
{
    struct pack p = {0};
    pack_u32(&p, c->id);
    pack_u32(&p, c->request);
    pack_u64(&p, c->to_up.bytes);
    pack_u64(&p, c->to_client.bytes);
    pack_u8(&p, c->is_connect || c->state == CONN_TUNNEL);
    link_send(&c->eg->link, M_EG_CLOSED, &p);
    c->owed = OWED_NOTHING;
}

static void tell_result(struct conn *c, enum eg_outcome outcome, const char *address,
                        const char *detail)
{
    struct pack p = {0};
    if (c->owed == OWED_CLOSED) { /* dialled anew: the daemon was told of the first time */
        if (outcome != EG_OPENED)
            tell_closed(c);
        return;
    }
    pack_u32(&p, c->id);
    pack_u32(&p, c->request);
    pack_u8(&p, (uint8_t)outcome);
    pack_str(&p, address);
    pack_str(&p, detail);
    link_send(&c->eg->link, M_EG_RESULT, &p);
    c->owed = outcome == EG_OPENED ? OWED_CLOSED : OWED_NOTHING;
}

static void tell_end(struct conn *c, const char *why)
{
    if (c->owed == OWED_RESULT)
        tell_result(c, EG_FAILED, "", why);
    if (c->owed == OWED_CLOSED)
        tell_closed(c);
}

/* HOST as it came, N bytes, may be anything. */
static void tell_refused(struct conn *c, const char *host, size_t n, const char *why)
{
    CLEANUP(str_done) struct str text = {0};
    struct pack p = {0};
    (void)str_put_escaped(&text, host, n < 100 ? n : 100);
    pack_u32(&p, c->id);
    pack_str(&p, str_c(&text));
    pack_str(&p, why);
    link_send(&c->eg->link, M_EG_REFUSED, &p);
}

/* ---- Ends ----------------------------------------------------------------------------------- */

static void conn_freed(struct closing *closing)
{
    free(container_of(closing, struct conn, closing));
}

static void head_drop(struct conn *c)
{
    if (c->head != NULL)
        httphead_done(c->head);
    free(TAKE(c->head));
}

static void up_drop(struct conn *c, bool reset)
{
    peer_close(TAKE(c->up), reset);
    c->up_host[0] = '\0';
}

static void conn_close(struct conn *c, bool reset)
{
    if (c->state == CONN_CLOSED)
        return;
    tell_end(c, "the connection ended");
    c->state = CONN_CLOSED;
    egress_conn_remove(c->eg, c->id);
    dial_cancel(TAKE(c->dial));
    head_drop(c);
    peer_close(TAKE(c->client), reset);
    up_drop(c, reset);
    flow_done(&c->to_up);
    flow_done(&c->to_client);
    str_done(&c->in);
    str_done(&c->up_head);
    str_done(&c->out);
    closing_start(&c->closing);
}

/* Closing with unread bytes would reset the connection and take our last words with it: so the
 * client is told the end, and what it still sends is read away for a while. */
static void conn_drain(struct conn *c)
{
    tell_end(c, "");
    up_drop(c, false);
    c->state = CONN_DRAINING;
    (void)shutdown(c->client->fd, SHUT_WR);
    deadline_set(&c->deadline, DRAIN_MS);
    peer_want(c->client, UV_READABLE);
}

static void drain_step(struct conn *c)
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

static void answer_step(struct conn *c)
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
static void answer_start(struct conn *c)
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

static void answer_bad(struct conn *c, int status, const char *detail, const char *hint)
{
    conn_answer(c, &(struct reply){.status = status,
                                   .code = status == 503 ? "limit" : "bad_request",
                                   .detail = detail,
                                   .hint = hint});
}

static void answer_trouble(struct conn *c, int status, const char *code, const char *detail)
{
    conn_answer(
        c, &(struct reply){
               .status = status, .code = code, .host = c->host, .port = c->port, .detail = detail});
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
    case CONN_CLOSED:
    case CONN_HEAD:
    case CONN_DIALLING:
    case CONN_TUNNEL:
    case CONN_ANSWERING:
    case CONN_DRAINING:
        conn_close(c, false);
        return;
    }
}

/* ---- A request head ------------------------------------------------------------------------- */

static void head_start(struct conn *c, bool is_response)
{
    if (c->head == NULL)
        c->head = malloc(sizeof *c->head);
    if (c->head != NULL)
        httphead_init(c->head, c->eg->start.head_max, is_response);
}

static void request_next(struct conn *c)
{
    flow_done(&c->to_up);
    flow_done(&c->to_client);
    str_clear(&c->up_head);
    c->to_up.bytes = c->to_client.bytes = c->seen = 0;
    c->responded = c->is_connect = c->is_upgrade = c->is_head = c->wants_json = false;
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
    c->is_connect = h->target_kind == TARGET_AUTHORITY;
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

static void request_check(struct conn *c)
{
    struct pack p = {0};
    pack_u32(&p, c->id);
    pack_u32(&p, c->request);
    pack_u8(&p, c->is_connect ? EG_DOOR_CONNECT : EG_DOOR_HTTP);
    pack_str(&p, c->host);
    pack_u16(&p, c->port);
    c->state = CONN_CHECKING;
    head_drop(c);
    peer_want(c->client, 0);
    deadline_set(&c->deadline, CHECK_MS);
    link_send(&c->eg->link, M_EG_CHECK, &p);
}

static void request_refuse(struct conn *c, const char *why, const char *hint)
{
    tell_refused(c, c->head->target, c->head->target_len, why);
    answer_bad(c, 400, why, hint);
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
    if (c->is_connect) {
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
    if (rewrite_request(&c->up_head, h, c->host, c->port, path, path_len) < 0) {
        conn_close(c, true);
        return;
    }
    request_check(c);
}

/* The first byte of a connection tells the clients of other protocols. Their doors come later. */
static bool is_other_protocol(const struct conn *c, char first)
{
    return c->request == 0 && c->head->raw.len == 0 && (first == 4 || first == 5);
}

static void head_take(struct conn *c, const char *bytes, size_t n, size_t *ret_used)
{
    *ret_used = 0;
    if (is_other_protocol(c, bytes[0])) {
        tell_refused(c, "", 0, "SOCKS is not in this version");
        conn_close(c, true);
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
    return c->state == CONN_HEAD && c->head->end == 4;
}

static void head_read(struct conn *c)
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
}

/* ---- Upstream ------------------------------------------------------------------------------- */

static void socket_prepare(int fd)
{
    const int on = 1, idle = 60, interval = 20, count = 6;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

static void tunnel_start(struct conn *c)
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

/* The request to c->up. Its response may begin while its body is still under way. */
static void exchange_start(struct conn *c)
{
    c->state = CONN_REQUEST;
    c->up_garbage = false;
    deadline_set(&c->deadline, QUIET_MS);
    head_start(c, true);
    flow_init(&c->to_up, c->eg->pool, c->body, c->body_len);
    flow_init(&c->to_client, c->eg->pool, BODY_NONE, 0);
    if (c->head == NULL || flow_put(&c->to_up, c->up_head.data, c->up_head.len) < 0) {
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

static void upstream_ready(struct conn *c, const char *address)
{
    tell_result(c, EG_OPENED, address, "");
    if (c->is_connect)
        tunnel_start(c);
    else
        exchange_start(c);
}

static void answer_undialled(struct conn *c, const struct dialled *r)
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

static void conn_dialled(void *arg, const struct dialled *r)
{
    struct conn *c = arg;
    c->dial = NULL;
    if (r->outcome != EG_OPENED) {
        tell_result(c, r->outcome, r->address, r->detail);
        answer_undialled(c, r);
        return;
    }
    socket_prepare(r->fd);
    if (peer_new(c->eg->loop, r->fd, conn_ready, c, &c->up) < 0) {
        conn_close(c, true);
        return;
    }
    memcpy(c->up_host, c->host, sizeof c->up_host);
    memcpy(c->up_address, r->address, sizeof c->up_address);
    c->up_port = c->port;
    c->up_private = c->allow_private;
    c->up_reused = false;
    upstream_ready(c, c->up_address);
}

static void conn_dial(struct conn *c)
{
    const struct egress *eg = c->eg;
    const struct dial_deps deps = {eg->loop, eg->resolver, eg->route_fd, eg->start.dial_ms};
    up_drop(c, false);
    c->state = CONN_DIALLING;
    deadline_clear(&c->deadline); /* the dial has its own */
    if (dial_new(&deps, c->host, c->port, c->allow_private, conn_dialled, c, &c->dial) < 0) {
        conn_close(c, true);
        return;
    }
    dial_start(c->dial);
}

/* Same place, judged by the same rule, and nothing was heard of it since. */
static bool up_fits(const struct conn *c)
{
    char byte;
    return !c->is_connect && c->up != NULL && strcmp(c->up_host, c->host) == 0 &&
           c->up_port == c->port && c->up_private == c->allow_private &&
           recv(c->up->fd, &byte, 1, MSG_PEEK) < 0 && errno == EAGAIN;
}

static bool port_is_own(const struct egress_start *start, uint16_t port)
{
    for (size_t i = 0; i < ARRAY_LEN(start->own_ports); i++)
        if (start->own_ports[i] != 0 && start->own_ports[i] == port)
            return true;
    return false;
}

static void verdict_deny(struct conn *c, const struct verdict_in *v)
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

/* The proof's own name. */
static void verdict_self(struct conn *c)
{
    c->owed = OWED_RESULT;
    tell_result(c, EG_OPENED, "", "");
    c->owed = OWED_NOTHING;
    (void)str_puts(&c->out, c->is_connect ? "HTTP/1.1 200 Connection established\r\n\r\n"
                                          : "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
                                            "Content-Length: 3\r\nConnection: close\r\n\r\nok\n");
    answer_start(c);
}

static void verdict_allow(struct conn *c, const struct verdict_in *v)
{
    c->owed = OWED_RESULT;
    c->allow_private = v->flags & EG_ALLOW_PRIVATE;
    if (port_is_own(&c->eg->start, c->port)) {
        tell_result(c, EG_OWN_PORT, "", "the port is Cordon's own");
        verdict_deny(c, &(struct verdict_in){.reason = "own_port",
                                             .rule = "Cordon's own ports, whatever a rule says",
                                             .hint = NULL});
        return;
    }
    if (!up_fits(c)) {
        conn_dial(c);
        return;
    }
    c->up_reused = true;
    upstream_ready(c, c->up_address);
}

void conn_verdict(struct conn *c, uint32_t request, const struct verdict_in *v)
{
    if (c->state != CONN_CHECKING || c->request != request)
        return;
    deadline_clear(&c->deadline);
    switch (v->verdict) {
    case EG_ALLOW:
        verdict_allow(c, v);
        return;
    case EG_ANSWER_SELF:
        verdict_self(c);
        return;
    default: /* EG_DENY, and whatever is not known */
        verdict_deny(c, v);
        return;
    }
}

void conn_cut(struct conn *c)
{
    conn_close(c, true);
}

/* ---- A tunnel ------------------------------------------------------------------------------- */

static void waits_follow(struct conn *c)
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

static void tunnel_step(struct conn *c)
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

/* ---- An exchange of plain HTTP -------------------------------------------------------------- */

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

static void exchange_step(struct conn *c)
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

/* ---- The loop ------------------------------------------------------------------------------- */

static void conn_ready(void *arg, struct peer *p, int events)
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
    case CONN_CLOSED:
    case CONN_CHECKING:
    case CONN_DIALLING:
        if (p->wanted != 0)
            peer_want(p, 0);
        return;
    }
}

/* Was this connection meant for elsewhere, and sent to the door by the redirect? */
static bool is_redirected(int fd)
{
    struct sockaddr_storage own = {0}, wanted = {0};
    socklen_t n = sizeof own, n_wanted = sizeof wanted;
    if (getsockname(fd, (struct sockaddr *)&own, &n) < 0)
        return true;
    bool v6 = own.ss_family == AF_INET6;
    if (getsockopt(fd, v6 ? SOL_IPV6 : SOL_IP, SO_ORIGINAL_DST, &wanted, &n_wanted) < 0)
        return false; /* nothing is redirected here */
    if (v6) {
        struct sockaddr_in6 a, b;
        memcpy(&a, &own, sizeof a);
        memcpy(&b, &wanted, sizeof b);
        return a.sin6_port != b.sin6_port ||
               memcmp(&a.sin6_addr, &b.sin6_addr, sizeof a.sin6_addr) != 0;
    }
    struct sockaddr_in a, b;
    memcpy(&a, &own, sizeof a);
    memcpy(&b, &wanted, sizeof b);
    return a.sin_port != b.sin_port || a.sin_addr.s_addr != b.sin_addr.s_addr;
}

void conn_accept(struct egress *eg, int take_fd, bool over_limit)
{
    bool redirected = is_redirected(take_fd);
    struct conn *c = calloc(1, sizeof *c);
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
    if (redirected) { /* judged by the name its address stands for: comes with the redirect */
        tell_refused(c, "", 0, "a redirected connection: not in this version");
        conn_close(c, true);
        return;
    }
    request_next(c);
}
