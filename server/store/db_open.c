/* Runs in: daemon, at its start and end. Reads: the state folder. May block: yes, before the loop
 * runs.
 *
 * The order matters: the files are looked at before SQLite touches them (a descriptor of ours on
 * the database file, closed later, would drop SQLite's locks: fcntl(2)), whose file it is before
 * anything is written, and the unclean end before the marker is set again. */
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/path.h"
#include "schema_sql.h"
#include "store/db_impl.h"
#include "store/owed.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define APPLICATION_ID 0x436f7264 /* "Cord" */
#define BUSY_MS        1000

static int refuse(struct err *err, int r, const char *hint, const char *path, const char *why)
{
    return err_set(err, r, "store_unusable", hint, "%s: %s", path, why);
}

/* ---- Files ------------------------------------------------------------------------------------
 */

/* PATH is a regular file of ours with mode 0600, or does not exist (-ENOENT). */
static int file_check(const char *path, struct err *err)
{
    struct stat sb;
    if (lstat(path, &sb) < 0)
        return errno == ENOENT ? -ENOENT : refuse(err, -errno, NULL, path, strerror(errno));
    if (!S_ISREG(sb.st_mode))
        return refuse(err, -EINVAL,
                      "Remove what lies there; Cordon keeps its database under that "
                      "name.",
                      path, "is a link or no regular file");
    CLEANUP(fd_done) int fd = open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &sb) < 0)
        return refuse(err, -errno, "Give the file to the user who runs Cordon, mode 0600.", path,
                      strerror(errno));
    if (!S_ISREG(sb.st_mode) || sb.st_uid != geteuid())
        return refuse(err, -EPERM, "Give the file to the user who runs Cordon, mode 0600.", path,
                      "belongs to another user");
    if ((sb.st_mode & 07777) == 0600)
        return 0;
    if (fchmod(fd, 0600) < 0 || fstat(fd, &sb) < 0 || (sb.st_mode & 07777) != 0600)
        return refuse(err, -EPERM,
                      "Put the state folder (XDG_STATE_HOME) on a file system with owners and "
                      "modes.",
                      path, "is readable by others, and its file system cannot change that");
    log_warn("store.mode_repaired", "file=%s mode=0600", path_last(path));
    return 0;
}

static int file_make(const char *path, struct err *err)
{
    CLEANUP(fd_done)
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return refuse(err, -errno, NULL, path, strerror(errno));
    return fchmod(fd, 0600) < 0 ? refuse(err, -errno, NULL, path, strerror(errno)) : 0;
}

static int files_check(const char *path, struct err *err)
{
    static const char *const BESIDE[] = {"-wal", "-shm", "-journal"};
    int r = file_check(path, err);
    if (r == -ENOENT)
        r = file_make(path, err);
    if (r == 0)
        r = file_check(path, err);
    for (size_t i = 0; r == 0 && i < ARRAY_LEN(BESIDE); i++) {
        char beside[PATH_MAX + 16];
        (void)snprintf(beside, sizeof beside, "%s%s", path, BESIDE[i]);
        r = file_check(beside, err);
        if (r == -ENOENT)
            r = 0;
    }
    return r;
}

/* Whose locks and shared memory cannot be relied on (statfs(2), linux/magic.h). FUSE is among them:
 * it may be anything. */
static bool is_network_fs(int dir_fd)
{
    static const unsigned long KINDS[] = {
        0x6969 /* NFS */,    0xff534d42 /* CIFS */, 0xfe534d42 /* SMB2 */, 0x517b /* SMB */,
        0x01021997 /* 9p */, 0x65735546 /* FUSE */, 0x5346414f /* AFS */,  0x00c36400 /* Ceph */};
    struct statfs fs;
    if (fstatfs(dir_fd, &fs) < 0)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(KINDS); i++)
        if ((unsigned long)fs.f_type == KINDS[i])
            return true;
    return false;
}

/* ---- Schema -----------------------------------------------------------------------------------
 */

static int query_int(struct db *db, const char *sql, int64_t *ret)
{
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(db->sql, sql, -1, &st, NULL);
    if (rc == SQLITE_OK) {
        rc = sqlite3_step(st);
        if (rc == SQLITE_ROW)
            *ret = sqlite3_column_int64(st, 0);
    }
    (void)sqlite3_finalize(st);
    return rc == SQLITE_ROW ? 0 : rc == SQLITE_DONE ? -ENODATA : db_errno(rc);
}

