/* Runs in: daemon. Reads: hostile (whoever reaches loopback). May block: no; uploads are written to
 * an unnamed file in pieces of at most 64 KiB. */
#include "api/http.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    SERVERS_MAX = 3,
    POOL_BYTES = 64 << 10,
    CHUNK_BYTES = 64 << 10,
    OVER_MAX = 64,         /* connections past the limit that are still told so */
    DISCARD_MAX = 1 << 20, /* of a chunked body that turned out too large */
    BACKLOG = 128,
    SWEEP_MS = 1000
};

enum request_state { RQ_NEW = 0, RQ_BODY, RQ_REFUSED, RQ_PARKED, RQ_READY, RQ_SENT };

struct server {
    struct http *http;
    struct MHD_Daemon *mhd;
    uv_poll_t poll;   /* the library's epoll descriptor */
    uv_timer_t timer; /* the library's next deadline */
    bool is_unix, wants_run;
};

struct http {
    uv_loop_t *loop;
    struct api_state *api;
    struct http_callbacks cb;
    char *spool_dir, *socket_path;
    struct server servers[SERVERS_MAX];
    unsigned n_servers, n_conns, n_handles;
    uv_timer_t turn;  /* wakes parked requests: changes and deadlines */
    uv_timer_t sweep; /* ends heads that never come */
    struct conn *conns;
    struct http_request *requests;
    bool closing;
    void (*closed)(void *arg);
    void *closed_arg;
};

struct conn {
    struct http *http;
    struct server *server;
    struct conn *prev, *next;
    int fd;
    uint64_t since; /* ms: the present head is waited for since then */
    bool busy, over, has_poll;
    int64_t peer_uid;
    uv_poll_t poll; /* notices a hang-up while suspended */
    struct http_request *waiting;
};

struct http_request {
    struct request rq;
    struct http *http;
    struct conn *conn;
    struct MHD_Connection *mhd;
    struct http_request *prev, *next;
    enum request_state state;
    bool suspended, gone, dirty, ended;
    uint64_t deadline;  /* of a parked request, UINT64_MAX = none */
    uint64_t last_sent; /* of a stream */
    wake_fn *woken;
    struct watch watch;
    struct str chunk;
};

const char *const METHOD_NAMES[] = {"OTHER", "GET",    "POST",    "PUT",
                                    "PATCH", "DELETE", "OPTIONS", NULL};

/* ---- Turns ------------------------------------------------------------------------------------
 */

static void server_run(struct server *s);

static void on_server_timer(uv_timer_t *t)
{
    server_run(t->data);
}

/* Lets the library do what it can, then asks when it wants to be called next: every run may change
 * that. */
static void server_run(struct server *s)
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

static void hangup_stop(struct http_request *hr)
{
    if (hr->conn->has_poll)
        (void)uv_poll_stop(&hr->conn->poll);
    hr->conn->waiting = NULL;
}

static void request_resume(struct http_request *hr)
{
    if (!hr->suspended)
        return;
    hr->suspended = false;
    hangup_stop(hr);
    MHD_resume_connection(hr->mhd);
    hr->conn->server->wants_run = true;
    turn_soon(hr->http, 0);
}

