/* Runs in: daemon. Reads: hostile (sockets that the runner hands out, checked by sandbox/). May
 * block: no. */
#include "session/ports.h"
#include "base/log.h"
#include "session/parts.h"
#include "wire/msg.h"
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define PORT_MS 10000 /* a runner that is busy with many starts answers late */

/* ---- Published: the listeners on the host -----------------------------------------------------
 */

static int listen_outside(uint16_t port)
{
    const int on = 1;
    const struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    CLEANUP(fd_done) int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        bind(fd, (const struct sockaddr *)&a, sizeof a) < 0 || listen(fd, SOMAXCONN) < 0)
        return -errno;
    int made = fd;
    fd = -1;
    return made;
}

static int not_opened(const struct session *s, size_t i, int r, struct err *err)
{
    char pointer[32];
    unsigned port = s->publish[i].port;
    (void)snprintf(pointer, sizeof pointer, "/publish/%zu", i);
    if (r == -EADDRINUSE)
        return err_set(err, -EEXIST, "exists",
                       "choose another port, or end the program that has it",
                       "port %u of 127.0.0.1 is taken on this machine", port);
    if (r == -EACCES || r == -EPERM)
        return err_member(err, -EINVAL, "body_invalid", pointer,
                          "port %u of this machine is not yours to open: choose one above 1023",
                          port);
    return err_set(err, r, "internal", NULL, "port %u of 127.0.0.1: %s", port, strerror(-r));
}

int publish_open(struct session *s, struct err *err)
{
    for (size_t i = 0; i < s->n_publish; i++) {
        int fd = listen_outside(s->publish[i].port);
        if (fd < 0)
            return not_opened(s, i, fd, err);
        s->publish[i].fd = fd;
    }
    return 0;
}

void publish_close(struct session *s)
{
    for (size_t i = 0; i < s->n_publish; i++)
        fd_done(&s->publish[i].fd);
}

bool session_publishes(const struct session *s, uint16_t port)
{
    for (size_t i = 0; i < s->n_publish; i++)
        if (s->publish[i].port == port)
            return true;
    return false;
}

static void publish_follow(struct generation *g, bool on)
{
    const struct session *s = g->s;
    if (g->is_publishing == on)
        return;
    g->is_publishing = on;
    for (size_t i = 0; i < s->n_publish; i++) {
        int r = on ? egress_link_listen(g->egress, EG_DOOR_PUBLISH, s->publish[i].port,
                                        s->publish[i].fd)
                   : egress_link_unlisten(g->egress, EG_DOOR_PUBLISH, s->publish[i].port);
        if (r < 0)
            log_error("session.publish", "session=%s port=%u errno=%d", s->id, s->publish[i].port,
                      -r);
    }
}

/* ---- Published: a connection ------------------------------------------------------------------
 */

struct inward {
    struct session *s;     /* a reference */
    struct generation *g;  /* whose runner is asked, which answers before that is gone */
    struct egress_link *l; /* compared only, until it is known to be there */
    uint32_t conn, number;
    uint16_t port;
};

static bool link_is_there(const struct session *s, const struct egress_link *l)
{
    if ((s->now && s->now->egress == l) || (s->making && s->making->egress == l))
        return true;
    for (const struct generation *g = s->old; g; g = g->next)
        if (g->egress == l)
            return true;
    return false;
}

static void inward_over(struct inward *in, int take_fd, const char *why)
{
    if (link_is_there(in->s, in->l))
        egress_link_give(in->l, in->conn, in->number, take_fd, why);
    else
        fd_close(take_fd);
    session_unref(in->s);
    free(in);
}

static int inward_answered(int r, struct unpack *u, void *arg);

static void inward_ask(struct inward *in, struct generation *g)
{
    for (; g; g = g == in->s->now ? in->s->old : g->next) {
        in->g = g;
        if (g->runner && g->state == GEN_PROVED &&
            runner_link_port(g->runner, M_CONNECT, in->port, PORT_MS, inward_answered, in) == 0)
            return;
    }
    inward_over(in, -1, "nothing listens on that port inside");
}

static int inward_answered(int r, struct unpack *u, void *arg)
{
    struct inward *in = arg;
    int fd = -1;
    if (r < 0) {
        inward_over(in, -1, r == -ETIMEDOUT ? "the sandbox did not answer" : "the sandbox is gone");
        return 0;
    }
    (void)unpack_u32(u); /* the id, which the link has matched */
    uint32_t error = unpack_u32(u);
    uint8_t n = unpack_u8(u);
    r = unpack_end(u);
    if (r == 0 && (n == 1) != (error == 0))
        r = -EBADMSG;
    if (r == 0 && n == 1)
        r = runner_link_take_fd(in->g->runner, &fd);
    if (r == 0 && n == 1 && wall_socket_check(in->g->wall, fd) < 0)
        r = -EBADMSG;
    if (r < 0) {
        fd_close(fd);
        inward_over(in, -1, "the sandbox handed out nonsense");
    } else if (n == 1) {
        inward_over(in, fd, "");
    } else {
        inward_ask(in, in->g == in->s->now ? in->s->old : in->g->next);
    }
    return r;
}

void publish_connect(struct session *s, struct egress_link *l, uint32_t conn, uint32_t number,
                     uint16_t port)
{
    struct inward *in = malloc(sizeof *in);
    if (!in) {
        egress_link_give(l, conn, number, -1, "out of memory");
        return;
    }
    session_ref(s);
    *in = (struct inward){.s = s, .l = l, .conn = conn, .number = number, .port = port};
    inward_ask(in, s->now);
}

