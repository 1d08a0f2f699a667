/* Runs in: daemon. Reads: hostile. May block: no; uploads are written to an unnamed file in pieces
 * of at most 64 KiB. */
#include "api/http_parts.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <microhttpd.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

const char *const METHOD_NAMES[] = {"OTHER", "GET",    "POST",    "PUT",
                                    "PATCH", "DELETE", "OPTIONS", NULL};
static void on_watched(struct watch *w)
{
    request_dirty(container_of(w, struct http_request, watch));
}

void request_free(struct http_request *hr)
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
    free(hr->conn->spare);
    hr->conn->spare = hr;
}

struct http_request *request_new(struct conn *c, struct MHD_Connection *mhd, const char *target)
{
    struct http_request *hr = c->spare ? TAKE(c->spare) : malloc(sizeof *hr);

    if (!hr)
        return NULL;
    memset(hr, 0, sizeof *hr);
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
    {"Transfer-Encoding", offsetof(struct head, transfer), offsetof(struct head, n_transfer)},
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

void head_take(struct http_request *hr, const char *method, const char *version)
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

void body_open(struct http_request *hr)
{
    struct request *rq = &hr->rq;
    int r = upload_open(rq, hr->http->spool_dir);

    if (r == 0)
        return;
    (void)err_set(&rq->err, r, r == -ENOSPC ? "disk_full" : "internal", NULL,
                  "no room for the upload: %s", strerror(-r));
    hr->state = RQ_REFUSED;
}

void body_take(struct http_request *hr, const char *bytes, size_t n)
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
