/* Runs in: cli. Reads: trusted (answers of the daemon, whose peer was checked). May block: only
 * http_wait. */
#include "cli/http.h"
#include "base/clock.h"
#include "base/fd.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { CHUNK_SIZE = 0, CHUNK_DATA, CHUNK_END, CHUNK_TRAILER };
#define READ_BYTES ((size_t)256 << 10)
#define BODY_MAX   ((size_t)64 << 20)

static int start(struct http *h, int take_fd)
{
    http_close(h); /* what an earlier connection left */
    memset(h, 0, sizeof *h);
    h->fd = take_fd;
    h->body.max = BODY_MAX;
    return 0;
}

int http_open_unix(struct http *h, const char *path)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof sa.sun_path)
        return -ENAMETOOLONG;
    memcpy(sa.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int r = connect(fd, (struct sockaddr *)&sa, sizeof sa) < 0 ? -errno : fd_nonblock(fd, true);
    if (r < 0) {
        fd_close(fd);
        return r;
    }
    start(h, fd);
    snprintf(h->host, sizeof h->host, "localhost");
    return 0;
}

int http_open_tcp(struct http *h, uint16_t port)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(port)};
    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0)
        return -errno;
    int r = connect(fd, (struct sockaddr *)&sa, sizeof sa) < 0 ? -errno : fd_nonblock(fd, true);
    if (r < 0) {
        fd_close(fd);
        return r;
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    start(h, fd);
    snprintf(h->host, sizeof h->host, "127.0.0.1:%u", (unsigned)port);
    return 0;
}

void http_close(struct http *h)
{
    fd_close(h->fd);
    h->fd = -1;
    h->is_busy = false;
    str_done(&h->body);
    str_done(&h->out);
    str_done(&h->in);
    httphead_done(&h->head);
}

int http_send(struct http *h, const struct http_request *rq)
{
    if (h->fd < 0)
        return -ENOTCONN;
    if (h->is_busy)
        return -EBUSY;
    str_clear(&h->out);
    str_clear(&h->body);
    httphead_done(&h->head);
    httphead_init(&h->head, HTTP_HEAD_MAX, true);
    h->sent = 0;
    h->status = 0;
    h->has_head = h->is_ndjson = false;
    h->chunk_state = CHUNK_SIZE;
    int r = str_printf(&h->out, "%s %s HTTP/1.1\r\nHost: %s\r\n", rq->method, rq->target, h->host);
    if (r >= 0 && rq->accept)
        r = str_printf(&h->out, "Accept: %s\r\n", rq->accept);
    if (r >= 0 && rq->token)
        r = str_printf(&h->out, "Authorization: Bearer %s\r\n", rq->token);
    if (r >= 0 && rq->if_match >= 0)
        r = str_printf(&h->out, "If-Match: \"%lld\"\r\n", (long long)rq->if_match);
    if (r >= 0 && rq->type)
        r = str_printf(&h->out, "Content-Type: %s\r\nContent-Length: %zu\r\n", rq->type, rq->len);
    else if (r >= 0 && strcmp(rq->method, "GET") != 0)
        r = str_puts(&h->out, "Content-Length: 0\r\n");
    if (r >= 0)
        r = str_puts(&h->out, "\r\n");
    if (r >= 0 && rq->len)
        r = str_add(&h->out, rq->body, rq->len);
    h->is_busy = r >= 0;
    return r < 0 ? r : 0;
}

