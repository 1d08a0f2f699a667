/* One client connection, from the first byte to the last.
 *
 * Every wait is a state, and every request on it goes the same way, whatever door it came by:
 *
 *     HEAD -> CHECKING -> DIALLING -> TUNNEL (CONNECT), or
 *                                     REQUEST -> RESPONSE -> HEAD again (plain HTTP)
 *     any  -> ANSWERING (our own refusal) -> DRAINING -> closed
 *
 * Nothing is read from the client that its state has no place for. The daemon is told of each
 * request that it allowed: one M_EG_RESULT, and one M_EG_CLOSED if it was opened. */
#pragma once
#include "egress/egress.h"

/* Takes FD. OVER_LIMIT: its first request is answered 503. DOOR is EG_DOOR_LOCAL or EG_DOOR_PUBLISH
 * with PORT, or anything below: then its first bytes tell. */
void conn_accept(struct egress *eg, int take_fd, bool over_limit, enum eg_door door, uint16_t port);
struct verdict_in {
    uint8_t verdict; /* enum eg_verdict, as it came: unknown is DENY */
    uint8_t flags;
    const char *reason, *rule, *hint;
    const char *via, *authorization; /* "host:port" of the proxy to go through, or empty */
};
/* False: C no longer waits for a verdict about that request. */
bool conn_verdict(struct conn *c, uint32_t request, const struct verdict_in *v);
/* Allowed, and connected already: TAKE_FD is the other side. False as above; FD is closed then. */
bool conn_given(struct conn *c, uint32_t request, int take_fd);
void conn_cut(struct conn *c); /* at once, both sides are reset */
