/* Runs in: egress. Reads: hostile (the proxy's answer). May block: no. */
#include "egress/via.h"
#include "base/fd.h"
#include "base/mem.h"
#include "egress/peer.h"
#include "wire/httphead.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define HEAD_MAX 16384

struct via {
    struct closing closing;
    struct deadline whole;
    struct dial_deps deps;
    struct via_proxy proxy;
    char target[HOST_MAX + 10];
    dialled_fn *fn; /* NULL once told or cancelled */
    void *arg;
    struct dial *dial;
    struct peer *peer;
    struct str out; /* the request, what is still to be sent of it */
    struct httphead head;
    struct dialled result;
};

int via_proxy_parse(const char *target, const char *authorization, struct via_proxy *ret)
{
    size_t n = strlen(authorization);
    if (n >= sizeof ret->authorization || strpbrk(authorization, "\r\n") != NULL ||
        host_port_parse(target, strlen(target), 0, ret->host, &ret->port) == HOST_BAD)
        return -EBADMSG;
    memcpy(ret->authorization, authorization, n + 1);
    return 0;
}

static void via_freed(struct closing *closing)
{
    struct via *v = container_of(closing, struct via, closing);
    httphead_done(&v->head);
    str_done(&v->out);
    free(v);
}

static void via_stop(struct via *v)
{
    v->fn = NULL;
    dial_cancel(TAKE(v->dial));
    peer_close(TAKE(v->peer), false);
    closing_start(&v->closing);
}

void via_cancel(struct via *v)
{
    if (v != NULL && v->fn != NULL)
        via_stop(v);
}

static void via_ends(struct via *v, enum eg_outcome outcome, int fd)
{
    dialled_fn *fn = v->fn;
    void *arg = v->arg;
    struct dialled result = v->result;
    result.outcome = outcome;
    result.fd = fd;
    via_stop(v);
    fn(arg, &result);
}

/* Names the proxy, so that nobody looks for the fault elsewhere. */
static void via_fails(struct via *v, enum eg_outcome outcome, const char *what)
{
    char proxy[HOST_MAX + 10];
    host_port_text(v->proxy.host, v->proxy.port, proxy);
    snprintf(v->result.detail, sizeof v->result.detail, "the upstream proxy %.90s: %.70s", proxy,
             what);
    via_ends(v, outcome, -1);
}

static void whole_passed(struct deadline *d)
{
    via_fails(container_of(d, struct via, whole), EG_TIMED_OUT, "no answer in time");
}

static void answer_done(struct via *v)
{
    char what[64];
    int status = v->head.status;
    if (status / 100 == 2) {
        /* The loop knows the descriptor by its number: the caller gets another one. */
        int fd = fcntl(v->peer->fd, F_DUPFD_CLOEXEC, 0);
        if (fd < 0)
            via_fails(v, EG_FAILED, strerror(errno));
        else
            via_ends(v, EG_OPENED, fd);
        return;
    }
    snprintf(what, sizeof what, "%s (it answered %d)",
             status == 407 ? "it wants other credentials" : "it refuses", status);
    via_fails(v, status == 504 ? EG_TIMED_OUT : EG_CONNECT_FAILED, what);
}

/* Looks first, and takes no more than the head: what is behind it is the server's. */
static void answer_read(struct via *v)
{
    char bytes[4096];
    size_t used;
    ssize_t n = recv(v->peer->fd, bytes, sizeof bytes, MSG_PEEK);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        via_fails(v, EG_CONNECT_FAILED, n == 0 ? "it closed the connection" : strerror(errno));
        return;
    }
    enum head_result r = httphead_feed(&v->head, bytes, (size_t)n, &used);
    if (r == HEAD_BAD) {
        via_fails(v, EG_CONNECT_FAILED, "its answer is not HTTP");
        return;
    }
    (void)recv(v->peer->fd, bytes, used, 0);
    if (r == HEAD_MORE)
        return;
    if (v->head.status >= 200) {
        answer_done(v);
        return;
    }
    httphead_done(&v->head); /* 1xx: another one follows */
    httphead_init(&v->head, HEAD_MAX, true);
}

static void request_send(struct via *v)
{
    ssize_t n = send(v->peer->fd, v->out.data, v->out.len, MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0) {
        via_fails(v, EG_CONNECT_FAILED, strerror(errno));
        return;
    }
    str_consume(&v->out, (size_t)n);
    if (v->out.len == 0)
        peer_want(v->peer, UV_READABLE);
}

static void proxy_ready(void *arg, struct peer *p, int events)
{
    struct via *v = arg;
    (void)p;
    (void)events;
    if (v->out.len > 0)
        request_send(v);
    else
        answer_read(v);
}

static void proxy_dialled(void *arg, const struct dialled *r)
{
    struct via *v = arg;
    v->dial = NULL;
    v->result = *r;
    if (r->outcome != EG_OPENED) {
        char what[DIAL_DETAIL_MAX];
        snprintf(what, sizeof what, "%s",
                 r->outcome == EG_ADDRESS_CLASS ? "its port is Cordon's own" : r->detail);
        via_fails(v, r->outcome == EG_TIMED_OUT ? EG_TIMED_OUT : EG_CONNECT_FAILED, what);
        return;
    }
    if (v->target[0] == '\0') {
        via_ends(v, EG_OPENED, r->fd);
        return;
    }
    (void)str_printf(&v->out, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n", v->target, v->target);
    if (v->proxy.authorization[0])
        (void)str_printf(&v->out, "Proxy-Authorization: %s\r\n", v->proxy.authorization);
    if (str_puts(&v->out, "\r\n") < 0) {
        fd_close(r->fd);
        via_fails(v, EG_FAILED, "out of memory");
        return;
    }
    if (peer_new(v->deps.loop, r->fd, proxy_ready, v, &v->peer) < 0) {
        via_fails(v, EG_FAILED, "out of memory");
        return;
    }
    peer_want(v->peer, UV_WRITABLE);
}

int via_new(const struct dial_deps *deps, const struct via_proxy *proxy, bool is_own,
            const char *target, dialled_fn *fn, void *arg, struct via **ret)
{
    struct via *v = calloc(1, sizeof *v);
    if (v == NULL)
        return -ENOMEM;
    closing_init(&v->closing, via_freed);
    deadline_init(deps->loop, &v->whole, &v->closing, whole_passed);
    httphead_init(&v->head, HEAD_MAX, true);
    v->deps = *deps;
    v->deps.is_proxy = !is_own;
    v->proxy = *proxy;
    v->fn = fn;
    v->arg = arg;
    snprintf(v->target, sizeof v->target, "%s", target != NULL ? target : "");
    int r = dial_new(&v->deps, v->proxy.host, v->proxy.port, true, proxy_dialled, v, &v->dial);
    if (r < 0) {
        closing_start(&v->closing);
        return r;
    }
    *ret = v;
    return 0;
}

void via_start(struct via *v)
{
    deadline_set(&v->whole, v->deps.dial_ms);
    dial_start(v->dial);
}
