/* Runs in: daemon. Reads: trusted; hosts come from inside the wall, canonical. May block: no.
 *
 * What asks need of the store beyond their documents. Declared in store/records.h. */
#include "base/mem.h"
#include "store/db_impl.h"
#include "store/records.h"
#include <errno.h>

static const char SQL_EVIDENCE[] = "SELECT coalesce(sum(count), 0), coalesce(max(last_at), 0)"
                                   " FROM blocked WHERE session_id = ?1 AND command_id = ''"
                                   " AND host = ?2 AND port = ?3";
static const char SQL_EVIDENCE_COMMAND[] =
    "SELECT command_id FROM blocked WHERE session_id = ?1 AND command_id <> ''"
    " AND host = ?2 AND port = ?3 ORDER BY last_at DESC LIMIT 1";
static const char SQL_CUT[] =
    "DELETE FROM asks WHERE session_id = ?1 AND state <> 'open' AND id <= (SELECT id FROM asks"
    " WHERE session_id = ?1 AND state <> 'open' ORDER BY id DESC LIMIT 1 OFFSET ?2)";

/* 1 = a row is at *ret, to be reset. */
static int evidence_row(struct db *db, enum db_stmt id, const char *sql, const char *session_id,
                        const char *host, uint16_t port, sqlite3_stmt **ret)
{
    int r = db_prepare(db, id, sql, ret);
    if (r < 0)
        return r;
    bind_text(*ret, 1, session_id);
    bind_text(*ret, 2, host);
    bind_int(*ret, 3, port);
    return db_step(*ret);
}

int blocked_evidence_get(struct db *db, const char *session_id, const char *host, uint16_t port,
                         struct blocked_evidence *ret)
{
    struct blocked_evidence e = {0};
    sqlite3_stmt *st;
    int r = evidence_row(db, ST_BLOCKED_EVIDENCE, SQL_EVIDENCE, session_id, host, port, &st);
    if (r > 0) {
        e.count = col_int(st, 0);
        e.last_at = col_int(st, 1);
        db_reset(st);
    }
    if (r > 0 && e.count > 0 &&
        (r = evidence_row(db, ST_BLOCKED_EVIDENCE_COMMAND, SQL_EVIDENCE_COMMAND, session_id, host,
                          port, &st)) > 0) {
        col_copy(st, 0, e.command_id, sizeof e.command_id);
        db_reset(st);
    }
    if (r < 0)
        return r;
    *ret = e;
    return 0;
}

int asks_cut(struct db *db, const char *session_id)
{
    sqlite3_stmt *st;
    int r = db_prepare_write(db, ST_ASK_CUT, SQL_CUT, &st);
    if (r < 0)
        return r;
    bind_text(st, 1, session_id);
    bind_int(st, 2, ASKS_KEPT);
    return db_run(db, st);
}
