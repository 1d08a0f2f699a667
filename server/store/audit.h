/* Append-only, chained records. hash = SHA-256 hex of prev_hash and the row without `hash` as
 * sorted compact JSON. Only the daemon writes; retention cuts old rows and keeps the last hash it
 * cut. */
#pragma once
#include "store/db.h"
#include <jansson.h>
#include <sys/types.h>

enum actor_kind { ACTOR_DAEMON = 0, ACTOR_OWNER, ACTOR_BROWSER, ACTOR_TOKEN, ACTOR_AGENT };
extern const char *const ACTOR_NAMES[];
struct actor {
    enum actor_kind kind;
    char id[32];      /* tok_…, brw_…, or empty */
    int64_t peer_uid; /* -1 = unknown */
};
enum outcome { OUTCOME_REFUSED = 0, OUTCOME_OK, OUTCOME_ERROR };
extern const char *const OUTCOME_NAMES[];

struct audit_entry {
    const struct actor *actor;           /* NULL = daemon */
    const char *action;                  /* of the list in api.md */
    const char *session_id, *command_id; /* or NULL */
    const char *target;
    json_t *take_before, *take_after; /* or NULL; taken */
    enum outcome outcome;
    json_t *enforcement; /* or NULL; borrowed */
};
/* Into the present transaction. -ENOSPC … when it cannot be written: the work is then refused. */
int audit_add(struct db *db, const struct audit_entry *e);

struct audit_query {
    const char *session, *actor, *action, *outcome, *target; /* or NULL; actor = kind or id */
    int64_t since, until;                                    /* wall ms; 0 = open */
    int64_t before_seq;                                      /* cursor; 0 = from the newest */
    unsigned limit;
};
/* Newest first; *ret_items a new array of rows; *ret_next_seq 0 at the end. */
int audit_list(struct db *db, const struct audit_query *q, json_t **ret_items,
               int64_t *ret_next_seq);

/* The chain in slices of at most N rows: state kept in struct audit_verify, so that the loop stays
 * free. 1 = more to do, 0 = done (ok, rows, broken_at filled). */
struct audit_verify {
    int64_t next_seq, rows, broken_at; /* broken_at 0 = none */
    char prev_hash[65];
    bool ok;
};
int audit_verify_step(struct db *db, struct audit_verify *v, unsigned n);
int audit_retain(struct db *db, int64_t before_wall_ms, unsigned max_rows);
