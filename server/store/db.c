/* Runs in: daemon. Reads: trusted. May block: for a write into the page cache, no longer.
 *
 * Statements, and the group of writes with what happens when it cannot be written. */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "store/db_impl.h"
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define PROBE_EVERY_MS 200

static const char SQL_BEGIN[] = "BEGIN IMMEDIATE";
static const char SQL_COMMIT[] = "COMMIT";
static const char SQL_ROLLBACK[] = "ROLLBACK";
static const char SQL_PROBE[] = "UPDATE meta SET value = value + 1 WHERE key = 'probe'";
static const char SQL_META_GET[] = "SELECT value FROM meta WHERE key = ?1";
static const char SQL_META_SET[] = "INSERT INTO meta (key, value) VALUES (?1, ?2)"
                                   " ON CONFLICT (key) DO UPDATE SET value = excluded.value";

int db_errno(int sqlite_code)
{
    switch (sqlite_code & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE:
        return 0;
    case SQLITE_FULL:
        return -ENOSPC;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return -EBUSY;
    case SQLITE_NOMEM:
        return -ENOMEM;
    case SQLITE_CONSTRAINT:
        return -EEXIST;
    case SQLITE_READONLY:
    case SQLITE_PERM:
        return -EROFS;
    case SQLITE_TOOBIG:
        return -E2BIG;
    case SQLITE_CORRUPT:
        return -EUCLEAN;
    case SQLITE_NOTADB:
        return -EPROTO;
    case SQLITE_CANTOPEN:
        return -ENOENT;
    default:
        return -EIO;
    }
}

int db_prepare(struct db *db, enum db_stmt id, const char *sql, sqlite3_stmt **ret)
{
    if (!db->stmts[id]) {
        int rc =
            sqlite3_prepare_v3(db->sql, sql, -1, SQLITE_PREPARE_PERSISTENT, &db->stmts[id], NULL);
        if (rc != SQLITE_OK) {
            log_error("store.prepare", "statement=%d detail=%s", (int)id, sqlite3_errmsg(db->sql));
            return db_errno(rc);
        }
    }
    (void)sqlite3_reset(db->stmts[id]);
    (void)sqlite3_clear_bindings(db->stmts[id]);
    *ret = db->stmts[id];
    return 0;
}

int db_prepare_write(struct db *db, enum db_stmt id, const char *sql, sqlite3_stmt **ret)
{
    int r = db_write_begin(db);
    return r < 0 ? r : db_prepare(db, id, sql, ret);
}

int db_step(sqlite3_stmt *st)
{
    int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW)
        return 1;
    (void)sqlite3_reset(st);
    return rc == SQLITE_DONE ? 0 : db_errno(rc);
}

void db_reset(sqlite3_stmt *st)
{
    (void)sqlite3_reset(st);
}

/* Everything in the group is gone. SQLite may have rolled back by itself, or not. */
void db_break(struct db *db, int why)
{
    assert(why < 0);
    if (db->group_error)
        return;
    sqlite3_stmt *st;
    if (!sqlite3_get_autocommit(db->sql) && db_prepare(db, ST_ROLLBACK, SQL_ROLLBACK, &st) == 0)
        (void)db_step(st);
    db->is_open_group = false;
    db->group_error = why;
    db->audit.is_loaded = false;
    owed_rolled_back(db);
    site_uses_rolled_back(db);
    if (!db->full)
        log_error("store.write_failed", "errno=%d detail=%s", -why, sqlite3_errmsg(db->sql));
    db->full = why;
}

int db_run(struct db *db, sqlite3_stmt *st)
{
    int r;
    do
        r = db_step(st);
    while (r > 0);
    if (r < 0 && r != -EEXIST && r != -E2BIG)
        db_break(db, r);
    return r;
}

int db_changes(struct db *db)
{
    return sqlite3_changes(db->sql);
}

int db_run_by_id(struct db *db, enum db_stmt which, const char *sql, const char *id)
{
    sqlite3_stmt *st;
    int r = db_prepare_write(db, which, sql, &st);
    if (r < 0)
        return r;
    bind_text(st, 1, id);
    r = db_run(db, st);
    return r < 0 ? r : db_changes(db);
}

int db_write_begin(struct db *db)
{
    if (db->group_error)
        return db->group_error;
    if (db->is_open_group)
        return 0;
    sqlite3_stmt *st;
    int r = db_prepare(db, ST_BEGIN, SQL_BEGIN, &st);
    if (r == 0)
        r = db_step(st);
    if (r < 0) {
        db_break(db, r);
        return r;
    }
    db->is_open_group = true;
    return 0;
}

