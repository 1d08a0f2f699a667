/* Runs in: egress. Reads: hostile. May block: no.
 *
 * The TLS name within a tunnel. What a tunnel's client says first is held back until it is plain
 * what it is: no TLS, and it goes on unread; a ClientHello, and the server it names is the host
 * that was judged, or is judged by itself. What the server says is never held back, so that one
 * which speaks first is heard. */
#include "base/mem.h"
#include "egress/conn_parts.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#define HELD_MAX 32768 /* real ones have 2 KiB; cut into records of one byte, each costs six */
#define HELLO_MS 30000 /* from its first byte to its last, and for the daemon's answer */

/* alert, TLS 1.2 as all say, 2 bytes, fatal, access_denied (RFC 8446, 6) */
static const uint8_t ALERT[] = {21, 3, 3, 0, 2, 2, 49};

void hello_drop(struct conn *c)
{
    if (c->hello == NULL)
        return;
    tlshello_done(&c->hello->tls);
    str_done(&c->hello->held);
    free(TAKE(c->hello));
}

/* Nothing that was held went on, nor will it. */
static void hello_refuse(struct conn *c)
{
    hello_drop(c);
    tell_end(c, "");
    if (c->to_client.bytes > 0 || str_add(&c->out, ALERT, sizeof ALERT) < 0) {
        conn_close(c, true);
        return;
    }
    answer_start(c);
}

static void hello_bad(struct conn *c, const char *why)
{
    tell_refused(c, c->host, strlen(c->host), why);
    hello_refuse(c);
}

void hello_late(struct conn *c)
{
    hello_bad(c, "the ClientHello did not end in time");
}

/* It may go on: what was held first. */
static void hello_pass(struct conn *c, bool is_named)
{
    c->is_named = is_named;
    c->to_up.wants_read = true;
    deadline_clear(&c->deadline);
    if (flow_take(&c->to_up, c->hello->held.data, c->hello->held.len) < 0) {
        conn_close(c, true);
        return;
    }
    hello_drop(c);
}

static void hello_ask(struct conn *c)
{
    struct pack p = {0};
    c->hello->is_asked = true;
    c->to_up.wants_read = false;
    pack_u32(&p, c->id);
    pack_u32(&p, c->request | EG_NAME_REQUEST);
    pack_u8(&p, EG_DOOR_TLS_NAME);
    pack_str(&p, c->hello->tls.name);
    pack_u16(&p, c->port);
    link_send(&c->eg->link, M_EG_CHECK, &p);
}

void hello_verdict(struct conn *c, const struct verdict_in *v)
{
    if (!c->hello->is_asked)
        return;
    if (v->verdict != EG_ALLOW) {
        hello_refuse(c);
        return;
    }
    hello_pass(c, true);
    if (c->state == CONN_TUNNEL)
        tunnel_step(c);
}

static void hello_look(struct conn *c, const char *bytes, size_t n)
{
    struct hello *h = c->hello;
    if (h->held.len == 0)
        deadline_set(&c->deadline, HELLO_MS);
    if (str_add(&h->held, bytes, n) < 0) {
        hello_bad(c, "the ClientHello is too long");
        return;
    }
    switch (tlshello_feed(&h->tls, bytes, n)) {
    case HELLO_MORE:
        return;
    case HELLO_BAD:
        hello_bad(c, h->tls.why);
        return;
    case HELLO_NOT_TLS:
        hello_pass(c, false);
        return;
    case HELLO_DONE:
        break;
    }
    if (h->tls.name[0] == '\0' || strcmp(h->tls.name, c->host) == 0)
        hello_pass(c, h->tls.name[0] != '\0');
    else
        hello_ask(c);
}

int hello_start(struct conn *c)
{
    c->hello = calloc(1, sizeof *c->hello);
    if (c->hello == NULL)
        return -ENOMEM;
    tlshello_init(&c->hello->tls);
    c->hello->held.max = HELD_MAX;
    if (c->in.len > 0)
        hello_look(c, c->in.data, c->in.len);
    return 0;
}

void hello_step(struct conn *c)
{
    char bytes[READ_BYTES];
    while (c->hello != NULL && !c->hello->is_asked) {
        ssize_t n = recv(c->client->fd, bytes, sizeof bytes, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0)
            conn_close(c, true);
        else if (n > 0)
            hello_look(c, bytes, (size_t)n);
        else if (c->hello->held.len > 0)
            hello_bad(c, "the ClientHello is cut off");
        else
            hello_pass(c, false); /* a client that only listens: its end is passed on */
    }
}
