/* Runs in: cli. Reads: trusted (answers of the daemon, whose peer was checked). May block: only
 * httpc_wait. */
#include "cli/httpc.h"
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

#define READ_BYTES ((size_t)256 << 10)
#define BODY_MAX   ((size_t)64 << 20)

static int start(struct httpc *h, int take_fd)
{
    httpc_close(h); /* what an earlier connection left */
    memset(h, 0, sizeof *h);
    h->fd = take_fd;
    h->body.max = BODY_MAX;
    return 0;
}

static int open_at(struct httpc *h, const void *sa, socklen_t n)
{
    int fd = socket(((const struct sockaddr *)sa)->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int r = connect(fd, sa, n) < 0 ? -errno : fd_nonblock(fd, true);
    if (r < 0) {
        fd_close(fd);
        return r;
    }
    return start(h, fd);
}

int httpc_open_unix(struct httpc *h, const char *path)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof sa.sun_path)
        return -ENAMETOOLONG;
    memcpy(sa.sun_path, path, strlen(path) + 1);
    int r = open_at(h, &sa, sizeof sa);
    if (r == 0)
        snprintf(h->host, sizeof h->host, "localhost");
    return r;
}

int httpc_open_tcp(struct httpc *h, uint16_t port)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(port)};
    int on = 1;
    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int r = open_at(h, &sa, sizeof sa);
    if (r < 0)
        return r;
    (void)setsockopt(h->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    snprintf(h->host, sizeof h->host, "127.0.0.1:%u", (unsigned)port);
    return 0;
}

void httpc_close(struct httpc *h)
{
    fd_close(h->fd);
    h->fd = -1;
    h->is_busy = false;
    str_done(&h->body);
    str_done(&h->out);
    str_done(&h->in);
    httphead_done(&h->head);
}

int httpc_send(struct httpc *h, const struct httpc_request *rq)
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
    chunks_init(&h->chunks);
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

static int send_more(struct httpc *h)
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

static bool field_is(const struct httpc *h, const char *name, const char *start_of_value)
{
    const struct head_field *f = httphead_find(&h->head, name);
    size_t n = strlen(start_of_value);
    return f && f->value_len >= n && memcmp(f->value, start_of_value, n) == 0;
}

/* Takes bytes of the head from `in`. 1 = it is complete. */
static int take_head(struct httpc *h)
{
    enum head_result hr;
    for (;;) {
        size_t used = 0;
        hr = httphead_feed(&h->head, str_c(&h->in), h->in.len, &used);
        str_consume(&h->in, used);
        if (hr != HEAD_DONE || h->head.status >= 200)
            break;
        httphead_done(&h->head); /* an interim answer: the next is ours */
        httphead_init(&h->head, HTTP_HEAD_MAX, true);
    }
    if (hr != HEAD_DONE)
        return hr == HEAD_BAD ? -EBADMSG : 0;
    h->has_head = true;
    h->status = h->head.status;
    h->keep_alive = h->head.keep_alive;
    h->is_ndjson = field_is(h, "content-type", "application/x-ndjson");
    h->kind = h->status == 204 || h->status == 304 ? BODY_NONE : h->head.body;
    h->left = h->kind == BODY_LENGTH ? h->head.body_len : 0;
    return 1;
}

static int move_body(struct httpc *h)
{
    size_t n = h->in.len < h->left ? h->in.len : (size_t)h->left;
    int r = n ? str_add(&h->body, h->in.data, n) : 0;
    if (r < 0)
        return r;
    str_consume(&h->in, n);
    h->left -= n;
    return 0;
}

/* 1 = the last chunk and the trailer are through. */
static int take_chunks(struct httpc *h)
{
    enum head_result hr = HEAD_MORE;
    size_t at = 0;
    int r = 0;
    while (r >= 0 && hr == HEAD_MORE && at < h->in.len) {
        uint64_t data = chunks_data(&h->chunks);
        size_t rest = h->in.len - at, n = data == 0 ? 1 : data < rest ? (size_t)data : rest, used;
        r = data ? str_add(&h->body, h->in.data + at, n) : 0;
        hr = chunks_feed(&h->chunks, h->in.data + at, n, &used);
        at += used;
    }
    str_consume(&h->in, at);
    return r < 0 ? r : hr == HEAD_BAD ? -EBADMSG : hr == HEAD_DONE;
}

static int take_in(struct httpc *h)
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

static int ended(struct httpc *h)
{
    return h->has_head && h->kind == BODY_UNTIL_CLOSE ? 1 : -ECONNRESET;
}

int httpc_step(struct httpc *h)
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

short httpc_events(const struct httpc *h)
{
    return (short)(POLLIN | (h->sent < h->out.len ? POLLOUT : 0));
}

int httpc_wait(struct httpc *h, int64_t deadline_ms)
{
    uint64_t end = clock_now_ms() + (uint64_t)(deadline_ms < 0 ? 0 : deadline_ms);
    for (;;) {
        int r = httpc_step(h), wait = -1;
        if (r != 0)
            return r < 0 ? r : 0;
        if (deadline_ms >= 0) {
            uint64_t now = clock_now_ms();
            if (now >= end)
                return -ETIMEDOUT;
            wait = (int)(end - now);
        }
        struct pollfd p = {.fd = h->fd, .events = httpc_events(h)};
        if (poll(&p, 1, wait) < 0 && errno != EINTR)
            return -errno;
    }
}
