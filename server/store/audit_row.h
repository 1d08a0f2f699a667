/* One row of the audit as columns and as the text that is hashed. Only for store/audit*.c. */
#pragma once
#include "base/str.h"
#include "store/audit.h"
#include "store/db_impl.h"

#define AUDIT_COLUMNS                                                                              \
    "seq, id, at, actor_kind, actor_id, peer_uid, action, session_id, command_id, target, before," \
    " after, outcome, enforcement, prev_hash, hash, target_key"

struct audit_row { /* texts are borrowed; NULL where the row has none */
    int64_t seq, at, peer_uid /* -1 = none */;
    int actor_kind, outcome;
    const char *id, *actor_id, *action, *session_id, *command_id, *target;
    const char *before, *after, *enforcement; /* canonical JSON */
    unsigned char prev_hash[32], hash[32];
    int64_t target_key;
};
/* What the index of targets has: a hash of the target within its block of rows. The index of whole
 * targets, long and in no order, would be most of what a row costs; that of the present block is
 * small and stays in the cache. */
#define AUDIT_BLOCK(seq) ((seq) / 4096)
int64_t audit_target_key(int64_t block, const char *target);
/* The row without `hash`, canonical, appended to OUT. */
int audit_row_text(struct str *out, const struct audit_row *row);
/* Its hash; TEXT is room for the bytes and is left with them. */
int audit_row_hash(struct str *text, const struct audit_row *row, unsigned char ret[static 32]);
void audit_hex(const unsigned char hash[static 32], char ret[static 65]);
int audit_load_ends(struct db *db);
