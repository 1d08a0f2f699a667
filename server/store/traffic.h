/* Connections let through and refused: counts by hour, host and port, for the last TRAFFIC_HOURS.
 * What an agent tries in one hour past TRAFFIC_HOSTS hosts is counted, but no longer by host. */
#pragma once
#include "store/db.h"
#include <jansson.h>

#define TRAFFIC_HOURS 168 /* a week */
#define TRAFFIC_HOSTS 256 /* hosts and ports of one hour */
#define TRAFFIC_SHOWN 100 /* in the list of hosts */

enum traffic { TRAFFIC_BLOCKED = 0, TRAFFIC_ALLOWED };
/* Adds one, into the present group. HOST is canonical. */
int traffic_count(struct db *db, const char *host, uint16_t port, enum traffic what);
/* {items[]{at, allowed, blocked}, hosts[]{host, port, allowed, blocked}}: the hours in which there
 * was something, oldest first; the TRAFFIC_SHOWN busiest hosts of all of them. */
int traffic_stats(struct db *db, json_t **ret);