static void request_dirty(struct http_request *hr)
{
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
static void request_gone(struct http_request *hr)
{
    wake_fn *woken = hr->woken;

    hr->gone = true;
    if (hr->state == RQ_PARKED && woken) {
        request_unpark(hr);
        woken(&hr->rq, WAKE_GONE);
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
        else if (hr->dirty || due <= now)
            request_woken(hr, now);
    }
    for (unsigned i = 0; i < h->n_servers; i++)
        if (h->servers[i].wants_run)
            server_run(&h->servers[i]);
    for (hr = h->requests; hr; hr = hr->next) {
        due = hr->dirty ? now : request_due(hr, now);
        next = due < next ? due : next;
    }
    if (next != UINT64_MAX)
        turn_soon(h, next <= now ? 0 : next - now);
}

/* ---- What handlers call -----------------------------------------------------------------------
 */

static void on_watched(struct watch *w)
{
    request_dirty(container_of(w, struct http_request, watch));
}

void request_park(struct request *rq, struct watched *subject, uint64_t wait_ms, wake_fn *woken)
{
    struct http_request *hr = rq->http;
    uint64_t now = clock_now_ms();

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

void request_wake(struct request *rq)
{
    request_dirty(rq->http);
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

/* ---- Requests ---------------------------------------------------------------------------------
 */

static void request_free(struct http_request *hr)
{
    struct request *rq = &hr->rq;

    watch_remove(&hr->watch);
    if (hr->prev)
        hr->prev->next = hr->next;
    else
        hr->http->requests = hr->next;
    if (hr->next)
        hr->next->prev = hr->prev;
    if (rq->state_done)
        rq->state_done(rq->state);
    request_done(rq);
    str_done(&hr->chunk);
    free(hr);
}

static struct http_request *request_new(struct conn *c, struct MHD_Connection *mhd,
                                        const char *target)
{
    struct http_request *hr = calloc(1, sizeof *hr);

    if (!hr)
        return NULL;
    hr->rq.target = strdup(target);
    if (!hr->rq.target) {
        free(hr);
        return NULL;
    }
    hr->http = c->http;
    hr->conn = c;
    hr->mhd = mhd;
    hr->deadline = UINT64_MAX;
    hr->watch.changed = on_watched;
    hr->rq.http = hr;
    hr->rq.api = c->http->api;
    hr->rq.is_unix = c->server->is_unix;
    hr->rq.peer_uid = c->peer_uid;
    hr->rq.body_fd = hr->rq.reply.fd = -1;
    id_new("req", hr->rq.id);
    hr->next = c->http->requests;
    if (hr->next)
        hr->next->prev = hr;
    c->http->requests = hr;
    c->busy = true;
    return hr;
}

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

static const struct line {
    const char *name;
    size_t value, count; /* count 0 = nobody asks how often */
} LINES[] = {
    {"Host", offsetof(struct head, host), offsetof(struct head, n_host)},
    {"Origin", offsetof(struct head, origin), offsetof(struct head, n_origin)},
    {"Sec-Fetch-Site", offsetof(struct head, fetch_site), offsetof(struct head, n_fetch_site)},
    {"Authorization", offsetof(struct head, authorization), offsetof(struct head, n_authorization)},
    {"Content-Type", offsetof(struct head, content_type), offsetof(struct head, n_content_type)},
    {"Content-Length", offsetof(struct head, content_length),
     offsetof(struct head, n_content_length)},
    {"Accept", offsetof(struct head, accept), 0},
    {"If-Match", offsetof(struct head, if_match), 0},
    {"If-None-Match", offsetof(struct head, if_none_match), 0},
    {"Idempotency-Key", offsetof(struct head, idempotency_key), 0},
    {"Last-Event-ID", offsetof(struct head, last_event_id), 0},
    {"Range", offsetof(struct head, range), 0},
    {"Transfer-Encoding", offsetof(struct head, transfer), 0},
};

static enum MHD_Result on_line(void *cls, enum MHD_ValueKind kind, const char *name,
                               const char *value)
{
    struct head *head = cls;

    (void)kind;
    for (size_t i = 0; i < ARRAY_LEN(LINES); i++) {
        if (strcasecmp(name, LINES[i].name) != 0)
            continue;
        *(const char **)(void *)((char *)head + LINES[i].value) = value ? value : "";
        if (LINES[i].count)
            ++*(unsigned *)(void *)((char *)head + LINES[i].count);
        break;
    }
    return MHD_YES;
}

static void head_take(struct http_request *hr, const char *method, const char *version)
{
    struct request *rq = &hr->rq;
    struct head *head = &rq->head;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(hr->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);

    (void)MHD_get_connection_values(hr->mhd, MHD_HEADER_KIND, on_line, head);
    head->bytes = info ? info->header_size : SIZE_MAX;
    head->is_old = strcmp(version, "HTTP/1.1") != 0;
    head->is_chunked = head->transfer != NULL;
    if (head->content_length) {
        head->has_length = true;
        head->has_bad_length = parse_u64(head->content_length, 0, INT64_MAX, &head->length) < 0;
    }
    rq->is_head = strcmp(method, "HEAD") == 0;
    rq->method = rq->is_head ? METHOD_GET : METHOD_OTHER;
    for (int i = METHOD_GET; METHOD_NAMES[i]; i++)
        if (strcmp(method, METHOD_NAMES[i]) == 0)
            rq->method = i;
}

static void request_suspend(struct http_request *hr);

/* ---- Answers ----------------------------------------------------------------------------------
 */

static ssize_t on_stream_read(void *cls, uint64_t pos, char *buf, size_t max)
{
    struct http_request *hr = cls;
    struct request *rq = &hr->rq;
    size_t n;

    (void)pos;
    while (hr->chunk.len == 0 && !hr->ended && !hr->gone) {
        int r = rq->reply.stream->fill(rq, &hr->chunk);
        if (r < 0)
            hr->ended = true;
        if (r == 0)
            break;
    }
    if (hr->gone)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (hr->chunk.len == 0 && (hr->ended || hr->http->closing))
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (hr->chunk.len == 0) {
        request_suspend(hr);
        return 0;
    }
    n = hr->chunk.len < max ? hr->chunk.len : max;
    memcpy(buf, hr->chunk.data, n);
    str_consume(&hr->chunk, n);
    hr->last_sent = clock_now_ms();
    return (ssize_t)n;
}

static struct MHD_Response *reply_response(struct http_request *hr)
{
    struct reply *out = &hr->rq.reply;
    struct MHD_Response *r;
    char *text;

    if (out->stream)
        return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, CHUNK_BYTES, on_stream_read, hr,
                                                 NULL);
    if (out->fd >= 0) {
        r = MHD_create_response_from_fd_at_offset64(out->length, out->fd, out->offset);
        if (r)
            out->fd = -1; /* the library's now */
        return r;
    }
    if (out->is_borrowed)
        return MHD_create_response_from_buffer(
            (size_t)out->length, (void *)(uintptr_t)out->is_borrowed, MHD_RESPMEM_PERSISTENT);
    if (out->json) {
        text = json_dumps(out->json, JSON_COMPACT);
        if (!text)
            return NULL;
        return MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
    }
    return MHD_create_response_from_buffer(out->text.len, (void *)(uintptr_t)str_c(&out->text),
                                           MHD_RESPMEM_MUST_COPY);
}

static void reply_lines(struct http_request *hr, struct MHD_Response *r)
{
    struct reply *out = &hr->rq.reply;

    (void)MHD_add_response_header(r, "Cache-Control", "no-store");
    (void)MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    (void)MHD_add_response_header(r, "X-Request-Id", hr->rq.id);
    if (out->content_type)
        (void)MHD_add_response_header(r, "Content-Type", out->content_type);
    for (unsigned i = 0; i < out->n_headers; i++)
        (void)MHD_add_response_header(r, out->headers[i].name, out->headers[i].value);
    if (out->must_close)
        (void)MHD_add_response_header(r, "Connection", "close");
}

static enum MHD_Result request_send(struct http_request *hr)
{
    struct request *rq = &hr->rq;
    struct MHD_Response *r;
    enum MHD_Result done;

    hr->http->cb.leaving(rq);
    hr->state = RQ_SENT;
    hr->last_sent = clock_now_ms();
    if (!rq->reply.stream)
        watch_remove(&hr->watch);
    r = reply_response(hr);
    if (!r) {
        log_error("api.no_memory", "request=%s", rq->id);
        return MHD_NO;
    }
    reply_lines(hr, r);
    done = MHD_queue_response(hr->mhd, (unsigned)rq->reply.status, r);
    MHD_destroy_response(r);
    return done;
}

/* ---- The library's calls ----------------------------------------------------------------------
 */

static void on_hangup(uv_poll_t *p, int status, int events)
{
    struct conn *c = p->data;

    if ((status < 0 || (events & UV_DISCONNECT)) && c->waiting)
        request_gone(c->waiting);
}

static void request_suspend(struct http_request *hr)
{
    struct conn *c = hr->conn;

    hr->suspended = true;
    MHD_suspend_connection(hr->mhd);
    if (!c->has_poll && uv_poll_init(c->http->loop, &c->poll, c->fd) == 0) {
        c->has_poll = true;
        c->http->n_handles++;
        c->poll.data = c;
    }
    c->waiting = hr;
    if (c->has_poll)
        (void)uv_poll_start(&c->poll, UV_DISCONNECT, on_hangup);
}

static int upload_open(struct request *rq, const char *dir)
{
    char name[PATH_MAX];

    rq->body_fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (rq->body_fd >= 0)
        return 0;
    /* A file system without unnamed files: one with a name, for a moment. */
    if (snprintf(name, sizeof name, "%s/.upload-XXXXXX", dir) >= (int)sizeof name)
        return -ENAMETOOLONG;
    rq->body_fd = mkostemp(name, O_CLOEXEC);
    if (rq->body_fd < 0)
        return -errno;
    (void)unlink(name);
    return 0;
}

static void body_take(struct http_request *hr, const char *bytes, size_t n)
{
    struct request *rq = &hr->rq;
    int r;

    rq->body_length += n;
    if (hr->state == RQ_REFUSED)
        return;
    if (rq->body_length > rq->body_max) {
        (void)err_set(&rq->err, -EMSGSIZE, "body_too_large", NULL,
                      "the body is larger than %llu bytes", (unsigned long long)rq->body_max);
        hr->state = RQ_REFUSED;
        return;
    }
    r = rq->wants_upload ? fd_write_all(rq->body_fd, bytes, n) : str_add(&rq->body, bytes, n);
    if (r < 0) {
        (void)err_set(&rq->err, r, r == -ENOSPC || r == -EDQUOT ? "disk_full" : "internal", NULL,
                      "the body could not be kept: %s", strerror(-r));
        hr->state = RQ_REFUSED;
    }
}

static enum MHD_Result on_head(struct http_request *hr)
{
    struct request *rq = &hr->rq;
    struct head *head = &rq->head;
    int r;

    hr->http->cb.head(rq);
    hr->state = err_is_set(&rq->err) || rq->reply.status ? RQ_REFUSED : RQ_BODY;
    if (hr->state == RQ_BODY && rq->wants_upload) {
        r = upload_open(rq, hr->http->spool_dir);
        if (r < 0) {
            (void)err_set(&rq->err, r, r == -ENOSPC ? "disk_full" : "internal", NULL,
                          "no room for the upload: %s", strerror(-r));
            hr->state = RQ_REFUSED;
        }
    }
    /* Nothing of a refused body is read: the answer goes out now and the connection ends. Without a
     * body the answer waits for the second call, which keeps the connection. */
    if (hr->state == RQ_REFUSED && (head->is_chunked || head->length || rq->reply.must_close)) {
        rq->reply.must_close = true;
        return request_send(hr);
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
    return request_send(hr);
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
        if (hr->conn->over)
            (void)err_set(&hr->rq.err, -EMFILE, "too_many", "Close connections that are not used.",
                          "more than %d connections", API_CONNECTIONS_MAX);
        (void)MHD_set_connection_option(mhd, MHD_CONNECTION_OPTION_TIMEOUT,
                                        (unsigned)API_BODY_IDLE_S);
        hr->rq.reply.must_close = hr->conn->over;
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
    (void)why;
    if (!hr)
        return;
    *req = NULL;
    hr->conn->busy = false;
    hr->conn->since = clock_now_ms();
    if (hr->rq.after_sent)
        hr->rq.after_sent(&hr->rq);
    request_free(hr);
}

/* ---- Connections ------------------------------------------------------------------------------
 */

static void handle_closed(struct http *h)
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

static void on_conn_poll_closed(uv_handle_t *p)
{
    struct conn *c = p->data;
    struct http *h = c->http;

    free(c);
    handle_closed(h);
}

static void on_plain_closed(uv_handle_t *p)
{
    struct server *s = p->data;

    handle_closed(s->http);
}

static void on_http_closed(uv_handle_t *p)
{
    handle_closed(p->data);
}

static void on_sweep(uv_timer_t *t)
{
    struct http *h = t->data;
    uint64_t now = clock_now_ms();

    for (struct conn *c = h->conns; c; c = c->next)
        if (!c->busy && now - c->since > API_HEAD_MS)
            (void)shutdown(c->fd, SHUT_RDWR);
    if (!h->conns)
        (void)uv_timer_stop(t);
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

static void conn_new(struct server *s, struct MHD_Connection *mhd, void **ret_context)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct http *h = s->http;
    struct conn *c = calloc(1, sizeof *c);

    if (!c || !info) {
        free(c);
        return;
    }
    c->http = h;
    c->server = s;
    c->fd = info->connect_fd;
    c->since = clock_now_ms();
    c->peer_uid = peer_uid_of(c->fd, s->is_unix);
    c->over = ++h->n_conns > API_CONNECTIONS_MAX;
    c->next = h->conns;
    if (c->next)
        c->next->prev = c;
    h->conns = c;
    if (!uv_is_active((uv_handle_t *)&h->sweep) && !h->closing)
        (void)uv_timer_start(&h->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
    *ret_context = c;
}

static void conn_free(struct conn *c)
{
    struct http *h = c->http;

    h->n_conns--;
    if (c->prev)
        c->prev->next = c->next;
    else
        h->conns = c->next;
    if (c->next)
        c->next->prev = c->prev;
    if (c->has_poll)
        uv_close((uv_handle_t *)&c->poll, on_conn_poll_closed);
    else
        free(c);
}

static void on_connection(void *cls, struct MHD_Connection *mhd, void **context,
                          enum MHD_ConnectionNotificationCode what)
{
    if (what == MHD_CONNECTION_NOTIFY_STARTED)
        conn_new(cls, mhd, context);
    else if (*context)
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
    s->mhd = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, NULL,
        MHD_OPTION_LISTEN_SOCKET, take_listener, MHD_OPTION_URI_LOG_CALLBACK, on_target, NULL,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, s, MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)POOL_BYTES, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)(API_CONNECTIONS_MAX + OVER_MAX), MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)API_BODY_IDLE_S, MHD_OPTION_END);
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
    return 0;
}

