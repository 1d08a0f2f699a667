/* What the tables' files share. Only for server/store.
 *
 * Each file has its SQL as `static const char SQL_X[]` on top and runs it by
 *     sqlite3_stmt *st;
 *     int r = db_prepare(db, ST_X, SQL_X, &st);      // prepared once, kept in the database
 *     if (r < 0) return r;
 *     bind_text(st, 1, id);
 *     return db_run(db, st);                         // step, reset */
#pragma once
#include "base/clock.h"
#include "base/str.h"
#include "base/watch.h"
#include "store/db.h"
#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <sys/types.h>

enum db_stmt {
    ST_BEGIN,
    ST_COMMIT,
    ST_ROLLBACK,
    ST_PROBE,
    ST_META_GET,
    ST_META_SET,
    ST_SESSION_PUT,
    ST_SESSION_GET,
    ST_SESSION_DELETE,
    ST_SESSION_LIST,
    ST_SESSION_ALIVE,
    ST_SESSION_OLD,
    ST_COMMAND_PUT,
    ST_COMMAND_GET,
    ST_COMMAND_DELETE,
    ST_COMMAND_LIST,
    ST_COMMAND_LIST_ALL,
    ST_COMMAND_ALIVE,
    ST_COMMAND_OLD,
    ST_ASK_PUT,
    ST_ASK_GET,
    ST_ASK_DELETE,
    ST_ASK_LIST,
    ST_ASK_LIST_ALL,
    ST_ASK_ALIVE,
    ST_ASK_CUT,
    ST_BLOCKED_EVIDENCE,
    ST_BLOCKED_EVIDENCE_COMMAND,
    ST_BLOCKED_ADD,
    ST_BLOCKED_COUNT,
    ST_BLOCKED_CUT,
    ST_BLOCKED_LIST,
    ST_BLOCKED_LIST_ALL,
    ST_BLOCKED_HOSTS,
    ST_BLOCKED_OF_HOST,
    ST_TRAFFIC_ADD,
    ST_TRAFFIC_BUMP,
    ST_TRAFFIC_COUNT,
    ST_TRAFFIC_CUT,
    ST_TRAFFIC_HOURS,
    ST_TRAFFIC_HOSTS,
    ST_BLOCKED_OF_SESSION,
    ST_BLOCKED_OF_COMMAND,
    ST_IDEMPOTENCY_GET,
    ST_IDEMPOTENCY_PUT,
    ST_IDEMPOTENCY_AGE,
    ST_IDEMPOTENCY_CUT,
    ST_SITE_PUT,
    ST_SITE_SEED,
    ST_SITE_GET,
    ST_SITE_FIND,
    ST_SITE_DELETE,
    ST_SITE_OF_SESSION,
    ST_SITE_EACH,
    ST_SITE_EACH_LIST,
    ST_SITE_COUNT,
    ST_SITE_USED,
    ST_SETTING_ALL,
    ST_SETTING_PUT,
    ST_SETTING_DELETE,
    ST_TOKEN_PUT,
    ST_TOKEN_FIND,
    ST_TOKEN_GET,
    ST_TOKEN_DELETE,
    ST_TOKEN_COUNT,
    ST_TOKEN_OLDEST,
    ST_TOKEN_EXPIRED,
    ST_TOKEN_TOUCH,
    ST_TOKEN_LIST,
    ST_WEB_KEY_GET,
    ST_WEB_KEY_PUT,
    ST_WEB_KEY_DELETE,
    ST_AUDIT_ENDS,
    ST_AUDIT_ENDS_SET,
    ST_AUDIT_ADD,
    ST_AUDIT_RUN_ADD,
    ST_AUDIT_RUNS,
    ST_AUDIT_RUNS_CUT,
    ST_AUDIT_AT,
    ST_AUDIT_FROM,
    ST_AUDIT_HASH,
    ST_AUDIT_CUT_AT,
    ST_AUDIT_CUT,
    ST_AUDIT_LIST,
    ST_AUDIT_LIST_SESSION,
    ST_AUDIT_LIST_ACTOR_ID,
    ST_AUDIT_LIST_ACTOR_KIND,
    ST_AUDIT_LIST_ACTION,
    ST_AUDIT_LIST_TARGET,
    ST_AUDIT_LIST_OUTCOME,
    ST_N
};

/* The ends of the audit's chain as the open group left them; read anew after a rollback. */
struct audit_ends {
    bool is_loaded, is_changed;
    int64_t last_seq, cut_seq, latest_at;
    unsigned char last_hash[32], cut_hash[32];
    char last_id[ID_MAX]; /* of a row that is not told of yet (store/events.h), or empty */
};

/* Times within a run of rows may step back by so much (audit_runs in the schema). */
#define AUDIT_RUN_SLACK_MS 10

struct audit_scratch { /* the texts of the row at hand; kept, so that no row allocates */
    struct str target, before, after, enforcement, text;
};

