/* Runs in: daemon. Reads: trusted; hosts come from inside the wall, canonical. May block: no.
 *
 * Refused connections, counted per host: an agent that tries a thousand names makes a thousand rows
 * and no more. Declared in store/records.h. */
#include "base/clock.h"
#include "base/mem.h"
#include "store/db_impl.h"
#include "store/records.h"
#include <errno.h>

static const char SQL_ADD[] =
    "INSERT INTO blocked (session_id, command_id, host, port, reason, count, first_at, last_at)"
    " VALUES (?1, ?2, ?3, ?4, ?5, 1, ?6, ?6)"
    " ON CONFLICT (session_id, command_id, host, port, reason)"
    " DO UPDATE SET count = count + 1, last_at = excluded.last_at RETURNING count";
static const char SQL_COUNT[] =
    "SELECT count(*) FROM blocked WHERE session_id = ?1 AND command_id = ?2";
static const char SQL_CUT[] =
    "DELETE FROM blocked WHERE (session_id, command_id, host, port, reason) IN"
    " (SELECT session_id, command_id, host, port, reason FROM blocked"
    " WHERE session_id = ?1 AND command_id = ?2 ORDER BY last_at LIMIT 1)";
#define COLUMNS "session_id, command_id, host, port, reason, count, first_at, last_at"
static const char SQL_LIST[] = "SELECT " COLUMNS " FROM blocked WHERE session_id = ?1"
                               " AND command_id = ?2 ORDER BY last_at DESC, host";
static const char SQL_LIST_ALL[] = "SELECT " COLUMNS " FROM blocked WHERE command_id = ''"
                                   " ORDER BY last_at DESC, host LIMIT ?1";

static int cut_if_many(struct db *db, const char *session_id, const char *command_id)
{
    sqlite3_stmt *st;
    int r = db_prepare(db, ST_BLOCKED_COUNT, SQL_COUNT, &st);
    if (r < 0)
        return r;
    bind_text(st, 1, session_id);
    bind_text(st, 2, command_id);
    r = db_step(st);
    if (r <= 0)
        return r;
    bool many = col_int(st, 0) > BLOCKED_MAX;
    db_reset(st);
    if (!many)
        return 0;
    r = db_prepare_write(db, ST_BLOCKED_CUT, SQL_CUT, &st);
    if (r < 0)
        return r;
    bind_text(st, 1, session_id);
    bind_text(st, 2, command_id);
    return db_run(db, st);
}

int blocked_count(struct db *db, const struct blocked_row *row, int64_t *ret_count)
{
    const char *command_id = row->command_id ? row->command_id : "";
    sqlite3_stmt *st;
    int r = db_prepare_write(db, ST_BLOCKED_ADD, SQL_ADD, &st);
    if (r < 0)
        return r;
    bind_text(st, 1, row->session_id);
    bind_text(st, 2, command_id);
    bind_text(st, 3, row->host);
    bind_int(st, 4, row->port);
    bind_text(st, 5, row->reason);
    bind_int(st, 6, clock_wall_ms());
    int64_t count = db_step(st) > 0 ? col_int(st, 0) : 0;
    bool is_new = count == 1;
    if (ret_count)
        *ret_count = count;
    r = db_run(db, st);
    return r < 0 || !is_new ? r : cut_if_many(db, row->session_id, command_id);
}

static json_t *row_to_json(sqlite3_stmt *st)
{
    char first[CLOCK_TEXT_MAX], last[CLOCK_TEXT_MAX];
    const char *command_id = col_text(st, 1);
    clock_text(col_int(st, 6), first);
    clock_text(col_int(st, 7), last);
    return json_pack("{s:s, s:I, s:s, s:s*, s:I, s:s, s:s, s:s}", "host", col_text(st, 2), "port",
                     (json_int_t)col_int(st, 3), "session_id", col_text(st, 0), "command_id",
                     command_id && command_id[0] ? command_id : NULL, "count",
                     (json_int_t)col_int(st, 5), "first_at", first, "last_at", last, "reason",
                     col_text(st, 4));
}

int blocked_list(struct db *db, const char *session_id, const char *command_id, json_t **ret_items)
{
    sqlite3_stmt *st;
    int r = session_id ? db_prepare(db, ST_BLOCKED_LIST, SQL_LIST, &st)
                       : db_prepare(db, ST_BLOCKED_LIST_ALL, SQL_LIST_ALL, &st);
    if (r < 0)
        return r;
    if (session_id) {
        bind_text(st, 1, session_id);
        bind_text(st, 2, command_id ? command_id : "");
    } else {
        bind_int(st, 1, BLOCKED_MAX);
    }
    json_t *items = json_array();
    while (items && (r = db_step(st)) > 0)
        if (json_array_append_new(items, row_to_json(st)) < 0) {
            db_reset(st);
            r = -ENOMEM;
            break;
        }
    if (!items || r < 0) {
        json_decref(items);
        return items ? r : -ENOMEM;
    }
    *ret_items = items;
    return 0;
}
