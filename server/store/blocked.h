/* Refused connections, counted: a row a session, command, host, port and reason. The row without a
 * command counts for the session as a whole; each command that ran then has one of its own. */
#pragma once
#include "store/db.h"
#include <jansson.h>

#define BLOCKED_MAX        1000 /* rows of one session, and of one command: the oldest goes */
#define BLOCKED_HOST_ITEMS 20   /* rows shown in a group of blocked_by_host() */
#define BLOCKED_CURSOR     48

struct blocked_row {
    const char *session_id, *command_id /* or NULL */, *host, *reason;
    uint16_t port;
    uint64_t times; /* how many it stands for; 0 is one */
};
/* Adds them; *ret_count (may be NULL) is then how many there were. */
int blocked_count(struct db *db, const struct blocked_row *row, int64_t *ret_count);

struct blocked_query {
    const char *session_id; /* NULL = of all sessions */
    const char *command_id; /* of that command; NULL = of sessions as wholes */
    const char *cursor;     /* of the page before, or NULL */
    unsigned limit;         /* 0 = 50 */
};
/* A new array of {host, port, session_id, command_id?, count, first_at, last_at, reason, ask_id?},
 * latest first, and the CURSOR of the next page, "" at the end. -EINVAL: no such cursor. */
int blocked_list(struct db *db, const struct blocked_query *q, json_t **ret_items,
                 char cursor[static BLOCKED_CURSOR]);
/* The same by host: {host, count, items}, of items the latest BLOCKED_HOST_ITEMS. */
int blocked_by_host(struct db *db, const struct blocked_query *q, json_t **ret_items,
                    char cursor[static BLOCKED_CURSOR]);
