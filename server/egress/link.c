/* Runs in: egress. Reads: trusted (the daemon's frames). May block: no. */
#include "egress/link.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINK_OUT_MAX ((size_t)8 << 20) /* a daemon that does not read so much is gone */

_Noreturn void link_lost(const char *why)
{
    if (*why != '\0')
        log_error("egress.ends", "why=%s", why);
    exit(*why != '\0');
}

bool link_is_busy(const struct link *l)
{
    return l->out.len > LINK_OUT_BUSY;
}

static void link_flush(struct link *l)
{
    size_t at = 0;
    while (at < l->out.len) {
        ssize_t n = send(l->peer->fd, l->out.data + at, l->out.len - at, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0)
            link_lost("");
        at += (size_t)n;
    }
    if (at == l->out.len)
        str_clear(&l->out);
    else
        str_consume(&l->out, at);
    peer_want(l->peer, l->out.len > 0 ? UV_READABLE | UV_WRITABLE : UV_READABLE);
}

void link_send(struct link *l, enum msg_kind kind, struct pack *take_p)
{
    if (take_p->r < 0 || frame_put(&l->out, (uint8_t)kind, take_p->out.data, take_p->out.len) < 0)
        link_lost("out of memory for the daemon");
    pack_done(take_p);
    link_flush(l);
}

static void frames_take(struct link *l)
{
    struct frame f;
    int r;
    while ((r = frame_next(&l->in, &f)) == 1) {
        const struct msg_rule *rule = msg_rule(f.kind);
        size_t n = 0;
        if (rule == NULL || f.len > rule->payload_max || l->n_fds < rule->fds_min)
            link_lost("nonsense from the daemon");
        if (rule->fds_max > 0)
            n = l->n_fds < rule->fds_max ? l->n_fds : rule->fds_max;
        int r_got = l->got(l, &f, l->fds, n);
        l->n_fds -= n;
        memmove(l->fds, l->fds + n, l->n_fds * sizeof l->fds[0]);
        if (r_got < 0)
            link_lost("nonsense from the daemon");
    }
    if (r < 0)
        link_lost("nonsense from the daemon");
}

static void link_ready(void *arg, struct peer *p, int events)
{
    struct link *l = arg;
    char buf[4096];
    int fds[FDS_PER_MESSAGE];
    size_t n_fds = 0;
    if (events & UV_WRITABLE)
        link_flush(l);
    if (!(events & UV_READABLE))
        return;
    ssize_t n = fd_recv(p->fd, buf, sizeof buf, fds, &n_fds);
    if (n == -EAGAIN || n == -EINTR)
        return;
    if (n <= 0)
        link_lost("");
    if (l->n_fds + n_fds > LINK_FDS_MAX)
        link_lost("too many descriptors from the daemon");
    memcpy(l->fds + l->n_fds, fds, n_fds * sizeof fds[0]);
    l->n_fds += n_fds;
    if (frame_feed(&l->in, buf, (size_t)n) < 0)
        link_lost("nonsense from the daemon");
    frames_take(l);
}

int link_open(struct link *l, uv_loop_t *loop, int take_fd,
              int (*got)(struct link *, const struct frame *, const int *, size_t))
{
    *l = (struct link){.got = got, .out = {.max = LINK_OUT_MAX}};
    int r = peer_new(loop, take_fd, link_ready, l, &l->peer);
    if (r == 0)
        peer_want(l->peer, UV_READABLE);
    return r;
}
