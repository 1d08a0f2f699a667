/* Append-only, chained records of what was done and refused.
 *
 * Only the daemon writes them. hash = SHA-256 (hex) of prev_hash (hex, 64 characters; zeros before
 * the first row) followed by the row without its member `hash`, as canonical JSON (store/canonical:
 * sorted, compact). Rows are numbered without holes. Retention cuts rows at the old end and keeps
 * the number and the hash of the last one it cut; the number and hash of the newest row are kept
 * beside the rows too, so that rows taken away at either end are noticed like changed ones.
 *
 * A row as the API shows it: {id, seq, at, actor{kind, id?, peer_uid?}, action, session_id?,
 * command_id?, target, before?, after?, outcome, enforcement?, prev_hash, hash}. */
#pragma once
#include "store/db.h"
#include <jansson.h>
#include <sys/types.h>

#define AUDIT_ROWS_MAX   5000000 /* audit_retain cuts what is older, whatever its age */
#define AUDIT_TARGET_MAX 4096    /* bytes; a longer target is cut */
#define AUDIT_DOC_MAX    65536   /* bytes of before and after each; larger: {"too_large": bytes} */
#define AUDIT_SCAN_MAX   10000   /* rows one call of audit_list looks at */

enum actor_kind { ACTOR_DAEMON = 0, ACTOR_OWNER, ACTOR_BROWSER, ACTOR_TOKEN, ACTOR_AGENT };
extern const char *const ACTOR_NAMES[]; /* NULL-terminated */
struct actor {
    enum actor_kind kind;
    char id[32];      /* tok_…, brw_…, or empty */
    int64_t peer_uid; /* -1 = unknown */
};
enum outcome { OUTCOME_REFUSED = 0, OUTCOME_OK, OUTCOME_ERROR };
extern const char *const OUTCOME_NAMES[]; /* NULL-terminated */

struct audit_entry {
    const struct actor *actor;           /* NULL = daemon */
    const char *action;                  /* command.started … */
    const char *session_id, *command_id; /* or NULL */
    const char *target;                  /* any bytes; what is not UTF-8 is escaped; NULL = "" */
    json_t *take_before, *take_after;    /* or NULL; taken */
    enum outcome outcome;
    json_t *enforcement; /* or NULL; borrowed */
    int64_t at;          /* wall ms; 0 = now */
};
/* Into the present group (store/db.h). -ENOSPC … when it cannot be written: the work is then
 * refused. */
int audit_add(struct db *db, const struct audit_entry *e);

struct audit_query {
    const char *session, *actor, *action, *outcome, *target; /* or NULL; actor = kind or id */
    int64_t since, until;                                    /* wall ms, inclusive; 0 = open */
    int64_t before_seq;                                      /* cursor; 0 = from the newest */
    unsigned limit;                                          /* 0 = 50 */
};
/* Newest first; *ret_items a new array of rows; *ret_next_seq is the cursor of the next page, 0 at
 * the end. A page may hold fewer rows than asked for, even none, and still have a next one: at most
 * AUDIT_SCAN_MAX rows are looked at in one call. */
int audit_list(struct db *db, const struct audit_query *q, json_t **ret_items,
               int64_t *ret_next_seq);

/* The chain in slices of at most N rows: state kept in struct audit_verify (zero-initialised), so
 * that the loop stays free. 1 = more to do, 0 = done (ok, rows, broken_at filled). Rows added or
 * cut between two slices do no harm. */
struct audit_verify {
    int64_t next_seq, rows;
    int64_t broken_at; /* seq of the first row that is changed or missing; 0 = none */
    char prev_hash[65];
    bool ok;
};
int audit_verify_step(struct db *db, struct audit_verify *v, unsigned n);

/* Cuts rows older than BEFORE_WALL_MS, and those past AUDIT_ROWS_MAX, at the old end, at most
 * MAX_ROWS in one call. Returns how many: call again while it is MAX_ROWS. */
int audit_retain(struct db *db, int64_t before_wall_ms, unsigned max_rows);
