/* The session's name server: UDP on 127.0.0.1:53 inside. It looks nothing up and asks nobody: each
 * name gets addresses that stand for it (egress/names), also one that is not allowed, so that what
 * is connected to can be judged, recorded and asked about by its name. Types but A and AAAA have no
 * data; "localhost" is the loopback inside (RFC 6761, 6.3). */
#pragma once
#include "egress/peer.h"
#include <stdbool.h>

#define NAMESERVER_TTL 10 /* seconds */

struct egress;
/* Takes FD, also on failure. */
int nameserver_new(struct egress *eg, int take_fd, struct peer **ret);
