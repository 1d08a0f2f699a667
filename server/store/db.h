/* The database: one file, one opener, on the loop. WAL; migrations of schema/sql by user_version.
 *
 * Writes gather in one transaction: db_write_begin() opens it when none is open, db_commit() ends
 * it. api/http calls db_commit() before any answer leaves; the loop calls it once a turn; the WAL
 * is fsynced at most 100 ms later. A failed commit (disk full, I/O) sets db_is_full(): new work is
 * then refused (507 disk_full) until a write succeeds again; nothing runs unrecorded. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct db;
/* Opens or makes PATH (0600). An older schema is migrated in one transaction; a newer one is
 * refused
 * (-EPROTO, detail names both versions). After an unclean end integrity_check runs. */
int db_open(const char *path, struct db **ret, struct err *err);
void db_close(struct db *db); /* commits, checkpoints */
int db_write_begin(struct db *db);
int db_commit(struct db *db); /* 0 also when nothing was open; -ENOSPC, -EIO */
bool db_is_full(const struct db *db);
int db_sync(struct db *db); /* fsync of the WAL when it was written since the last one */