static int listen_on(const struct sockaddr *address, socklen_t n)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), r;
    int one = 1;

    if (fd < 0)
        return -errno;
    if (address->sa_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    if (address->sa_family != AF_UNIX)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, address, n) < 0 || listen(fd, BACKLOG) < 0) {
        r = -errno;
        fd_close(fd);
        return r;
    }
    return fd;
}

/* Both families on PORT, or none: 0 with descriptors (v6 -1 where the machine has no IPv6). */
static int listen_both(uint16_t port, int *ret_v4, int *ret_v6)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    int four, six;

    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    v6.sin6_addr = in6addr_loopback;
    four = listen_on((const struct sockaddr *)&v4, sizeof v4);
    if (four < 0)
        return four;
    six = listen_on((const struct sockaddr *)&v6, sizeof v6);
    if (six == -EADDRINUSE || six == -EACCES) {
        fd_close(four);
        return six;
    }
    *ret_v4 = four;
    *ret_v6 = six < 0 ? -1 : six;
    return 0;
}

int http_listen_tcp(struct http *h, int first, bool fixed, uint16_t *ret_port, struct err *err)
{
    int last = fixed || first > 7430 ? first : 7430, port, v4 = -1, v6 = -1, r = -EADDRINUSE;

    for (port = first; port <= last; port++) {
        r = listen_both((uint16_t)port, &v4, &v6);
        if (r != -EADDRINUSE)
            break;
    }
    if (r < 0)
        return err_set(err, r, "port_taken", "Choose another port: cordon serve --port N.",
                       "no port of %d..%d is free on 127.0.0.1 and ::1: %s", first, last,
                       strerror(-r));
    r = server_start(h, v4, false);
    if (v6 >= 0 && r >= 0)
        r = server_start(h, v6, false); /* takes it, also on failure */
    else
        fd_close(v6);
    *ret_port = (uint16_t)port;
    return r;
}

