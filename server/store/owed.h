/* What has happened already and must be written down: the end of a command, a connection, a proof.
 *
 * A group that cannot be written is rolled back whole (store/db.h). What a request wanted is then
 * refused; what happened cannot be. It is given to these two, which write it into the present group
 * and keep it until a commit took it. db_commit() drops what it took; owed_write() puts the rest
 * again. While something is owed nothing new may start (db_is_full()), so what can be owed is
 * bounded by what runs, but for rows of the audit: of them the first OWED_MAX are kept. */
#pragma once
#include "store/audit.h"
#include "store/records.h"

#define OWED_MAX     10000
#define OWED_WAIT_MS 5

void owed_record(struct db *db, const struct record *r); /* the latest of one id counts */
void owed_audit(struct db *db, const struct audit_entry *e);
/* The same for a row that may wait OWED_WAIT_MS for others, with the time of now: it goes with the
 * next row or the next db_commit, whichever is first, so whoever reads after a commit sees it. */
void owed_audit_soon(struct db *db, const struct audit_entry *e);
/* The document that is owed of ID, or NULL; borrowed. What reads records gives it (record_get,
 * record_list): they are as they are, whatever the table still has. */
json_t *owed_doc(const struct db *db, const char *id);
size_t owed_count(const struct db *db); /* what no commit took yet */
/* Puts what is not in the present group, as far as the disk takes it; call db_commit after. */
void owed_write(struct db *db);
