/* Runs in: daemon. Reads: trusted. May block: no.
 *
 * Turns: all that wakes a request happens here, never in the middle of a session's step. */
#include "api/http_parts.h"
#include "base/clock.h"
#include "base/mem.h"
#include <errno.h>
#include <microhttpd.h>
#include <string.h>

static void http_turn(struct http *h);

static void on_turn(uv_timer_t *t)
{
    http_turn(t->data);
}

static void turn_soon(struct http *h, uint64_t ms)
{
    if (uv_is_closing((uv_handle_t *)&h->turn))
        return;
    if (!uv_is_active((uv_handle_t *)&h->turn) || uv_timer_get_due_in(&h->turn) > ms)
        (void)uv_timer_start(&h->turn, on_turn, ms, 0);
}

void request_suspend(struct http_request *hr)
{
    hr->suspended = true;
    MHD_suspend_connection(hr->mhd);
    conn_watch_hangup(hr->conn, hr);
    if (hr->state == RQ_SENT) /* a silent stream is looked at, whatever else happens */
        turn_soon(hr->http, API_KEEPALIVE_MS);
}

static void request_resume(struct http_request *hr)
{
    if (!hr->suspended)
        return;
    hr->suspended = false;
    conn_ignore_hangup(hr->conn);
    MHD_resume_connection(hr->mhd);
    hr->conn->server->wants_run = true;
    turn_soon(hr->http, 0);
}

void request_dirty(struct http_request *hr)
{
    if (hr->dirty)
        return; /* its turn is set */
    hr->dirty = true;
    turn_soon(hr->http, 0);
}

static void request_unpark(struct http_request *hr)
{
    watch_remove(&hr->watch);
    hr->deadline = UINT64_MAX;
    hr->woken = NULL;
}

/* The client of a parked request hung up: its handler lets go, the connection is ended. */
void request_gone(struct http_request *hr)
{
    wake_fn *woken = hr->woken;

    hr->gone = true;
    if (hr->state == RQ_PARKED && woken) {
        request_unpark(hr);
        woken(&hr->rq, WAKE_GONE);
        if (hr->rq.reply.status) /* for its key; it is not sent */
            hr->http->cb.leaving(&hr->rq);
    }
    request_resume(hr);
}

static void request_woken(struct http_request *hr, uint64_t now)
{
    wake_fn *woken = hr->woken;

    hr->dirty = false;
    if (hr->state == RQ_SENT) {
        request_resume(hr);
        return;
    }
    if (hr->state != RQ_PARKED || !woken)
        return;
    if (hr->deadline <= now) {
        request_unpark(hr);
        woken(&hr->rq, WAKE_TIMEOUT);
    } else {
        woken(&hr->rq, WAKE_CHANGED);
    }
}

/* When a change that came is looked at. */
static uint64_t request_wakes(const struct http_request *hr, uint64_t now)
{
    if (!hr->dirty)
        return UINT64_MAX;
    return hr->state == RQ_SENT && hr->rq.reply.stream
               ? hr->last_sent + hr->rq.reply.stream->pace_ms
               : now;
}

static uint64_t request_due(const struct http_request *hr, uint64_t now)
{
    if (hr->state == RQ_PARKED)
        return hr->deadline;
    if (hr->state == RQ_SENT && hr->suspended && hr->rq.reply.stream->keepalive)
        return hr->last_sent + API_KEEPALIVE_MS;
    (void)now;
    return UINT64_MAX;
}

/* A stream that was silent for 15 s says so. */
static void stream_keepalive(struct http_request *hr, uint64_t now)
{
    hr->last_sent = now;
    hr->rq.reply.stream->keepalive(&hr->rq, &hr->chunk);
    request_resume(hr);
}

static void http_turn(struct http *h)
{
    uint64_t now = clock_now_ms(), next = UINT64_MAX, due;
    struct http_request *hr, *after;

    for (hr = h->requests; hr; hr = after) {
        after = hr->next;
        due = request_due(hr, now);
        if (hr->state == RQ_SENT && due <= now)
            stream_keepalive(hr, now);
        else if (request_wakes(hr, now) <= now || due <= now)
            request_woken(hr, now);
    }
    for (unsigned i = 0; i < h->n_servers; i++)
        if (h->servers[i].wants_run)
            server_run(&h->servers[i]);
    for (hr = h->requests; hr; hr = hr->next) {
        due = request_due(hr, now);
        next = due < next ? due : next;
        due = request_wakes(hr, now);
        next = due < next ? due : next;
    }
    if (next != UINT64_MAX)
        turn_soon(h, next <= now ? 0 : next - now);
}

void request_end(struct http_request *hr, const char *code)
{
    if (hr->state == RQ_PARKED) {
        (void)err_set(&hr->rq.err, -ECANCELED, code, NULL, "the request was ended");
        request_answer(&hr->rq, -ECANCELED);
    } else if (hr->state == RQ_SENT && hr->rq.reply.stream) {
        if (hr->rq.reply.stream->ending && !hr->ended)
            hr->rq.reply.stream->ending(&hr->rq, &hr->chunk, code);
        hr->ended = true;
        request_resume(hr);
    }
}

/* ---- What handlers call -----------------------------------------------------------------------
 */

void request_park(struct request *rq, struct watched *subject, uint64_t wait_ms, wake_fn *woken)
{
    struct http_request *hr = rq->http;
    uint64_t now = clock_now_ms();

    hr->rq.was_parked = true;
    watch_remove(&hr->watch);
    if (subject)
        watch_add(subject, &hr->watch);
    hr->state = RQ_PARKED;
    hr->woken = woken;
    hr->deadline = wait_ms == UINT64_MAX ? UINT64_MAX : now + wait_ms;
    if (hr->deadline != UINT64_MAX)
        turn_soon(hr->http, wait_ms);
}

void request_answer(struct request *rq, int r)
{
    struct http_request *hr = rq->http;

    request_unpark(hr);
    if (r < 0 && !err_is_set(&rq->err))
        (void)err_set(&rq->err, r, "internal", NULL, "%s", strerror(-r));
    hr->state = RQ_READY;
    request_resume(hr);
}

void request_stream(struct request *rq, const struct stream *stream, struct watched *subject)
{
    rq->reply.stream = stream;
    if (rq->reply.status == 0)
        rq->reply.status = 200;
    watch_remove(&rq->http->watch);
    if (subject)
        watch_add(subject, &rq->http->watch);
}