int http_listen_unix(struct http *h, const char *path, struct err *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    mode_t mask;
    int fd;

    if (strlen(path) >= sizeof a.sun_path)
        return err_set(err, -ENAMETOOLONG, "path_invalid", NULL,
                       "the path of the socket is too long: %s", path);
    (void)snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    /* The caller holds the lock of this state folder: what lies there is left over. */
    (void)unlink(path);
    mask = umask(0177);
    fd = listen_on((const struct sockaddr *)&a, sizeof a);
    (void)umask(mask);
    if (fd < 0)
        return err_set(err, fd, "internal", NULL, "cannot listen on %s: %s", path, strerror(-fd));
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
        if (!is_of(&hr->rq, actor_id))
            continue;
        if (hr->state == RQ_PARKED) {
            (void)err_set(&hr->rq.err, -ECANCELED, code, NULL, "the request was ended");
            request_answer(&hr->rq, -ECANCELED);
        } else if (hr->state == RQ_SENT && hr->rq.reply.stream) {
            hr->ended = true;
            request_resume(hr);
        }
    }
}

unsigned http_streams(const struct http *h, const char *actor_id)
{
    unsigned n = 0;

    for (const struct http_request *hr = h->requests; hr; hr = hr->next)
        if (hr->state == RQ_SENT && hr->rq.reply.stream && is_of(&hr->rq, actor_id))
            n++;
    return n;
}

void http_each(struct http *h, void (*fn)(struct request *rq, void *arg), void *arg)
{
    struct http_request *after;

    for (struct http_request *hr = h->requests; hr; hr = after) {
        after = hr->next;
        if (hr->state == RQ_PARKED || (hr->state == RQ_SENT && hr->rq.reply.stream))
            fn(&hr->rq, arg);
    }
}

static void server_stop(struct server *s)
{
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
    /* Twice: once to resume and answer, once to send what is left. With one suspended the library
     * would abort. */
    for (unsigned i = 0; i < 2 * h->n_servers; i++)
        server_run(&h->servers[i % h->n_servers]);
    for (unsigned i = 0; i < h->n_servers; i++)
        server_stop(&h->servers[i]);
    uv_close((uv_handle_t *)&h->turn, on_http_closed);
    uv_close((uv_handle_t *)&h->sweep, on_http_closed);
}
