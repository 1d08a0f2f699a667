/* Runs in: daemon. Reads: hostile (whoever reaches loopback). May block: no. */
#include "api/http_parts.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include <assert.h>
#include <errno.h>
#include <microhttpd.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum {
    POOL_BYTES = 64 << 10,
    DISCARD_MAX = 1 << 20 /* of a chunked body that turned out too large */
};

/* ---- The library's turn -----------------------------------------------------------------------
 */

static void on_server_timer(uv_timer_t *t)
{
    server_run(t->data);
}

/* Lets the library do what it can, then asks when it wants to be called next: every run may change
 * that. */
void server_run(struct server *s)
{
    MHD_UNSIGNED_LONG_LONG ms;

    s->wants_run = false;
    if (!s->mhd)
        return;
    (void)MHD_run(s->mhd);
    if (MHD_get_timeout(s->mhd, &ms) == MHD_YES)
        (void)uv_timer_start(&s->timer, on_server_timer, ms, 0);
    else
        (void)uv_timer_stop(&s->timer);
}

static void on_server_poll(uv_poll_t *p, int status, int events)
{
    (void)status;
    (void)events;
    server_run(p->data);
}

/* ---- The library's calls ----------------------------------------------------------------------
 */

static struct conn *conn_of(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info ? info->socket_context : NULL;
}

/* The target as it came, before the library takes it apart. */
static void *on_target(void *cls, const char *uri, struct MHD_Connection *mhd)
{
    struct conn *c = conn_of(mhd);

    (void)cls;
    return c ? request_new(c, mhd, uri) : NULL;
}

static enum MHD_Result on_head(struct http_request *hr)
{
    struct request *rq = &hr->rq;
    struct head *head = &rq->head;

    hr->http->cb.head(rq);
    hr->state = err_is_set(&rq->err) || rq->reply.status ? RQ_REFUSED : RQ_BODY;
    if (hr->state == RQ_BODY && rq->wants_upload)
        body_open(hr);
    /* Nothing of a refused body is read: the answer goes out now and the connection ends. Without a
     * body the answer waits for the second call, which keeps the connection. */
    if (hr->state == RQ_REFUSED && (head->is_chunked || head->length || rq->reply.must_close)) {
        rq->reply.must_close = true;
        return request_send(hr) ? MHD_YES : MHD_NO;
    }
    return MHD_YES;
}

static enum MHD_Result on_whole(struct http_request *hr)
{
    if (hr->gone)
        return MHD_NO;
    if (hr->state == RQ_BODY) {
        hr->state = RQ_READY;
        hr->http->cb.run(&hr->rq);
        if (hr->state == RQ_PARKED && hr->http->closing) {
            (void)err_set(&hr->rq.err, -ESHUTDOWN, "shutting_down", NULL, "the daemon is stopping");
            request_answer(&hr->rq, -ESHUTDOWN);
        }
    }
    if (hr->state == RQ_PARKED) {
        request_suspend(hr);
        return MHD_YES;
    }
    return request_send(hr) ? MHD_YES : MHD_NO;
}

/* Called with the head, with each piece of the body, at its end, and after each resume. */
static enum MHD_Result on_request(void *cls, struct MHD_Connection *mhd, const char *url,
                                  const char *method, const char *version, const char *bytes,
                                  size_t *n, void **req)
{
    struct http_request *hr = *req;

    (void)cls;
    (void)url;
    if (!hr)
        return MHD_NO;
    if (hr->state == RQ_NEW) {
        head_take(hr, method, version);
        (void)MHD_set_connection_option(mhd, MHD_CONNECTION_OPTION_TIMEOUT,
                                        (unsigned)API_BODY_IDLE_S);
        return on_head(hr);
    }
    if (*n) {
        body_take(hr, bytes, *n);
        *n = 0;
        return hr->rq.body_length > hr->rq.body_max + DISCARD_MAX ? MHD_NO : MHD_YES;
    }
    return on_whole(hr);
}

static void on_completed(void *cls, struct MHD_Connection *mhd, void **req,
                         enum MHD_RequestTerminationCode why)
{
    struct http_request *hr = *req;

    (void)cls;
    (void)mhd;
    if (!hr)
        return;
    *req = NULL;
    hr->conn->busy = false;
    hr->conn->since = clock_now_ms();
    if (why != MHD_REQUEST_TERMINATED_COMPLETED_OK && hr->rq.not_sent)
        hr->rq.not_sent(&hr->rq);
    else if (hr->rq.after_sent)
        hr->rq.after_sent(&hr->rq);
    request_free(hr);
}

void http_handle_closed(struct http *h)
{
    if (--h->n_handles > 0)
        return;
    if (h->socket_path)
        (void)unlink(h->socket_path);
    if (h->closed)
        h->closed(h->closed_arg);
    free(h->socket_path);
    free(h->spool_dir);
    free(h);
}

static void on_plain_closed(uv_handle_t *p)
{
    struct server *s = p->data;

    http_handle_closed(s->http);
}

static void on_http_closed(uv_handle_t *p)
{
    http_handle_closed(p->data);
}

static void on_connection(void *cls, struct MHD_Connection *mhd, void **context,
                          enum MHD_ConnectionNotificationCode what)
{
    const union MHD_ConnectionInfo *info;

    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
        *context = info ? conn_new(cls, info->connect_fd) : NULL;
    } else if (*context)
        conn_free(TAKE(*(struct conn **)(void *)context));
}

/* ---- Listeners --------------------------------------------------------------------------------
 */

