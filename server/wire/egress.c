/* Runs in: daemon (put), egress (get). Reads: trusted. May block: no. */
#include "wire/egress.h"
#include "base/mem.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SESSION_ID_MAX  64
#define CONNECTIONS_MAX 65536
#define HEAD_MAX        (1U << 20)
#define DIAL_MS_MAX     600000

void egress_start_done(struct egress_start *s)
{
    free(s->session);
    rules_done(&s->rules);
    memset(s, 0, sizeof *s);
}

void egress_start_put(struct pack *p, const struct egress_start *s)
{
    pack_str(p, s->session);
    pack_u16(p, s->door_port);
    for (size_t i = 0; i < ARRAY_LEN(s->own_ports); i++)
        pack_u16(p, s->own_ports[i]);
    pack_u32(p, s->connections_max);
    pack_u32(p, s->head_max);
    pack_u32(p, s->dial_ms);
    rules_put(p, &s->rules);
}

/* A limit of 0 would mean none or nothing, depending on the reader: it is refused. */
static bool start_is_sane(const struct egress_start *s)
{
    return s->session != NULL && s->door_port != 0 && s->connections_max >= 1 &&
           s->connections_max <= CONNECTIONS_MAX && s->head_max >= 256 && s->head_max <= HEAD_MAX &&
           s->dial_ms >= 1 && s->dial_ms <= DIAL_MS_MAX;
}

int egress_start_get(struct unpack *u, struct egress_start *ret)
{
    struct egress_start s = {0};
    s.session = unpack_str(u, SESSION_ID_MAX);
    s.door_port = unpack_u16(u);
    for (size_t i = 0; i < ARRAY_LEN(s.own_ports); i++)
        s.own_ports[i] = unpack_u16(u);
    s.connections_max = unpack_u32(u);
    s.head_max = unpack_u32(u);
    s.dial_ms = unpack_u32(u);
    if (rules_get(u, &s.rules) < 0 || unpack_end(u) < 0 || !start_is_sane(&s)) {
        egress_start_done(&s);
        return -EBADMSG;
    }
    *ret = s;
    return 0;
}
