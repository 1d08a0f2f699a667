/* The database: one file, one opener, on the loop. WAL; migrations of schema/sql by user_version.
 *
 * Writes gather in one transaction (the group): every function of this room that writes opens it
 * when none is open, db_commit() ends it. api/http calls db_commit() before any answer leaves; the
 * loop calls it at the end of each turn in which db_commit_due() says so. A thread of the database
 * fsyncs the WAL at most 100 ms after a commit, so neither the loop nor a caller waits for the
 * disk.
 *
 * A group is all or nothing. When a write or the commit fails (disk full, I/O error) the group is
 * rolled back; further writes and the next db_commit() return that error, and with this commit the
 * group is over. From then on db_is_full() is true, and new work is refused (507 disk_full), until
 * a write succeeds again: nothing runs unrecorded. What must be recorded as it has happened anyway
 * (a command's end) goes through store/owed.h. What is kept in memory of the tables is read again
 * when db_rolled_back() says so: it may hold what was not taken.
 *
 *     struct db *db; struct err err = {0};
 *     r = db_open("/home/user/.local/state/cordon/cordon.db", &db, &err);
 *     r = record_put(db, &record);           // these two stand together or not at all
 *     r = audit_add(db, &entry);
 *     r = db_commit(db);                     // < 0: answer disk_full, undo what was begun
 *     db_close(db); */
#pragma once
#include "base/embedded.h"
#include "base/err.h"
#include "base/watch.h"
#include <stdbool.h>
#include <stdint.h>

/* With fewer free bytes than this db_is_full(): what runs can still be recorded to its end. */
#define DB_RESERVE_BYTES (4 << 20)
#define DB_SYNC_MS       50 /* a commit is on the disk after this and the time of one fsync */

struct db;
/* Opens or makes PATH (absolute; its folder exists). The file and its -wal are 0600 whatever the
 * umask: wrong modes of existing ones are repaired. Refused, without waiting and untouched, with
 * code store_unusable and the cure in `hint`: a link, FIFO or anything but a regular file of ours
 * there (-EINVAL, -EPERM), a file system that cannot hold modes (-EPERM), a file of another program
 * (-EPROTO), one of a newer schema (-EPROTO, detail names both versions), one that another process
 * has open (-EBUSY). An older schema is migrated, all steps in one transaction. After an unclean
 * end integrity_check runs; -EUCLEAN with code store_corrupt when it finds something.
 * On a network file system, whose locks and shared memory WAL cannot rely on, the rollback journal
 * is used instead, synced at each commit. Call it after any fork: it starts a thread. */
int db_open(const char *path, struct db **ret, struct err *err);
/* The same with another schema than the built-in one; for tests. */
int db_open_schema(const char *path, const struct embedded *schema, struct db **ret,
                   struct err *err);
void db_close(struct db *db); /* commits, checkpoints, marks the end as clean; NULL is fine */

int db_write_begin(struct db *db); /* 0, or why no write is possible in this group */
int db_commit(struct db *db);      /* 0 also when nothing was open; -ENOSPC, -EIO, … */
/* In how many ms db_commit must be called: 0 = now, UINT64_MAX = nothing is to be written. What
 * need not be written at once (owed_audit_soon, site_used) waits so long for a group to join. */
uint64_t db_commit_due(const struct db *db);
struct watched *db_rolled_back(struct db *db); /* a group was; told in db_commit */
/* No new work may be taken. Tries a small write by itself at most every 200 ms while it is true. */
bool db_is_full(struct db *db);
/* fsync of the WAL now, when it was written since the last one; 0 or -EIO. */
int db_sync(struct db *db);
/* The schema's version in force. */
int db_version(struct db *db);
