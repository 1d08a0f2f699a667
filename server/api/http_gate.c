/* Runs in: daemon. Reads: hostile. May block: no.
 *
 * Connections before their first request. Each waits here, its bytes looked at and left where they
 * are, until the head is whole; then the library gets it. What is no head, or comes after the limit
 * of connections, is answered here and closed.
 *
 * A head that comes in pieces keeps the socket readable, so it is looked at again after a pause
 * that doubles, and not by the socket's readiness. */
#include "api/http_head.h"
#include "api/http_parts.h"
#include "api/problem.h"
#include "base/clock.h"
#include "base/fd.h"
#include <errno.h>
#include <microhttpd.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    OVER_MAX = 64, /* connections past the limit that are still told so */
    ACCEPTS = 64,  /* at once, before others have their turn */
    PAUSE_MS = 2,  /* the first one after a piece of a head */
    PAUSE_MAX = 128,
    PIECES_MAX = 16,  /* then the library gets it as it is */
    LINGER_MS = 2000, /* what a refused client still sends is read for so long */
    LINGER_BYTES = 16 << 20
};

struct gate {
    struct http *http;
    struct server *server;
    struct gate *prev, *next;
    int fd;
    struct sockaddr_storage address;
    socklen_t address_len;
    uv_poll_t poll;
    uv_timer_t timer;
    uint64_t since, pause; /* ms */
    size_t seen;
    unsigned pieces;
    uint64_t discarded;
    bool over, lingers;
    unsigned n_open; /* handles */
    bool hands_over; /* to the library, once the handles are closed */
};

/* ---- The end of one ---------------------------------------------------------------------------
 */

static void gate_unlink(struct gate *g)
{
    struct http *h = g->http;

    h->n_gates--;
    if (g->prev)
        g->prev->next = g->next;
    else
        h->gates = g->next;
    if (g->next)
        g->next->prev = g->prev;
}

static void on_gate_closed(uv_handle_t *handle)
{
    struct gate *g = handle->data;
    struct http *h = g->http;

    if (--g->n_open == 0) {
        gate_unlink(g);
        if (!g->hands_over || h->closing)
            fd_close(g->fd);
        else if (MHD_add_connection(g->server->mhd, g->fd, (struct sockaddr *)&g->address,
                                    g->address_len) == MHD_YES) /* closes it, also on failure */
            server_run(g->server);
        free(g);
    }
    http_handle_closed(h);
}

static void gate_close(struct gate *g)
{
    if (uv_is_closing((uv_handle_t *)&g->poll))
        return;
    uv_close((uv_handle_t *)&g->poll, on_gate_closed);
    uv_close((uv_handle_t *)&g->timer, on_gate_closed);
}

/* ---- A refusal --------------------------------------------------------------------------------
 */

static const char *reason_of(int status)
{
    switch (status) {
    case 400:
        return "Bad Request";
    case 413:
        return "Content Too Large";
    case 429:
        return "Too Many Requests";
    case 431:
        return "Request Header Fields Too Large";
    default:
        return "Error";
    }
}

static void refusal_put(struct str *out, const struct request *rq, const char *body)
{
    char date[40];
    time_t now = (time_t)(clock_wall_ms() / 1000);
    struct tm tm;

    (void)strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&now, &tm));
    (void)str_printf(out,
                     "HTTP/1.1 %d %s\r\nDate: %s\r\nCache-Control: no-store\r\n"
                     "X-Content-Type-Options: nosniff\r\nX-Request-Id: %s\r\n"
                     "Content-Type: %s\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s",
                     rq->reply.status, reason_of(rq->reply.status), date, rq->id,
                     rq->reply.content_type, strlen(body), body);
}

/* Answers, then reads on for a while: closed at once, the answer would be lost with the rest. */
static void gate_refuse(struct gate *g, const char *code, const char *why)
{
    struct request rq = {.api = g->http->api, .body_fd = -1, .reply.fd = -1};
    struct str out = {0};
    char *body;

    id_new("req", rq.id);
    (void)err_set(&rq.err, -EINVAL, code, NULL, "%s", why);
    problem_reply(&rq);
    body = rq.reply.json ? json_dumps(rq.reply.json, JSON_COMPACT) : NULL;
    if (body)
        refusal_put(&out, &rq, body);
    if (out.len > 0) /* a client that does not take it in one piece goes without */
        (void)send(g->fd, out.data, out.len, MSG_NOSIGNAL);
    (void)shutdown(g->fd, SHUT_WR);
    free(body);
    str_done(&out);
    request_done(&rq);
    g->lingers = true;
}

static void on_gate_poll(uv_poll_t *p, int status, int events);

/* false: it is over. */
static bool gate_discard(struct gate *g)
{
    char bytes[16 << 10];
    ssize_t n = recv(g->fd, bytes, sizeof bytes, MSG_DONTWAIT);

    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    g->discarded += (uint64_t)n;
    return n > 0 && g->discarded < LINGER_BYTES;
}

