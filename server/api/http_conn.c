/* Runs in: daemon. Reads: hostile. May block: no. */
#include "api/http_parts.h"
#include "base/clock.h"
#include "base/mem.h"
#include <sys/socket.h>

#define SWEEP_MS 500

static void on_hangup(uv_poll_t *p, int status, int events)
{
    struct conn *c = p->data;

    if ((status < 0 || (events & UV_DISCONNECT)) && c->waiting)
        request_gone(c->waiting);
}

void conn_watch_hangup(struct conn *c, struct http_request *waiting)
{
    if (!c->has_poll && uv_poll_init(c->http->loop, &c->poll, c->fd) == 0) {
        c->has_poll = true;
        c->http->n_handles++;
        c->poll.data = c;
    }
    c->waiting = waiting;
    if (c->has_poll)
        (void)uv_poll_start(&c->poll, UV_DISCONNECT, on_hangup);
}

void conn_ignore_hangup(struct conn *c)
{
    if (c->has_poll)
        (void)uv_poll_stop(&c->poll);
    c->waiting = NULL;
}

static void on_conn_poll_closed(uv_handle_t *p)
{
    struct conn *c = p->data;
    struct http *h = c->http;

    free(c);
    http_handle_closed(h);
}

/* A token that was revoked or has expired ends what still waits or streams for it. */
static void sweep_requests(struct http *h)
{
    struct http_request *after;

    for (struct http_request *hr = h->requests; hr; hr = after) {
        after = hr->next;
        if ((hr->state == RQ_PARKED || (hr->state == RQ_SENT && hr->rq.reply.stream)) &&
            !hr->ended && !hr->gone && !h->cb.is_valid(&hr->rq))
            request_end(hr, "token_invalid");
    }
}

static void on_sweep(uv_timer_t *t)
{
    struct http *h = t->data;
    uint64_t now = clock_now_ms();

    sweep_requests(h);

    for (struct conn *c = h->conns; c; c = c->next)
        if (!c->busy && now - c->since > API_HEAD_MS)
            (void)shutdown(c->fd, SHUT_RDWR);
    gates_sweep(h, now);
    if (!h->conns && !h->gates)
        (void)uv_timer_stop(t);
}

void conn_sweep_start(struct http *h)
{
    if (!uv_is_active((uv_handle_t *)&h->sweep) && !h->closing)
        (void)uv_timer_start(&h->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
}

static int64_t peer_uid_of(int fd, bool is_unix)
{
    struct ucred peer = {0};
    socklen_t n = sizeof peer;

    /* On TCP the call succeeds too, with a uid that means nothing. */
    if (!is_unix || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) != 0)
        return -1;
    return (int64_t)peer.uid;
}

struct conn *conn_new(struct server *s, int fd)
{
    struct http *h = s->http;
    struct conn *c = calloc(1, sizeof *c);

    if (!c)
        return NULL;
    c->http = h;
    c->server = s;
    c->fd = fd;
    c->since = clock_now_ms();
    c->peer_uid = peer_uid_of(c->fd, s->is_unix);
    h->n_conns++;
    c->next = h->conns;
    if (c->next)
        c->next->prev = c;
    h->conns = c;
    conn_sweep_start(h);
    return c;
}

void conn_free(struct conn *c)
{
    struct http *h = c->http;

    h->n_conns--;
    if (c->prev)
        c->prev->next = c->next;
    else
        h->conns = c->next;
    if (c->next)
        c->next->prev = c->prev;
    free(TAKE(c->spare));
    if (c->has_poll)
        uv_close((uv_handle_t *)&c->poll, on_conn_poll_closed);
    else
        free(c);
}
