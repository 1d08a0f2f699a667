/* Sessions and commands as documents (the JSON of api.md) with the columns that lists filter by.
 * The live object owns the truth while it lives and puts the document anew at each change. */
#pragma once
#include "store/db.h"
#include <jansson.h>

enum record_kind { RECORD_SESSION = 0, RECORD_COMMAND };
struct record {
    enum record_kind kind;
    const char *id;
    const char *session_id;          /* of a command */
    const char *state, *tier, *text; /* text: what ?q= looks through (name; display) */
    const json_t *doc;
};
int record_put(struct db *db, const struct record *r);
int record_get(struct db *db, enum record_kind kind, const char *id,
               json_t **ret_doc); /* -ENOENT */
int record_delete(struct db *db, enum record_kind kind,
                  const char *id); /* a session with its commands */
struct record_query {
    enum record_kind kind;
    const char *session_id, *state, *tier, *q; /* or NULL */
    const char *before_id;                     /* cursor: ids grow with time */
    unsigned limit;
};
/* Newest first; *ret_more says whether there are older ones. */
int record_list(struct db *db, const struct record_query *q, json_t **ret_items, bool *ret_more);
/* At start: whatever was alive when the daemon died becomes `ended` (sessions, end_reason
 * daemon_died) or `lost` (commands). Returns how many. */
int record_mark_lost(struct db *db);

/* Refused connections, counted. */
struct blocked_row {
    const char *session_id, *command_id /* or NULL */, *host, *reason;
    uint16_t port;
};
int blocked_count(struct db *db, const struct blocked_row *row); /* adds one */
int blocked_list(struct db *db, const char *session_id /* NULL = all */, const char *command_id,
                 json_t **ret_items);

/* Idempotency-Key: kept 24 h per token. 1 and the stored answer, 0 none, -EEXIST other body. */
int idempotency_get(struct db *db, const char *token_id, const char *route, const char *key,
                    const char *body_hash, int *ret_status, char **ret_body);
int idempotency_put(struct db *db, const char *token_id, const char *route, const char *key,
                    const char *body_hash, int status, const char *body);
