/* Runs in: daemon. Reads: trusted; keys come from clients. May block: no.
 *
 * First answers of requests with an Idempotency-Key. Declared in store/records.h. */
#include "base/clock.h"
#include "base/mem.h"
#include "store/db_impl.h"
#include "store/records.h"
#include <errno.h>
#include <string.h>

static const char SQL_GET[] = "SELECT body_hash, status, body FROM idempotency WHERE token_id = ?1"
                              " AND route = ?2 AND key = ?3 AND created_at > ?4";
static const char SQL_PUT[] =
    "INSERT INTO idempotency (token_id, route, key, body_hash, status, body, created_at)"
    " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"
    " ON CONFLICT (token_id, route, key) DO UPDATE SET body_hash = excluded.body_hash,"
    " status = excluded.status, body = excluded.body, created_at = excluded.created_at";
static const char SQL_AGE[] = "DELETE FROM idempotency WHERE created_at <= ?1";
static const char SQL_CUT[] =
    "DELETE FROM idempotency WHERE rowid IN (SELECT rowid FROM idempotency ORDER BY created_at"
    " LIMIT max(0, (SELECT count(*) FROM idempotency) - ?1))";

static int64_t oldest_kept(void)
{
    return clock_wall_ms() - IDEMPOTENCY_HOURS * INT64_C(3600000);
}

int idempotency_get(struct db *db, const char *token_id, const char *route, const char *key,
                    const char *body_hash, int *ret_status, char **ret_body)
{
    sqlite3_stmt *st;
    int r = db_prepare(db, ST_IDEMPOTENCY_GET, SQL_GET, &st);
    if (r < 0)
        return r;
    bind_text(st, 1, token_id);
    bind_text(st, 2, route);
    bind_text(st, 3, key);
    bind_int(st, 4, oldest_kept());
    r = db_step(st);
    if (r <= 0)
        return r;
    const char *hash = col_text(st, 0);
    if (!hash || strcmp(hash, body_hash) != 0) {
        r = -EEXIST;
    } else {
        int status = (int)col_int(st, 1);
        char *body = strdup(col_text(st, 2));
        r = body ? 1 : -ENOMEM;
        if (body) {
            *ret_status = status;
            *ret_body = body;
        }
    }
    db_reset(st);
    return r;
}

/* What is too old goes first, then what is too much. */
static int cut(struct db *db)
{
    sqlite3_stmt *st;
    int r = db_prepare_write(db, ST_IDEMPOTENCY_AGE, SQL_AGE, &st);
    if (r < 0)
        return r;
    bind_int(st, 1, oldest_kept());
    r = db_run(db, st);
    if (r == 0)
        r = db_prepare_write(db, ST_IDEMPOTENCY_CUT, SQL_CUT, &st);
    if (r < 0)
        return r;
    bind_int(st, 1, IDEMPOTENCY_MAX);
    return db_run(db, st);
}

int idempotency_put(struct db *db, const char *token_id, const char *route, const char *key,
                    const char *body_hash, int status, const char *body)
{
    sqlite3_stmt *st;
    int r = db_prepare_write(db, ST_IDEMPOTENCY_PUT, SQL_PUT, &st);
    if (r < 0)
        return r;
    bind_text(st, 1, token_id);
    bind_text(st, 2, route);
    bind_text(st, 3, key);
    bind_text(st, 4, body_hash);
    bind_int(st, 5, status);
    bind_text(st, 6, body);
    bind_int(st, 7, clock_wall_ms());
    r = db_run(db, st);
    return r < 0 ? r : cut(db);
}
