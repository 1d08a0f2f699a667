/* Runs in: daemon. Reads: trusted. May block: no. */
#include "api/http_parts.h"
#include "base/clock.h"
#include "base/log.h"
#include <microhttpd.h>
#include <string.h>

#define CHUNK_BYTES (64 << 10)

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

bool request_send(struct http_request *hr)
{
    struct request *rq = &hr->rq;
    struct MHD_Response *r;
    bool is_done;

    hr->http->cb.leaving(rq);
    hr->state = RQ_SENT;
    hr->last_sent = clock_now_ms();
    if (!rq->reply.stream)
        watch_remove(&hr->watch);
    r = reply_response(hr);
    if (!r) {
        log_error("api.no_memory", "request=%s", rq->id);
        return false;
    }
    reply_lines(hr, r);
    /* Who follows and stops reading for a while, as behind a pager, is not cut off. */
    if (rq->reply.stream)
        (void)MHD_set_connection_option(hr->mhd, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    is_done = MHD_queue_response(hr->mhd, (unsigned)rq->reply.status, r) == MHD_YES;
    MHD_destroy_response(r);
    return is_done;
}
