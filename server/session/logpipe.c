/* Runs in: daemon. Reads: hostile (what a child says). May block: no. */
#include "session/logpipe.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

void logpipe_init(struct logpipe *p)
{
    *p = (struct logpipe){.fd = -1};
}

static void line_log(struct logpipe *p)
{
    CLEANUP(str_done) struct str text = {0};
    if (p->line.len == 0)
        return;
    if (p->n_lines < LOGPIPE_LINES && str_put_escaped(&text, p->line.data, p->line.len) == 0)
        log_warn(p->event, "session=%s line=\"%s\"", p->session, str_c(&text));
    else if (p->n_lines == LOGPIPE_LINES)
        log_warn(p->event, "session=%s it says too much: no more is kept", p->session);
    if (p->n_lines <= LOGPIPE_LINES)
        p->n_lines++;
    str_clear(&p->line);
}

static void bytes_take(struct logpipe *p, const char *bytes, size_t n)
{
    while (n > 0) {
        const char *end = memchr(bytes, '\n', n);
        size_t len = end ? (size_t)(end - bytes) : n;
        size_t room = LOGPIPE_LINE - p->line.len;
        (void)str_add(&p->line, bytes, len < room ? len : room);
        if (!end)
            return;
        line_log(p);
        bytes += len + 1;
        n -= len + 1;
    }
}

void logpipe_read(struct logpipe *p)
{
    char buf[4096];
    for (int i = 0; p->fd >= 0 && i < 16; i++) {
        ssize_t n = read(p->fd, buf, sizeof buf);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            line_log(p);
            (void)uv_poll_stop(&p->poll);
            return;
        }
        bytes_take(p, buf, (size_t)n);
    }
}

static void pipe_ready(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    logpipe_read(container_of(poll, struct logpipe, poll));
}

int logpipe_open(struct logpipe *p, uv_loop_t *loop, struct closing *owner, const char *event,
                 const char *session, int *ret_child_end)
{
    int ends[2];
    int r = fd_pipe(ends);
    if (r < 0)
        return r;
    p->fd = ends[0];
    p->event = event;
    p->session = session;
    r = fd_nonblock(ends[0], true);
    if (r == 0)
        r = fd_nonblock(ends[1], true);
    if (r == 0)
        r = uv_poll_init(loop, &p->poll, p->fd);
    if (r < 0) {
        fd_close(ends[1]);
        return r;
    }
    closing_add(owner, (uv_handle_t *)&p->poll);
    r = uv_poll_start(&p->poll, UV_READABLE, pipe_ready);
    if (r < 0) {
        fd_close(ends[1]);
        return r;
    }
    *ret_child_end = ends[1];
    return 0;
}

void logpipe_done(struct logpipe *p)
{
    fd_close(p->fd);
    p->fd = -1;
    str_done(&p->line);
}