static int group_commit(struct db *db)
{
    sqlite3_stmt *st;
    int r = audit_before_commit(db);
    if (r == 0)
        r = db_prepare(db, ST_COMMIT, SQL_COMMIT, &st);
    if (r == 0)
        r = db_step(st);
    if (r < 0)
        return r;
    db->is_open_group = false;
    owed_taken(db);
    site_uses_taken(db);
    audit_taken(db);
    /* The row is written, but a sync of earlier ones failed: the disk does not keep what it is
     * given, and the kernel tells so only once. */
    int sync_errno = atomic_exchange(&db->syncer.failed, 0);
    db->full = -sync_errno;
    db_syncer_wake(db);
    return db->full;
}

static int commit(struct db *db, bool *ret_broken)
{
    if (db->is_open_group) {
        int r = group_commit(db);
        if (r < 0 && db->is_open_group)
            db_break(db, r);
        else
            return r;
    }
    int r = db->group_error;
    db->group_error = 0;
    *ret_broken = r < 0;
    return r;
}

int db_commit(struct db *db)
{
    bool is_broken = false;
    owed_join(db);
    if (site_uses_due(db) == 0)
        site_uses_write(db);
    int r = commit(db, &is_broken);
    if (is_broken) {
        events_rolled_back(db);
        watched_notify(&db->rolled_back);
    }
    return r;
}

uint64_t db_commit_due(const struct db *db)
{
    if (db->is_open_group || db->group_error)
        return 0;
    uint64_t owed = owed_due(db), uses = site_uses_due(db);
    return owed < uses ? owed : uses;
}

struct watched *db_rolled_back(struct db *db)
{
    return &db->rolled_back;
}

/* Is there hardly room for the ends of what runs already? */
static bool space_is_low(const struct db *db)
{
    struct statvfs vfs;
    if (fstatvfs(db->dir_fd, &vfs) < 0 || vfs.f_blocks == 0)
        return false;
    uint64_t blocks = geteuid() == 0 ? vfs.f_bfree : vfs.f_bavail;
    return blocks * vfs.f_frsize < DB_RESERVE_BYTES;
}

static void probe(struct db *db)
{
    sqlite3_stmt *st;
    bool is_broken = false;
    db->probed_ms = clock_now_ms();
    int r = db_prepare_write(db, ST_PROBE, SQL_PROBE, &st);
    if (r == 0)
        (void)db_run(db, st);
    (void)commit(db, &is_broken); /* nothing of anybody's was in it */
    if (!db->full)
        log_info("store.writable", "again=1");
}

bool db_is_full(struct db *db)
{
    bool may_probe = !db->is_open_group && !db->group_error;
    if (db->full && may_probe && clock_now_ms() - db->probed_ms >= PROBE_EVERY_MS)
        probe(db);
    return db->full || space_is_low(db);
}

int64_t db_meta(struct db *db, const char *key, int64_t otherwise)
{
    sqlite3_stmt *st;
    if (db_prepare(db, ST_META_GET, SQL_META_GET, &st) < 0)
        return otherwise;
    bind_text(st, 1, key);
    if (db_step(st) <= 0)
        return otherwise;
    int64_t value = col_int(st, 0);
    db_reset(st);
    return value;
}

int db_meta_set(struct db *db, const char *key, int64_t value)
{
    sqlite3_stmt *st;
    int r = db_prepare_write(db, ST_META_SET, SQL_META_SET, &st);
    if (r < 0)
        return r;
    bind_text(st, 1, key);
    bind_int(st, 2, value);
    return db_run(db, st);
}

/* Binding fails only for a wrong index or a statement that runs: programmer faults. */
void bind_text(sqlite3_stmt *st, int i, const char *text)
{
    int rc = text ? sqlite3_bind_text(st, i, text, -1, SQLITE_STATIC) : sqlite3_bind_null(st, i);
    assert(rc == SQLITE_OK);
    (void)rc;
}

void bind_int(sqlite3_stmt *st, int i, int64_t n)
{
    int rc = sqlite3_bind_int64(st, i, n);
    assert(rc == SQLITE_OK);
    (void)rc;
}

void bind_blob(sqlite3_stmt *st, int i, const void *bytes, size_t n)
{
    int rc = sqlite3_bind_blob64(st, i, bytes, n, SQLITE_STATIC);
    assert(rc == SQLITE_OK);
    (void)rc;
}

const char *col_text(sqlite3_stmt *st, int i)
{
    return (const char *)sqlite3_column_text(st, i);
}

int64_t col_int(sqlite3_stmt *st, int i)
{
    return sqlite3_column_int64(st, i);
}

void col_copy(sqlite3_stmt *st, int i, char *ret, size_t size)
{
    const char *text = col_text(st, i);
    size_t n = text ? strlen(text) : 0;
    if (n >= size)
        n = size - 1;
    if (n > 0)
        memcpy(ret, text, n);
    ret[n] = '\0';
}

bool col_blob32(sqlite3_stmt *st, int i, unsigned char ret[static 32])
{
    const void *bytes = sqlite3_column_blob(st, i);
    if (!bytes || sqlite3_column_bytes(st, i) != 32)
        return false;
    memcpy(ret, bytes, 32);
    return true;
}
