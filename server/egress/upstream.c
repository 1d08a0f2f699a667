/* Runs in: egress. Reads: hostile. May block: no.
 *
 * From the verdict to the server's socket. */
#include "base/fd.h"
#include "base/mem.h"
#include "egress/conn_parts.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

void socket_prepare(int fd)
{
    /* Idle: within the minute after which netfilter forgets a connection that is half closed. */
    const int on = 1, idle = 45, interval = 20, count = 6;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

static void upstream_ready(struct conn *c, const char *address)
{
    tell_result(c, EG_OPENED, address, c->up_proxy != NULL ? "through the upstream proxy" : "");
    if (c->is_tunnel)
        tunnel_start(c);
    else
        exchange_start(c);
}

/* ---- The proxy of this host's network -------------------------------------------------------- */

/* Plain HTTP is asked of the proxy itself: many refuse CONNECT to port 80. */
static bool wants_forward(const struct conn *c)
{
    return c->proxy != NULL && !c->is_tunnel && !c->is_upgrade;
}

static bool proxy_fits(const struct conn *c)
{
    char proxy[HOST_MAX + 10];
    if (c->proxy == NULL || c->up_proxy == NULL)
        return c->proxy == NULL && c->up_proxy == NULL;
    host_port_text(c->proxy->host, c->proxy->port, proxy);
    return strcmp(proxy, c->up_proxy) == 0 && c->is_forwarded == wants_forward(c);
}

static int proxy_note(struct conn *c)
{
    char proxy[HOST_MAX + 10];
    c->is_forwarded = wants_forward(c);
    if (c->proxy == NULL)
        return 0;
    host_port_text(c->proxy->host, c->proxy->port, proxy);
    c->up_proxy = strdup(proxy);
    return c->up_proxy != NULL ? 0 : -ENOMEM;
}

static int proxy_take(struct conn *c, const struct verdict_in *v)
{
    free(TAKE(c->proxy));
    if (v->via[0] == '\0')
        return 0;
    c->proxy = malloc(sizeof *c->proxy);
    return c->proxy != NULL ? via_proxy_parse(v->via, v->authorization, c->proxy) : -ENOMEM;
}

/* ---- Dialling -------------------------------------------------------------------------------- */

static void conn_dialled(void *arg, const struct dialled *r)
{
    struct conn *c = arg;
    c->dial = NULL;
    c->via = NULL;
    if (r->outcome != EG_OPENED) {
        tell_result(c, r->outcome, r->address, r->detail);
        answer_undialled(c, r);
        return;
    }
    socket_prepare(r->fd);
    if (peer_new(c->eg->loop, r->fd, conn_ready, c, &c->up) < 0) {
        conn_close(c, true);
        return;
    }
    memcpy(c->up_host, c->host, sizeof c->up_host);
    memcpy(c->up_address, r->address, sizeof c->up_address);
    c->up_port = c->port;
    c->up_private = c->allow_private;
    c->up_reused = false;
    if (proxy_note(c) < 0) {
        conn_close(c, true);
        return;
    }
    upstream_ready(c, c->up_address);
}

/* The other side answered: it is connected, or will not be. */
static void given_ready(void *arg, struct peer *p, int events)
{
    struct conn *c = arg;
    int error = 0;
    socklen_t n = sizeof error;
    (void)events;
    peer_want(p, 0);
    p->ready = conn_ready;
    deadline_clear(&c->deadline);
    if (getsockopt(p->fd, SOL_SOCKET, SO_ERROR, &error, &n) < 0)
        error = errno;
    if (error == 0) {
        upstream_ready(c, "inside");
        return;
    }
    tell_result(c, EG_CONNECT_FAILED, "inside", strerror(error));
    conn_close(c, true);
}

bool conn_given(struct conn *c, uint32_t request, int take_fd)
{
    if (c->state != CONN_CHECKING || c->request != request) {
        fd_close(take_fd);
        return false;
    }
    c->owed = OWED_RESULT;
    c->state = CONN_DIALLING;
    deadline_set(&c->deadline, c->eg->start.dial_ms);
    socket_prepare(take_fd);
    if (peer_new(c->eg->loop, take_fd, given_ready, c, &c->up) < 0)
        conn_close(c, true);
    else
        peer_want(c->up, UV_WRITABLE);
    return true;
}

static bool port_is_own(const struct egress_start *start, uint16_t port)
{
    for (size_t i = 0; i < ARRAY_LEN(start->own_ports); i++)
        if (start->own_ports[i] != 0 && start->own_ports[i] == port)
            return true;
    return false;
}

/* What the proxy resolves cannot be looked at here; an address that was asked for can. */
static int proxy_dial(struct conn *c, const struct dial_deps *deps)
{
    char target[HOST_MAX + 10];
    struct dialled refused;
    if (dial_is_refused(deps, c->host, c->port, c->allow_private, &refused)) {
        conn_dialled(c, &refused);
        return 0;
    }
    host_port_text(c->host, c->port, target);
    int r = via_new(deps, c->proxy, port_is_own(&c->eg->start, c->proxy->port),
                    wants_forward(c) ? NULL : target, conn_dialled, c, &c->via);
    if (r == 0)
        via_start(c->via);
    return r;
}

void conn_dial(struct conn *c)
{
    const struct egress *eg = c->eg;
    const struct dial_deps deps = {.loop = eg->loop,
                                   .resolver = eg->resolver,
                                   .route_fd = eg->route_fd,
                                   .dial_ms = eg->start.dial_ms,
                                   .loopback = c->allow_loopback};
    up_drop(c, false);
    c->state = CONN_DIALLING;
    deadline_clear(&c->deadline); /* the dial has its own */
    int r = c->proxy != NULL
                ? proxy_dial(c, &deps)
                : dial_new(&deps, c->host, c->port, c->allow_private, conn_dialled, c, &c->dial);
    if (r < 0)
        conn_close(c, true);
    else if (c->dial != NULL)
        dial_start(c->dial);
}

/* Same place, judged by the same rule, and nothing was heard of it since. */
static bool up_fits(const struct conn *c)
{
    char byte;
    return !c->is_tunnel && c->up != NULL && strcmp(c->up_host, c->host) == 0 &&
           c->up_port == c->port && c->up_private == c->allow_private && proxy_fits(c) &&
           recv(c->up->fd, &byte, 1, MSG_PEEK) < 0 && errno == EAGAIN;
}

/* The proof's own name. */
static void verdict_self(struct conn *c)
{
    c->owed = OWED_RESULT;
    tell_result(c, EG_OPENED, "", "");
    c->owed = OWED_NOTHING;
    if (c->door == EG_DOOR_HTTP)
        (void)str_puts(&c->out, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
                                "Content-Length: 3\r\nConnection: close\r\n\r\nok\n");
    else
        (void)opened_put(&c->out, c);
    answer_start(c);
}

static void verdict_allow(struct conn *c, const struct verdict_in *v)
{
    c->owed = OWED_RESULT;
    c->allow_private = v->flags & EG_ALLOW_PRIVATE;
    c->allow_loopback = v->flags & EG_ALLOW_LOOPBACK;
    if (port_is_own(&c->eg->start, c->port)) {
        tell_result(c, EG_OWN_PORT, "", "the port is Cordon's own");
        verdict_deny(c, &(struct verdict_in){.reason = "own_port",
                                             .rule = "Cordon's own ports, whatever a rule says",
                                             .hint = NULL});
        return;
    }
    if (proxy_take(c, v) < 0) {
        conn_close(c, true);
        return;
    }
    if (!up_fits(c)) {
        conn_dial(c);
        return;
    }
    c->up_reused = true;
    upstream_ready(c, c->up_address);
}

/* The deadline of the check goes on. What the client sends meanwhile stays where it is; only that
 * it leaves is looked for: a person is not to answer for nobody. */
static void verdict_hold(struct conn *c)
{
    c->is_held = true;
    c->owed = OWED_CLOSED;
    peer_want(c->client, UV_DISCONNECT);
}

/* It closed, or closed its sending side alone, which looks the same from here: that one reads why.
 */
void held_left(struct conn *c)
{
    c->is_held = false;
    tell_end(c, "");
    verdict_deny(c, &(struct verdict_in){.reason = "not_listed",
                                         .rule = "a person is asked, and the client ended its side",
                                         .hint = "keep the connection open while it waits"});
}

bool conn_verdict(struct conn *c, uint32_t request, const struct verdict_in *v)
{
    if (c->hello != NULL && request == (c->request | EG_NAME_REQUEST)) {
        hello_verdict(c, v);
        return true;
    }
    if (c->state != CONN_CHECKING || c->request != request)
        return false;
    if (v->verdict == EG_HOLD) {
        verdict_hold(c);
        return true;
    }
    if (c->is_held) {
        c->is_held = false;
        c->owed = OWED_NOTHING;
        peer_want(c->client, 0);
    }
    deadline_clear(&c->deadline);
    switch (v->verdict) {
    case EG_ALLOW:
        verdict_allow(c, v);
        break;
    case EG_ANSWER_SELF:
        verdict_self(c);
        break;
    default: /* EG_DENY, and whatever is not known */
        verdict_deny(c, v);
        break;
    }
    return true;
}
