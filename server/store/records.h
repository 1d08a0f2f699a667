/* Sessions, commands and asks as documents (the JSON of REST) with the columns that lists filter
 * by. The live object owns the truth while it lives and puts the document anew at each change. */
#pragma once
#include "store/db.h"
#include <jansson.h>

#define IDEMPOTENCY_MAX   10000 /* answers in all: the oldest goes */
#define IDEMPOTENCY_HOURS 24
#define RECORD_LIST_MAX   500

enum record_kind { RECORD_SESSION = 0, RECORD_COMMAND, RECORD_ASK };
struct record {
    enum record_kind kind;
    const char *id;
    const char *session_id;          /* of a command or an ask; that session was put before */
    const char *state, *tier, *text; /* tier: of a session; text: what ?q= looks through */
    const json_t *doc;
};
int record_put(struct db *db, const struct record *r);
/* *ret_doc is a new reference. -ENOENT. */
int record_get(struct db *db, enum record_kind kind, const char *id, json_t **ret_doc);
/* A session with its commands, asks and blocked rows, a command with its blocked rows. -ENOENT. */
int record_delete(struct db *db, enum record_kind kind, const char *id);
struct record_query {
    enum record_kind kind;
    const char *session_id, *state, *tier, *q; /* or NULL; q: part of the text, ASCII case apart */
    const char *before_id;                     /* cursor: ids grow with time */
    unsigned limit;                            /* 1..RECORD_LIST_MAX; 0 = 50 */
};
/* Newest first, a new array of documents; *ret_more says whether there are older ones. */
int record_list(struct db *db, const struct record_query *q, json_t **ret_items, bool *ret_more);
/* At start, before the first session: whatever was alive when the daemon died becomes `ended`
 * (sessions, end_reason daemon_died), `lost` (commands) or `cancelled` (asks), with ended_at now
 * (but for asks), a higher rev, and an audit row each (session.ended, command.ended, ask.expired,
 * by the daemon, outcome error). LOST (or NULL) is
 * told each command: its spool has no end yet. Returns how many records; call db_commit after. */
int record_mark_lost(struct db *db, void (*lost)(const char *command_id, void *arg), void *arg);
/* Removes sessions (with their commands) and commands that ended before BEFORE_WALL_MS, with their
 * blocked rows, at most MAX of each. Returns how many. */
int record_retain(struct db *db, int64_t before_wall_ms, unsigned max);

/* What the wall has refused of HOST:PORT in a session: how often, when last (wall ms), and during
 * which command ("" = none). Zeroes when nothing. */
struct blocked_evidence {
    int64_t count, last_at;
    char command_id[32];
};
int blocked_evidence_get(struct db *db, const char *session_id, const char *host, uint16_t port,
                         struct blocked_evidence *ret);
/* Closed asks of one session: the oldest past ASKS_KEPT go. */
#define ASKS_KEPT 1000
int asks_cut(struct db *db, const char *session_id);

/* Idempotency-Key: kept 24 h per token. 1 and the stored answer (*ret_body is malloc'ed), 0 none,
 * -EEXIST other body. */
int idempotency_get(struct db *db, const char *token_id, const char *route, const char *key,
                    const char *body_hash, int *ret_status, char **ret_body);
int idempotency_put(struct db *db, const char *token_id, const char *route, const char *key,
                    const char *body_hash, int status, const char *body);
