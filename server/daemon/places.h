/* Where the daemon keeps its things (man cordond): folders 0700 and ours, links refused, one
 * daemon per state folder by a lock that is held for life. */
#pragma once
#include "base/err.h"
#include <stdbool.h>

struct places {
    char *state, *config, *cache, *run; /* folders */
    char *database, *spool, *token, *socket;
    char *notice, *notice_copy; /* server.json in the state folder, and beside the socket */
    int lock, run_lock;
};
/* Makes the folders and takes the lock. -EBUSY when another daemon holds the state folder. */
int places_open(struct places *ret, struct err *err);
/* server.json, both copies. */
int places_notice(const struct places *p, const char *json, struct err *err);
/* Removes the notices and the socket, and lets go of the locks. */
void places_close(struct places *p);