static size_t keep_escapes(void *cls, struct MHD_Connection *mhd, char *text)
{
    (void)cls;
    (void)mhd;
    return strlen(text);
}

static int server_start(struct http *h, int take_listener, bool is_unix)
{
    struct server *s = &h->servers[h->n_servers];
    const union MHD_DaemonInfo *info;

    s->http = h;
    s->is_unix = is_unix;
    s->listener = take_listener;
    s->mhd = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET, 0, NULL, NULL,
        on_request, NULL, MHD_OPTION_URI_LOG_CALLBACK, on_target, NULL, MHD_OPTION_NOTIFY_COMPLETED,
        on_completed, NULL, MHD_OPTION_NOTIFY_CONNECTION, on_connection, s,
        MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)POOL_BYTES, MHD_OPTION_CONNECTION_LIMIT, (unsigned)API_CONNECTIONS_MAX,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)API_BODY_IDLE_S, MHD_OPTION_END);
    if (!s->mhd) {
        fd_close(take_listener);
        return -ENOMEM;
    }
    h->n_servers++;
    info = MHD_get_daemon_info(s->mhd, MHD_DAEMON_INFO_EPOLL_FD);
    assert(info);
    (void)uv_timer_init(h->loop, &s->timer);
    assert(uv_poll_init(h->loop, &s->poll, info->epoll_fd) == 0);
    h->n_handles += 2;
    s->poll.data = s->timer.data = s;
    assert(uv_poll_start(&s->poll, UV_READABLE, on_server_poll) == 0);
    server_run(s);
    assert(gates_open(s) == 0);
    return 0;
}

int http_listen_tcp(struct http *h, int first, bool fixed, uint16_t *ret_port, struct err *err)
{
    int v4 = -1, v6 = -1, r = listen_tcp(first, fixed, ret_port, &v4, &v6, err);

    if (r < 0)
        return r;
    r = server_start(h, v4, false);
    if (v6 >= 0 && r >= 0)
        return server_start(h, v6, false); /* takes it, also on failure */
    fd_close(v6);
    return r;
}

int http_listen_unix(struct http *h, const char *path, struct err *err)
{
    int fd = listen_unix(path, err);

    if (fd < 0)
        return fd;
    h->socket_path = strdup(path);
    return server_start(h, fd, true);
}

/* ---- Life -------------------------------------------------------------------------------------
 */

int http_new(uv_loop_t *loop, struct api_state *api, const struct http_callbacks *cb,
             const char *spool_dir, struct http **ret)
{
    struct http *h = calloc(1, sizeof *h);

    if (!h)
        return -ENOMEM;
    h->spool_dir = strdup(spool_dir);
    if (!h->spool_dir) {
        free(h);
        return -ENOMEM;
    }
    (void)signal(SIGPIPE, SIG_IGN); /* sendfile(2) has no MSG_NOSIGNAL */
    h->loop = loop;
    h->api = api;
    h->cb = *cb;
    (void)uv_timer_init(loop, &h->turn);
    (void)uv_timer_init(loop, &h->sweep);
    h->turn.data = h->sweep.data = h;
    h->n_handles = 2;
    *ret = h;
    return 0;
}

static bool is_of(const struct request *rq, const char *actor_id)
{
    return !actor_id || strcmp(rq->caller.actor.id, actor_id) == 0;
}

void http_end_all(struct http *h, const char *actor_id, const char *code)
{
    struct http_request *after;

    for (struct http_request *hr = h->requests; hr; hr = after) {
        after = hr->next;
        if (is_of(&hr->rq, actor_id))
            request_end(hr, code);
    }
}

static bool is_same(const struct caller *a, const struct caller *b)
{
    return a->has_token == b->has_token && strcmp(a->actor.id, b->actor.id) == 0;
}

unsigned http_streams(const struct http *h, const struct caller *caller)
{
    unsigned n = 0;

    for (const struct http_request *hr = h->requests; hr; hr = hr->next)
        if (hr->state == RQ_SENT && hr->rq.reply.stream &&
            (!caller || is_same(&hr->rq.caller, caller)))
            n++;
    return n;
}

void http_each(struct http *h, void (*fn)(struct request *rq, void *arg), void *arg)
{
    struct http_request *after;

    for (struct http_request *hr = h->requests; hr; hr = after) {
        after = hr->next;
        if (hr->state == RQ_PARKED || hr->state == RQ_READY ||
            (hr->state == RQ_SENT && hr->rq.reply.stream))
            fn(&hr->rq, arg);
    }
}

static void server_stop(struct server *s)
{
    uv_close((uv_handle_t *)&s->listen_poll, on_plain_closed);
    fd_close(s->listener);
    /* Before the library closes the descriptor. */
    uv_close((uv_handle_t *)&s->poll, on_plain_closed);
    uv_close((uv_handle_t *)&s->timer, on_plain_closed);
    MHD_stop_daemon(s->mhd);
    s->mhd = NULL;
}

void http_close(struct http *h, void (*closed)(void *arg), void *arg)
{
    h->closing = true;
    h->closed = closed;
    h->closed_arg = arg;
    http_end_all(h, NULL, "shutting_down");
    gates_close(h);
    /* Twice: once to resume and answer, once to send what is left. With one suspended the library
     * would abort. */
    for (unsigned i = 0; i < 2 * h->n_servers; i++)
        server_run(&h->servers[i % h->n_servers]);
    for (unsigned i = 0; i < h->n_servers; i++)
        server_stop(&h->servers[i]);
    uv_close((uv_handle_t *)&h->turn, on_http_closed);
    uv_close((uv_handle_t *)&h->sweep, on_http_closed);
}