static void on_lingered(uv_timer_t *t)
{
    gate_close(t->data);
}

/* ---- A head -----------------------------------------------------------------------------------
 */

static void gate_look(struct gate *g);

static void on_pause(uv_timer_t *t)
{
    gate_look(t->data);
}

static void gate_refused(struct gate *g, const char *code, const char *why)
{
    gate_refuse(g, code, why);
    (void)uv_timer_start(&g->timer, on_lingered, LINGER_MS, 0);
    if (uv_poll_start(&g->poll, UV_READABLE, on_gate_poll) < 0)
        gate_close(g);
}

static void gate_pass(struct gate *g)
{
    g->hands_over = true;
    gate_close(g);
}

static void gate_pause(struct gate *g, size_t n)
{
    if (n > g->seen && ++g->pieces > PIECES_MAX) {
        gate_pass(g);
        return;
    }
    g->pause = n > g->seen || g->pause == 0 ? PAUSE_MS : g->pause * 2;
    if (g->pause > PAUSE_MAX) {
        /* A unix socket holds few small pieces: the client may be waiting for us to read them. */
        if (g->server->is_unix) {
            gate_pass(g);
            return;
        }
        g->pause = PAUSE_MAX;
    }
    g->seen = n;
    (void)uv_poll_stop(&g->poll);
    (void)uv_timer_start(&g->timer, on_pause, g->pause, 0);
}

static void gate_look(struct gate *g)
{
    char bytes[API_HEAD_MAX + 1];
    const char *code = NULL, *why = NULL;
    ssize_t n = recv(g->fd, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        if (uv_poll_start(&g->poll, UV_READABLE, on_gate_poll) < 0)
            gate_close(g);
        return;
    }
    if (n <= 0) {
        gate_close(g);
        return;
    }
    switch (head_judge(bytes, (size_t)n, &code, &why)) {
    case HEAD_REFUSED:
        gate_refused(g, code, why);
        break;
    case HEAD_PARTIAL:
        gate_pause(g, (size_t)n);
        break;
    case HEAD_WHOLE:
        if (g->over) {
            gate_refused(g, "too_many", "more than 512 connections");
            break;
        }
        gate_pass(g);
        break;
    }
}

static void on_gate_poll(uv_poll_t *p, int status, int events)
{
    struct gate *g = p->data;

    (void)events;
    if (status < 0)
        gate_close(g);
    else if (!g->lingers)
        gate_look(g);
    else if (!gate_discard(g))
        gate_close(g);
}

/* ---- A new one --------------------------------------------------------------------------------
 */

static void gate_new(struct server *s, int take_fd, const struct sockaddr_storage *address,
                     socklen_t n)
{
    struct http *h = s->http;
    struct gate *g =
        h->n_conns + h->n_gates < API_CONNECTIONS_MAX + OVER_MAX ? calloc(1, sizeof *g) : NULL;

    if (!g || uv_poll_init(h->loop, &g->poll, take_fd) < 0) {
        fd_close(take_fd);
        free(g);
        return;
    }
    (void)uv_timer_init(h->loop, &g->timer);
    g->poll.data = g->timer.data = g;
    g->n_open = 2;
    h->n_handles += 2;
    g->http = h;
    g->server = s;
    g->fd = take_fd;
    g->address = *address;
    g->address_len = n;
    g->since = clock_now_ms();
    g->over = h->n_conns + ++h->n_gates > API_CONNECTIONS_MAX;
    g->next = h->gates;
    if (g->next)
        g->next->prev = g;
    h->gates = g;
    conn_sweep_start(h);
    gate_look(g);
}

static void on_listener(uv_poll_t *p, int status, int events)
{
    struct server *s = p->data;

    (void)events;
    for (int i = 0; i < ACCEPTS && status == 0; i++) {
        struct sockaddr_storage address = {0};
        socklen_t n = sizeof address;
        int fd =
            accept4(s->listener, (struct sockaddr *)&address, &n, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            return;
        gate_new(s, fd, &address, n);
    }
}

int gates_open(struct server *s)
{
    int r = uv_poll_init(s->http->loop, &s->listen_poll, s->listener);

    if (r < 0)
        return r;
    s->listen_poll.data = s;
    s->http->n_handles++;
    return uv_poll_start(&s->listen_poll, UV_READABLE, on_listener);
}

void gates_sweep(struct http *h, uint64_t now)
{
    for (struct gate *g = h->gates; g; g = g->next)
        if (!g->lingers && !g->hands_over && now - g->since > API_HEAD_MS)
            gate_close(g);
}

void gates_close(struct http *h)
{
    for (struct gate *g = h->gates; g; g = g->next)
        gate_close(g);
}
