/* What cordon-egress is told when it starts (M_EG_START), as bytes. */
#pragma once
#include "wire/pack.h"
#include "wire/rules.h"

struct egress_start {
    char *session;            /* its id, for log lines only */
    uint16_t door_port;       /* of both doors, inside the session's namespace */
    uint16_t own_ports[4];    /* Cordon's own API ports, refused whatever a verdict says; 0 ends */
    uint32_t connections_max; /* 1,024 */
    uint32_t head_max;        /* 64 KiB */
    uint32_t dial_ms;         /* 10,000 */
    struct rules rules;       /* its lock-down */
};
void egress_start_done(struct egress_start *s);
void egress_start_put(struct pack *p, const struct egress_start *s);
int egress_start_get(struct unpack *u, struct egress_start *ret);
