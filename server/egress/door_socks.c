/* Runs in: egress. Reads: hostile. May block: no.
 *
 * The door of SOCKS clients: SOCKS5, SOCKS4 and SOCKS4a, CONNECT only. */
#include "base/mem.h"
#include "egress/conn_parts.h"
#include "egress/names.h"
#include <string.h>
#include <sys/socket.h>

bool socks_is_first(char first)
{
    return first == 4 || first == 5;
}

int socks_start(struct conn *c, char first)
{
    c->socks = malloc(sizeof *c->socks);
    if (c->socks == NULL)
        return -ENOMEM;
    socks_init(c->socks);
    c->door = first == 4 ? EG_DOOR_SOCKS4 : EG_DOOR_SOCKS5;
    head_drop(c);
    return 0;
}

/* What was read goes no further; the client hears why, as far as its protocol has words for it. */
static void socks_refuse(struct conn *c)
{
    const struct socks *s = c->socks;
    uint8_t answer[SOCKS_REPLY_MAX];
    size_t n = socks_answer(s, answer);
    tell_refused(c, s->name, s->name_len, s->why);
    if (str_add(&c->out, answer, n) < 0)
        conn_close(c, true);
    else
        answer_start(c);
}

/* False when the connection is ended. */
static bool socks_greet(struct conn *c)
{
    uint8_t answer[SOCKS_REPLY_MAX];
    ssize_t n = (ssize_t)socks_answer(c->socks, answer);
    /* The client's buffer is empty, so this fits. */
    if (send(c->client->fd, answer, (size_t)n, MSG_NOSIGNAL) == n)
        return true;
    conn_close(c, true);
    return false;
}

void socks_take(struct conn *c, const char *bytes, size_t n, size_t *ret_used)
{
    size_t used;
    *ret_used = 0;
    for (;;) {
        enum socks_result r = socks_feed(c->socks, bytes + *ret_used, n - *ret_used, &used);
        *ret_used += used;
        if (r == SOCKS_BAD)
            socks_refuse(c);
        if (r != SOCKS_GREETED || !socks_greet(c))
            return;
    }
}

bool socks_is_asked(const struct conn *c)
{
    return c->state == CONN_HEAD && c->socks != NULL && c->socks->port != 0;
}

void socks_request(struct conn *c)
{
    c->request++;
    c->is_tunnel = true;
    memcpy(c->host, c->socks->host, sizeof c->host);
    c->port = c->socks->port;
    if (c->over_limit) {
        tell_refused(c, c->host, strlen(c->host), "too many connections at once");
        answer_bad(c, 503, "this session has too many connections open",
                   "close some, or make fewer at once");
        return;
    }
    if (names_settle(c->eg->names, c->host) < 0) {
        const char *why = "the address is one of this session that stands for no name";
        tell_refused(c, c->host, strlen(c->host), why);
        answer_bad(c, 400, why, NULL);
        return;
    }
    request_check(c);
}

size_t socks_said(const struct conn *c, enum socks_code code, uint8_t ret[static SOCKS_REPLY_MAX])
{
    const struct socks of = {.version = c->door == EG_DOOR_SOCKS4 ? 4 : 5};
    return socks_reply(&of, code, ret);
}