/* ---- Services of the host's loopback ----------------------------------------------------------
 */

bool session_has_local(const struct session *s, uint16_t port)
{
    for (const struct own_site *o = s->sites; o; o = o->next)
        if (o->row.port == port && o->row.enabled && strcmp(o->row.host, "localhost") == 0)
            return true;
    return false;
}

static struct local_port **local_at(struct generation *g, uint16_t port)
{
    struct local_port **at = &g->local;
    while (*at && (*at)->port != port)
        at = &(*at)->next;
    return at;
}

static void local_free(struct local_port *lp)
{
    for (unsigned i = 0; i < lp->n_fds; i++)
        fd_close(lp->fds[i]);
    free(lp);
}

void generation_ports_free(struct generation *g)
{
    while (g->local) {
        struct local_port *lp = g->local;
        g->local = lp->next;
        local_free(lp);
    }
}

static void local_tell(struct generation *g, const struct local_port *lp)
{
    for (unsigned i = 0; i < lp->n_fds; i++)
        if (egress_link_listen(g->egress, EG_DOOR_LOCAL, lp->port, lp->fds[i]) < 0)
            log_error("session.local", "session=%s port=%u", g->s->id, lp->port);
}

static void local_not_had(struct session *s, uint16_t port, uint32_t error)
{
    char text[200];
    if (error == EADDRINUSE)
        (void)snprintf(text, sizeof text,
                       "localhost:%u is not the host's inside: a program of the session has that "
                       "port; end it, then remove the site and add it again",
                       port);
    else
        (void)snprintf(text, sizeof text, "localhost:%u is not the host's inside: %s", port,
                       strerror((int)(error & 0xfff)));
    session_warn(s, "port_taken", text);
    session_changed(s);
}

struct listening {
    struct generation *g; /* whose runner is asked, which answers before that is gone */
    uint16_t port;
};

/* The descriptors of the answer; they are closed where the answer is not what was asked for, or
 * nobody wants it any more. */
static int listeners_take(struct generation *g, uint16_t port, uint8_t n)
{
    struct local_port *lp = *local_at(g, port), made = {.port = port};
    int r = 0;
    while (r == 0 && made.n_fds < n)
        if ((r = runner_link_take_fd(g->runner, &made.fds[made.n_fds])) == 0)
            made.n_fds++;
    if (r == 0 && wall_listeners_check(g->wall, made.fds, made.n_fds, port) < 0)
        r = -EBADMSG;
    if (r < 0 || !lp || lp->n_fds > 0) {
        for (unsigned i = 0; i < made.n_fds; i++)
            fd_close(made.fds[i]);
        return r;
    }
    memcpy(lp->fds, made.fds, sizeof lp->fds);
    lp->n_fds = made.n_fds;
    if (g->egress && g->way_out == WAY_READY)
        local_tell(g, lp);
    return 0;
}

static int listening_answered(int r, struct unpack *u, void *arg)
{
    struct listening *li = arg;
    struct generation *g = li->g;
    uint16_t port = li->port;
    free(li);
    if (r < 0) {
        if (r == -ETIMEDOUT)
            local_not_had(g->s, port, ETIMEDOUT);
        return 0;
    }
    (void)unpack_u32(u); /* the id, which the link has matched */
    uint32_t error = unpack_u32(u);
    uint8_t n = unpack_u8(u);
    r = unpack_end(u);
    if (r == 0 && (n == 0) != (error != 0))
        r = -EBADMSG;
    if (r < 0)
        return r;
    if (error == 0)
        return listeners_take(g, port, n);
    const struct local_port *lp = *local_at(g, port);
    if (lp && lp->n_fds == 0) /* not of an asking before that was taken back meanwhile */
        local_not_had(g->s, port, error);
    return 0;
}

static void local_ask(struct generation *g, uint16_t port)
{
    struct local_port **at = local_at(g, port);
    struct listening *li = *at ? NULL : malloc(sizeof *li);
    if (!li)
        return;
    *li = (struct listening){g, port};
    if (!(*at = calloc(1, sizeof **at)) ||
        runner_link_port(g->runner, M_LISTEN, port, PORT_MS, listening_answered, li) < 0) {
        free(TAKE(*at));
        free(li);
        local_not_had(g->s, port, ENOMEM);
        return;
    }
    (*at)->port = port;
}

/* What was taken back: the copies here and in the egress are all there are. */
static void local_drop(struct generation *g)
{
    for (struct local_port **at = &g->local, *lp; (lp = *at);) {
        if (session_has_local(g->s, lp->port)) {
            at = &lp->next;
            continue;
        }
        *at = lp->next;
        if (g->egress && g->way_out == WAY_READY)
            (void)egress_link_unlisten(g->egress, EG_DOOR_LOCAL, lp->port);
        local_free(lp);
    }
}

static void follow(struct generation *g, bool is_now)
{
    local_drop(g);
    if (g->state != GEN_PROVED || g->way_out != WAY_READY || !g->egress || !g->runner)
        return;
    if (!g->is_egress_told) { /* a new one, which has nothing yet */
        g->is_egress_told = true;
        g->is_publishing = false;
        for (const struct local_port *lp = g->local; lp; lp = lp->next)
            local_tell(g, lp);
    }
    publish_follow(g, is_now);
    for (const struct own_site *o = g->s->sites; is_now && o; o = o->next)
        if (strcmp(o->row.host, "localhost") == 0)
            local_ask(g, (uint16_t)o->row.port);
}

void session_ports_follow(struct session *s)
{
    for (struct generation *g = s->old; g; g = g->next)
        follow(g, false);
    if (s->now)
        follow(s->now, true);
}