static int send_more(struct http *h)
{
    while (h->sent < h->out.len) {
        ssize_t n = send(h->fd, h->out.data + h->sent, h->out.len - h->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? 0 : -errno;
        h->sent += (size_t)n;
    }
    return 0;
}

static bool field_is(const struct http *h, const char *name, const char *start_of_value)
{
    const struct head_field *f = httphead_find(&h->head, name);
    size_t n = strlen(start_of_value);
    return f && f->value_len >= n && memcmp(f->value, start_of_value, n) == 0;
}

/* Takes bytes of the head from `in`. 1 = it is complete. */
static int take_head(struct http *h)
{
    size_t used = 0;
    enum head_result hr = httphead_feed(&h->head, str_c(&h->in), h->in.len, &used);
    str_consume(&h->in, used);
    if (hr != HEAD_DONE)
        return hr == HEAD_BAD ? -EBADMSG : 0;
    if (h->head.status >= 100 && h->head.status < 200) { /* an interim answer: the next is ours */
        httphead_done(&h->head);
        httphead_init(&h->head, HTTP_HEAD_MAX, true);
        return h->in.len ? take_head(h) : 0;
    }
    h->has_head = true;
    h->status = h->head.status;
    h->keep_alive = h->head.keep_alive;
    h->is_ndjson = field_is(h, "content-type", "application/x-ndjson");
    h->kind = h->status == 204 || h->status == 304 ? BODY_NONE : h->head.body;
    h->left = h->kind == BODY_LENGTH ? h->head.body_len : 0;
    return 1;
}

static int move_body(struct http *h)
{
    size_t n = h->in.len < h->left ? h->in.len : (size_t)h->left;
    int r = n ? str_add(&h->body, h->in.data, n) : 0;
    if (r < 0)
        return r;
    str_consume(&h->in, n);
    h->left -= n;
    return 0;
}

/* One line of `in` without its CRLF into LINE; 0 when it is not all there. */
static int take_line(struct http *h, char line[static 64])
{
    const char *end = h->in.len ? memchr(h->in.data, '\n', h->in.len) : NULL;
    if (!end)
        return h->in.len > 4096 ? -EBADMSG : 0;
    size_t n = (size_t)(end - h->in.data), kept = n < 63 ? n : 63;
    memcpy(line, h->in.data, kept);
    line[kept] = '\0';
    line[strcspn(line, "\r")] = '\0';
    str_consume(&h->in, n + 1);
    return 1;
}

/* Chunked coding (RFC 9112, 7.1). 1 = the last chunk and the trailer are through. */
static int take_chunks(struct http *h)
{
    char line[64];
    int r;
    for (;;) {
        if (h->chunk_state == CHUNK_DATA) {
            if ((r = move_body(h)) < 0)
                return r;
            if (h->left)
                return 0;
            h->chunk_state = CHUNK_END;
        }
        if ((r = take_line(h, line)) <= 0)
            return r;
        if (h->chunk_state == CHUNK_END) {
            h->chunk_state = CHUNK_SIZE;
        } else if (h->chunk_state == CHUNK_TRAILER) {
            if (!line[0])
                return 1;
        } else {
            char *end;
            h->left = strtoull(line, &end, 16);
            if (end == line)
                return -EBADMSG;
            h->chunk_state = h->left ? CHUNK_DATA : CHUNK_TRAILER;
        }
    }
}

static int take_in(struct http *h)
{
    int r = 1;
    if (!h->has_head && (r = take_head(h)) <= 0)
        return r;
    switch (h->kind) {
    case BODY_NONE:
        return 1;
    case BODY_LENGTH:
        r = move_body(h);
        return r < 0 ? r : h->left == 0;
    case BODY_CHUNKED:
        return take_chunks(h);
    case BODY_UNTIL_CLOSE:
        h->left = h->in.len;
        return move_body(h);
    }
    return -EBADMSG;
}

static int ended(struct http *h)
{
    return h->has_head && h->kind == BODY_UNTIL_CLOSE ? 1 : -ECONNRESET;
}

int http_step(struct http *h)
{
    int r = send_more(h);
    if (r < 0)
        return r;
    for (;;) {
        char *room = str_room(&h->in, READ_BYTES);
        if (!room)
            return -ENOMEM;
        ssize_t n = recv(h->fd, room, READ_BYTES, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? 0 : -errno;
        h->in.len += (size_t)n;
        r = n == 0 ? ended(h) : take_in(h);
        if (r > 0)
            h->is_busy = false;
        /* A long answer comes in portions, so that who reads it can write it on. */
        if (r != 0 || (size_t)n == READ_BYTES)
            return r;
    }
}

short http_events(const struct http *h)
{
    return (short)(POLLIN | (h->sent < h->out.len ? POLLOUT : 0));
}

int http_wait(struct http *h, int64_t deadline_ms)
{
    uint64_t end = clock_now_ms() + (uint64_t)(deadline_ms < 0 ? 0 : deadline_ms);
    for (;;) {
        int r = http_step(h), wait = -1;
        if (r != 0)
            return r < 0 ? r : 0;
        if (deadline_ms >= 0) {
            uint64_t now = clock_now_ms();
            if (now >= end)
                return -ETIMEDOUT;
            wait = (int)(end - now);
        }
        struct pollfd p = {.fd = h->fd, .events = http_events(h)};
        if (poll(&p, 1, wait) < 0 && errno != EINTR)
            return -errno;
    }
}
