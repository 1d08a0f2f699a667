/* Runs in: daemon. Reads: hostile (frames of runner, supervisors and egress). May block: no. */
#include "session/channel.h"
#include "base/mem.h"
#include "wire/msg.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES   16384
#define READS_A_CALL 8 /* then the loop sees to others */

struct channel_out {
    struct channel_out *next;
    struct str bytes;
    int fds[FDS_PER_MESSAGE];
    size_t n_fds;
};

static void out_free(struct channel_out *o)
{
    if (!o)
        return;
    for (size_t i = 0; i < o->n_fds; i++)
        fd_close(o->fds[i]);
    str_done(&o->bytes);
    free(o);
}

void channel_init(struct channel *c)
{
    memset(c, 0, sizeof *c);
    c->fd = -1;
}

void channel_stop(struct channel *c)
{
    if (c->fd < 0 || c->is_ended)
        return;
    c->is_ended = true;
    closing_drop(c->owner, (uv_handle_t *)&c->poll);
    fd_done(&c->fd);
}

static void end(struct channel *c, int r)
{
    if (c->is_ended)
        return;
    channel_stop(c);
    c->ended(c, r);
}

void channel_done(struct channel *c)
{
    fd_done(&c->fd);
    for (size_t i = 0; i < c->n_fds; i++)
        fd_close(c->fds[i]);
    c->n_fds = 0;
    while (c->first) {
        struct channel_out *o = c->first;
        c->first = o->next;
        out_free(o);
    }
    frame_reader_done(&c->in);
    str_done(&c->corked);
}

int channel_take_fd(struct channel *c, int *ret_fd)
{
    if (c->n_fds == 0)
        return -EBADMSG;
    *ret_fd = c->fds[0];
    c->n_fds--;
    memmove(c->fds, c->fds + 1, c->n_fds * sizeof c->fds[0]);
    return 0;
}

static bool may_come(const struct channel *c, const struct frame *f)
{
    for (const uint8_t *k = c->kinds; *k; k++)
        if (*k == f->kind)
            return true;
    return false;
}

/* The owner may leave descriptors of its frame; it must not take those of the next. */
static int take_frame(struct channel *c, const struct frame *f)
{
    if (!may_come(c, f))
        return -EBADMSG;
    int n = msg_fds(f, c->n_fds);
    if (n < 0)
        return n;
    size_t rest = c->n_fds - (size_t)n;
    int r = c->got(c, f);
    if (r < 0)
        return r;
    if (c->n_fds < rest)
        return -EBADMSG;
    while (c->n_fds > rest) {
        int fd = -1;
        (void)channel_take_fd(c, &fd);
        fd_close(fd);
    }
    return 0;
}

static int take_frames(struct channel *c)
{
    struct frame f;
    int r;
    while (!c->is_ended && (r = frame_next(&c->in, &f)) != 0) {
        if (r < 0)
            return r;
        r = take_frame(c, &f);
        if (r < 0)
            return r;
    }
    return 0;
}

static int queue_fds(struct channel *c, const int *fds, size_t n)
{
    bool fits = c->n_fds + n <= CHANNEL_FDS_MAX;
    for (size_t i = 0; i < n; i++) {
        if (fits)
            c->fds[c->n_fds++] = fds[i];
        else
            fd_close(fds[i]);
    }
    return fits ? 0 : -EBADMSG;
}

/* 1 = look for more, 0 = nothing there now, negative = over. */
static int read_some(struct channel *c)
{
    static char buf[READ_BYTES];
    int fds[FDS_PER_MESSAGE];
    size_t n_fds = 0;
    ssize_t n = fd_recv(c->fd, buf, sizeof buf, fds, &n_fds);
    if (n == -EAGAIN || n == -EINTR)
        return 0;
    if (n < 0)
        return (int)n;
    int r = queue_fds(c, fds, n_fds);
    if (r < 0)
        return r;
    if (n == 0)
        return -ENODATA;
    r = frame_feed(&c->in, buf, (size_t)n);
    if (r == 0)
        r = take_frames(c);
    if (r < 0 || c->is_ended)
        return r;
    if (c->n_fds > 0 && c->in.in.len == c->in.used)
        return -EBADMSG; /* descriptors that no frame asked for */
    /* A short read of a stream socket means that it is empty for now, unless descriptors ended it
     * early. */
    return (size_t)n == sizeof buf || n_fds > 0;
}

static void readable(struct channel *c)
{
    int r = 1;
    for (unsigned i = 0; i < READS_A_CALL && r == 1 && !c->is_ended; i++)
        r = read_some(c);
    if (c->is_ended)
        return;
    if (r == -ENODATA)
        end(c, c->in.in.len > c->in.used ? -EBADMSG : 0);
    else if (r < 0)
        end(c, r);
}

static void on_poll(uv_poll_t *poll, int status, int events);

