/* Runs in: egress. Reads: nothing. May block: no.
 *
 * A connection by a listener that stands for one place. Its client knows of no proxy: nothing is
 * said on opening, and a reset is how a refusal looks. */
#include "base/mem.h"
#include "egress/conn_parts.h"
#include <stdio.h>

void port_request(struct conn *c, enum eg_door door, uint16_t port)
{
    c->door = door;
    c->port = port;
    c->is_tunnel = true;
    snprintf(c->host, sizeof c->host, "localhost");
    if (c->over_limit)
        conn_close(c, true);
    else
        request_check(c);
}
