/* Listeners beside the doors, each of which stands for one place: a port inside for a service of
 * the host's loopback (EG_DOOR_LOCAL), a port of the host for a server inside (EG_DOOR_PUBLISH).
 * What they accept is a tunnel to "localhost" and that port, and is asked about like any other.
 *
 *     listen_add(eg, EG_DOOR_LOCAL, 5000, fd);    // M_EG_LISTEN
 *     listen_drop(eg, EG_DOOR_LOCAL, 5000);       // M_EG_UNLISTEN; open tunnels stay */
#pragma once
#include "egress/egress.h"

#define LISTENERS_MAX 128

/* Takes FD, also on failure. -ENOSPC, -ENOMEM. */
int listen_add(struct egress *eg, enum eg_door door, uint16_t port, int take_fd);
void listen_drop(struct egress *eg, enum eg_door door, uint16_t port);
void listen_want(struct egress *eg, int events); /* of all, as for the doors */