static void wait_for(struct channel *c, int events)
{
    (void)uv_poll_start(&c->poll, events, on_poll);
}

/* 0 = all sent, 1 = the socket is full, negative = over. */
static int send_one(struct channel *c, struct str *bytes, int *fds, size_t *n_fds)
{
    while (bytes->len > 0) {
        ssize_t n = fd_send(c->fd, bytes->data, bytes->len, fds, *n_fds);
        if (n == -EAGAIN)
            return 1;
        if (n == -EINTR)
            continue;
        if (n < 0)
            return (int)n;
        *n_fds = 0;
        str_consume(bytes, (size_t)n);
    }
    return 0;
}

static void writable(struct channel *c)
{
    while (c->first) {
        struct channel_out *o = c->first;
        size_t left = o->n_fds, before = o->bytes.len;
        int r = send_one(c, &o->bytes, o->fds, &left);
        if (left == 0 && o->n_fds > 0) {
            for (size_t i = 0; i < o->n_fds; i++)
                fd_close(o->fds[i]);
            o->n_fds = 0;
        }
        c->queued -= before - o->bytes.len;
        if (r < 0) {
            end(c, r);
            return;
        }
        if (r == 1)
            return;
        c->first = o->next;
        if (!c->first)
            c->last = NULL;
        out_free(o);
    }
    wait_for(c, UV_READABLE);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct channel *c = container_of(poll, struct channel, poll);
    if (status < 0) {
        end(c, status);
        return;
    }
    if (events & UV_WRITABLE)
        writable(c);
    if (!c->is_ended && (events & UV_READABLE))
        readable(c);
}

int channel_open(struct channel *c, uv_loop_t *loop, struct closing *owner, int take_fd,
                 const uint8_t *kinds, int (*got)(struct channel *c, const struct frame *f),
                 void (*ended)(struct channel *c, int r))
{
    int r = fd_nonblock(take_fd, true);
    if (r == 0)
        r = uv_poll_init(loop, &c->poll, take_fd);
    if (r < 0) {
        fd_close(take_fd);
        return r;
    }
    c->fd = take_fd;
    c->owner = owner;
    c->kinds = kinds;
    c->got = got;
    c->ended = ended;
    closing_add(owner, (uv_handle_t *)&c->poll);
    return uv_poll_start(&c->poll, UV_READABLE, on_poll);
}

static int queue_out(struct channel *c, struct str *take_bytes, const int *fds, size_t n_fds)
{
    struct channel_out *o = calloc(1, sizeof *o);
    if (!o)
        return -ENOMEM;
    o->bytes = *take_bytes;
    *take_bytes = (struct str){0};
    for (size_t i = 0; i < n_fds; i++) {
        int fd = fcntl(fds[i], F_DUPFD_CLOEXEC, 0);
        if (fd < 0) {
            int r = -errno;
            out_free(o);
            return r;
        }
        o->fds[o->n_fds++] = fd;
    }
    c->queued += o->bytes.len;
    if (c->last)
        c->last->next = o;
    else
        c->first = o;
    c->last = o;
    wait_for(c, UV_READABLE | UV_WRITABLE);
    return 0;
}

static int send_bytes(struct channel *c, struct str *bytes, const int *fds, size_t n_fds)
{
    int borrowed[FDS_PER_MESSAGE];
    if (c->queued + bytes->len > CHANNEL_QUEUE_MAX)
        return -ENOBUFS;
    if (n_fds > 0)
        memcpy(borrowed, fds, n_fds * sizeof fds[0]);
    size_t left = n_fds;
    int r = c->first ? 1 : send_one(c, bytes, borrowed, &left);
    /* An end is seen and told by the next read, so that no caller is called back from within. */
    if (r <= 0)
        return r;
    return queue_out(c, bytes, borrowed, left);
}

void channel_cork(struct channel *c)
{
    c->is_corked = true;
}

int channel_uncork(struct channel *c)
{
    CLEANUP(str_done) struct str bytes = c->corked;
    c->corked = (struct str){0};
    c->is_corked = false;
    return bytes.len == 0 || c->is_ended || c->fd < 0 ? 0 : send_bytes(c, &bytes, NULL, 0);
}

int channel_send(struct channel *c, uint8_t kind, const struct pack *p, const int *fds,
                 size_t n_fds)
{
    CLEANUP(str_done) struct str bytes = {0};
    if (c->is_ended || c->fd < 0)
        return -EPIPE;
    if (p && p->r < 0)
        return p->r;
    if (n_fds > FDS_PER_MESSAGE)
        return -EINVAL;
    if (c->is_corked && n_fds == 0)
        return frame_put(&c->corked, kind, p ? p->out.data : NULL, p ? p->out.len : 0);
    int r = frame_put(&bytes, kind, p ? p->out.data : NULL, p ? p->out.len : 0);
    return r < 0 ? r : send_bytes(c, &bytes, fds, n_fds);
}