static int exec_sql(struct db *db, const char *sql, struct err *err)
{
    int rc = sqlite3_exec(db->sql, sql, NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        return 0;
    int r = db_errno(rc);
    if (r == -EBUSY)
        return refuse(err, r, "Another daemon uses this state folder: cordon stop.", db->path,
                      "is open in another program");
    if (r == -EPROTO)
        return refuse(err, r, "Move the file away; Cordon makes a new one.", db->path,
                      "is not a database");
    return refuse(err, r, NULL, db->path, sqlite3_errmsg(db->sql));
}

static int schema_number(const struct embedded *row)
{
    return atoi(row->name);
}

static int schema_latest(const struct embedded *schema)
{
    int latest = 0;
    for (const struct embedded *e = schema; e->name; e++)
        latest = schema_number(e) > latest ? schema_number(e) : latest;
    return latest;
}

int db_version(struct db *db)
{
    int64_t version = 0;
    int r = query_int(db, "PRAGMA user_version", &version);
    return r < 0 ? r : (int)version;
}

/* Is this our database, and not from a later version? Writes nothing. */
static int whose_file(struct db *db, int latest, struct err *err)
{
    int64_t id = 0, version = 0, tables = 0;
    int r = query_int(db, "PRAGMA application_id", &id);
    if (r == 0)
        r = query_int(db, "PRAGMA user_version", &version);
    if (r == 0)
        r = query_int(db, "SELECT count(*) FROM sqlite_master", &tables);
    if (r == -EBUSY)
        return refuse(err, r, "Another daemon uses this state folder: cordon stop.", db->path,
                      "is open in another program");
    if (r < 0 && r != -EPROTO)
        return err_set(err, r, "store_corrupt",
                       "Move the file away and keep it; Cordon makes a new one.", "%s: %s",
                       db->path, sqlite3_errmsg(db->sql));
    bool is_new = r == 0 && id == 0 && version == 0 && tables == 0;
    if (!is_new && (r < 0 || id != APPLICATION_ID))
        return refuse(err, -EPROTO, "Move the file away; Cordon makes a new one.", db->path,
                      "is not a database of Cordon");
    if (version > latest)
        return err_set(err, -EPROTO, "store_unusable",
                       "Install the newer version again, or move the file away and start anew.",
                       "%s: written by a newer version of Cordon: schema %d, this one knows up to "
                       "%d",
                       db->path, (int)version, latest);
    return 0;
}

static int migrate(struct db *db, const struct embedded *schema, struct err *err)
{
    int version = db_version(db), latest = schema_latest(schema);
    if (version < 0 || version == latest)
        return version < 0 ? version : 0;
    int r = exec_sql(db, "BEGIN IMMEDIATE", err);
    for (const struct embedded *e = schema; r == 0 && e->name; e++)
        if (schema_number(e) > version)
            r = exec_sql(db, e->bytes, err);
    char sql[96];
    (void)snprintf(sql, sizeof sql, "PRAGMA application_id = %d; PRAGMA user_version = %d; COMMIT",
                   APPLICATION_ID, latest);
    if (r == 0 && version == 0) /* there is nothing yet that a step would want gone */
        r = exec_sql(db, "DELETE FROM meta WHERE key = 'rewrite'", err);
    if (r == 0)
        r = exec_sql(db, sql, err);
    if (r < 0)
        (void)sqlite3_exec(db->sql, "ROLLBACK", NULL, NULL, NULL);
    else if (version > 0)
        log_info("store.migrated", "from=%d to=%d", version, latest);
    return r;
}

/* ---- Open and close ---------------------------------------------------------------------------
 */

static int integrity_check(struct db *db, struct err *err)
{
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(db->sql, "PRAGMA integrity_check(1)", -1, &st, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(st);
    const char *text = rc == SQLITE_ROW ? col_text(st, 0) : sqlite3_errmsg(db->sql);
    int r = 0;
    if (rc != SQLITE_ROW || !text || strcmp(text, "ok") != 0)
        r = err_set(err, -EUCLEAN, "store_corrupt",
                    "Move the file away and keep it; Cordon makes a new one.", "%s: %s", db->path,
                    text ? text : "integrity_check gave no answer");
    (void)sqlite3_finalize(st);
    return r;
}

/* The marker is 1 only between db_close and the next db_open. */
static int mark_open(struct db *db, struct err *err)
{
    int r = 0;
    if (db_meta(db, "clean", 0) == 0) {
        log_warn("store.unclean_end", "check=integrity");
        r = integrity_check(db, err);
    }
    if (r == 0)
        r = db_meta_set(db, "clean", 0);
    if (r == 0)
        r = db_commit(db);
    return r < 0 ? refuse(err, r, NULL, db->path, strerror(-r)) : 0;
}

/* A migration took out what must not be kept, and asks (meta, `rewrite`) that no free page and no
 * old WAL has it either. Where there is no room for that now, the next start tries again. */
static void rewrite_if_due(struct db *db)
{
    if (db_meta(db, "rewrite", 0) == 0)
        return;
    int rc = sqlite3_exec(db->sql,
                          "PRAGMA temp_store = FILE; VACUUM; PRAGMA temp_store = MEMORY;"
                          "PRAGMA wal_checkpoint(TRUNCATE);"
                          "DELETE FROM meta WHERE key = 'rewrite'",
                          NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        log_info("store.rewritten", "done=1");
    else
        log_warn("store.rewrite_failed", "errno=%d detail=%s", -db_errno(rc),
                 sqlite3_errmsg(db->sql));
}

static int open_sqlite(struct db *db, struct err *err)
{
    int rc =
        sqlite3_open_v2(db->path, &db->sql,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW, NULL);
    if (rc != SQLITE_OK)
        return refuse(err, db_errno(rc), NULL, db->path,
                      db->sql ? sqlite3_errmsg(db->sql) : "out of memory");
    (void)sqlite3_extended_result_codes(db->sql, 1);
    (void)sqlite3_busy_timeout(db->sql, BUSY_MS);
    (void)sqlite3_db_config(db->sql, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    (void)sqlite3_db_config(db->sql, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    (void)sqlite3_db_config(db->sql, SQLITE_DBCONFIG_ENABLE_FKEY, 1, NULL);
    if (audit_sql_functions(db) < 0)
        return refuse(err, -ENOMEM, NULL, db->path, "out of memory");
    /* One opener: the lock is held as long as the file is open, and the index of the WAL stays in
     * memory (no -shm file). */
    return exec_sql(db,
                    "PRAGMA locking_mode = EXCLUSIVE; PRAGMA temp_store = MEMORY;"
                    "PRAGMA cache_size = -2048; PRAGMA mmap_size = 0",
                    err);
}

static int set_journal(struct db *db, struct err *err)
{
    db->is_wal = !is_network_fs(db->dir_fd);
    if (!db->is_wal)
        log_warn("store.network_fs", "journal=rollback");
    int r = exec_sql(db,
                     db->is_wal ? "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
                                  "PRAGMA wal_autocheckpoint = 4000;"
                                  "PRAGMA journal_size_limit = 16777216"
                                : "PRAGMA journal_mode = TRUNCATE; PRAGMA synchronous = FULL",
                     err);
    return r;
}

static int start_syncer(struct db *db, struct err *err)
{
    if (!db->is_wal)
        return 0;
    char wal[PATH_MAX + 16];
    (void)snprintf(wal, sizeof wal, "%s-wal", db->path);
    db->syncer.fd = open(wal, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    int r = db->syncer.fd < 0 ? -errno : db_syncer_start(db);
    if (r < 0)
        return refuse(err, r, NULL, wal, strerror(-r));
    db_syncer_wake(db);
    return 0;
}

static void db_free(struct db *db)
{
    db_syncer_stop(db);
    owed_done(db);
    for (size_t i = 0; i < ST_N; i++)
        (void)sqlite3_finalize(db->stmts[i]);
    (void)sqlite3_close(db->sql);
    struct str *texts[] = {&db->scratch.target, &db->scratch.before, &db->scratch.after,
                           &db->scratch.enforcement, &db->scratch.text};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        str_done(texts[i]);
    fd_close(db->syncer.fd);
    fd_close(db->dir_fd);
    events_free(db);
    free(db->path);
    free(db);
}
static void db_drop(struct db *db)
{
    if (db)
        db_free(db);
}
DEFINE_FREEP(struct db *, db_drop)

/* The folder with its links resolved (SQLITE_OPEN_NOFOLLOW refuses a link anywhere), and the name.
 */
static int locate(struct db *db, const char *path, struct err *err)
{
    const char *slash = strrchr(path, '/');
    CLEANUP(freep) char *parent = slash ? strndup(path, (size_t)(slash - path) + 1) : NULL;
    CLEANUP(freep) char *dir = NULL;
    int r = parent ? path_resolve(parent, &dir) : -EINVAL;
    if (r == 0)
        r = path_join(dir, slash + 1, &db->path);
    if (r == 0) {
        db->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        r = db->dir_fd < 0 ? -errno : 0;
    }
    return r < 0 ? refuse(err, r, NULL, path, strerror(-r)) : 0;
}

int db_open_schema(const char *path, const struct embedded *schema, struct db **ret,
                   struct err *err)
{
    CLEANUP(db_dropp) struct db *db = calloc(1, sizeof *db);
    if (!db)
        return -ENOMEM;
    db->dir_fd = db->syncer.fd = -1;
    db->owed.end = &db->owed.first;
    int r = locate(db, path, err);
    if (r == 0)
        r = files_check(db->path, err);
    if (r == 0)
        r = open_sqlite(db, err);
    if (r == 0)
        r = whose_file(db, schema_latest(schema), err);
    if (r == 0)
        r = set_journal(db, err);
    if (r == 0)
        r = migrate(db, schema, err);
    if (r == 0)
        r = mark_open(db, err);
    if (r == 0)
        rewrite_if_due(db);
    if (r == 0)
        r = start_syncer(db, err);
    if (r < 0)
        return r;
    *ret = TAKE(db);
    return 0;
}

int db_open(const char *path, struct db **ret, struct err *err)
{
    return db_open_schema(path, schema_sql, ret, err);
}

void db_close(struct db *db)
{
    if (!db)
        return;
    owed_write(db);
    site_uses_write(db);
    (void)db_commit(db);
    if (owed_count(db) > 0)
        log_error("store.owed", "lost=%zu", owed_count(db));
    int r = db_meta_set(db, "clean", 1);
    if (r == 0)
        r = db_commit(db);
    if (r < 0)
        log_error("store.close", "errno=%d", -r);
    db_free(db);
}