/* Syncs the WAL behind the loop's back: it shares the descriptor and the fields below, and knows
 * no SQLite. */
struct db_syncer {
    pthread_t thread;
    pthread_mutex_t lock; /* for `stop` and the waking only */
    pthread_cond_t wake;
    bool is_started, stop;
    int fd; /* the WAL, read-only; set before is_dirty is ever true */
    atomic_bool is_dirty;
    atomic_int failed; /* errno of a failed fsync, until a commit has reported it */
};

struct owed;
struct owed_list {
    struct owed *first, **end;
    size_t n;
    size_t n_waiting; /* for company in a group (owed_audit_soon), since waiting_ms */
    uint64_t waiting_ms;
    bool is_over;
};

/* What sites were used for since their rows were written. */
struct site_use {
    char id[32];
    int64_t hits, blocked_hits, last_used_at;
    int64_t grouped_hits, grouped_blocked_hits; /* of these, what the open group has */
};
#define SITE_USES 64
struct site_uses {
    struct site_use items[SITE_USES];
    size_t n;
    uint64_t written_ms;
};

struct db {
    sqlite3 *sql;
    sqlite3_stmt *stmts[ST_N];
    char *path;
    int dir_fd;
    bool is_wal;
    bool is_open_group;
    int group_error; /* why the group was rolled back; the next db_commit() returns it */
    int full;        /* negative errno of the last failed write, 0 since one succeeded */
    uint64_t probed_ms;
    struct owed_list owed; /* store/owed.h */
    struct site_uses uses;
    struct watched rolled_back;
    struct audit_ends audit;
    struct audit_scratch scratch;
    struct db_syncer syncer;
    struct {
        int64_t hour, n;
    } traffic;             /* rows of this hour (store/traffic.c) */
    struct events *events; /* store/events.h; NULL until the first */
};

/* SQLite's code as a negative errno; constraint is -EEXIST. */
int db_errno(int sqlite_code);
/* The statement ID, reset and without bindings. Later calls with the same ID get the same one:
 * reset it (db_run, db_reset) before it is asked for again. */
int db_prepare(struct db *db, enum db_stmt id, const char *sql, sqlite3_stmt **ret);
/* For a writing statement: opens the group, prepares. */
int db_prepare_write(struct db *db, enum db_stmt id, const char *sql, sqlite3_stmt **ret);
/* One step of a reading statement: 1 = a row, 0 = no more (reset), negative errno (reset). */
int db_step(sqlite3_stmt *st);
/* Steps a writing statement to its end; what cannot be written breaks the group. */
int db_run(struct db *db, sqlite3_stmt *st);
/* Prepares and runs a writing statement whose only parameter is ID: rows that it changed. */
int db_run_by_id(struct db *db, enum db_stmt which, const char *sql, const char *id);
/* Rolls the group back because of WHY: nothing of it may stand. */
void db_break(struct db *db, int why);
int db_changes(struct db *db); /* rows of the last db_run */
void db_reset(sqlite3_stmt *st);
int64_t db_meta(struct db *db, const char *key, int64_t otherwise);
int db_meta_set(struct db *db, const char *key, int64_t value);

/* Borrowed until the statement is stepped or reset. */
void bind_text(sqlite3_stmt *st, int i, const char *text); /* NULL binds NULL */
void bind_int(sqlite3_stmt *st, int i, int64_t n);
void bind_blob(sqlite3_stmt *st, int i, const void *bytes, size_t n);
const char *col_text(sqlite3_stmt *st, int i); /* NULL for NULL */
int64_t col_int(sqlite3_stmt *st, int i);
void col_copy(sqlite3_stmt *st, int i, char *ret, size_t size); /* cut to SIZE, "" for NULL */
bool col_blob32(sqlite3_stmt *st, int i, unsigned char ret[static 32]);

int db_syncer_start(struct db *db); /* syncer.fd is open */
void db_syncer_wake(struct db *db); /* there is something to sync */
void db_syncer_stop(struct db *db);

/* From store/audit.c: writes the ends of the chain into the group. */
int audit_before_commit(struct db *db);
void audit_taken(struct db *db); /* tells who follows */
/* From store/owed.c: the group was taken, or rolled back. */
void owed_taken(struct db *db);
void owed_rolled_back(struct db *db);
void owed_done(struct db *db);
/* Puts what waits for company into the present group, or a new one. */
void owed_join(struct db *db);
/* In how many ms it must be; UINT64_MAX: nothing waits. */
uint64_t owed_due(const struct db *db);
/* From store/sites.c: the same of what sites were used for. */
void site_uses_write(struct db *db);
uint64_t site_uses_due(const struct db *db);
void site_uses_taken(struct db *db);
void site_uses_rolled_back(struct db *db);
/* From store/events.c. */
void events_free(struct db *db);
void events_rolled_back(struct db *db);
/* From store/audit.c too: what migrations call. */
int audit_sql_functions(struct db *db);
