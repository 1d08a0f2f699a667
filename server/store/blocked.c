/* Runs in: daemon. Reads: trusted; hosts come from inside the wall, canonical. May block: no.
 *
 * Refused connections, counted per host: an agent that tries a thousand names makes a thousand rows
 * and no more. */
#include "store/blocked.h"
#include "base/clock.h"
#include "base/mem.h"
#include "store/db_impl.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PAGE_ROWS 50

static const char SQL_ADD[] =
    "INSERT INTO blocked (session_id, command_id, host, port, reason, count, first_at, last_at)"
    " VALUES (?1, ?2, ?3, ?4, ?5, ?7, ?6, ?6)"
    " ON CONFLICT (session_id, command_id, host, port, reason)"
    " DO UPDATE SET count = count + ?7, last_at = excluded.last_at RETURNING count";
static const char SQL_COUNT[] =
    "SELECT count(*) FROM blocked WHERE session_id = ?1 AND command_id = ?2";
static const char SQL_CUT[] =
    "DELETE FROM blocked WHERE (session_id, command_id, host, port, reason) IN"
    " (SELECT session_id, command_id, host, port, reason FROM blocked"
    " WHERE session_id = ?1 AND command_id = ?2 ORDER BY last_at LIMIT 1)";
/* The last one is the latest ask about that host and port: its text is host_port_text()'s. */
#define COLUMNS                                                                                    \
    "session_id, command_id, host, port, reason, count, first_at, last_at, id,"                    \
    " (SELECT a.id FROM asks a WHERE a.session_id = blocked.session_id AND a.text ="               \
    " iif(instr(host, ':'), '[' || host || ']', host) || ':' || port ORDER BY a.id DESC LIMIT 1)"
#define PAGE " AND (last_at, id) < (?3, ?4) ORDER BY last_at DESC, id DESC LIMIT ?5"
static const char SQL_LIST[] =
    "SELECT " COLUMNS " FROM blocked WHERE session_id = ?1 AND command_id = ?2" PAGE;
static const char SQL_LIST_ALL[] = "SELECT " COLUMNS " FROM blocked WHERE command_id = ''" PAGE;
static const char SQL_HOSTS[] =
    "SELECT host, sum(count), max(last_at) AS latest, max(id) AS top FROM blocked"
    " WHERE command_id = '' GROUP BY host HAVING (latest, top) < (?3, ?4)"
    " ORDER BY latest DESC, top DESC LIMIT ?5";
static const char SQL_OF_HOST[] = "SELECT " COLUMNS " FROM blocked WHERE command_id = ''"
                                  " AND host = ?1 ORDER BY last_at DESC, id DESC LIMIT ?2";

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
    int64_t times = row->times ? (int64_t)row->times : 1;
    bind_int(st, 7, times);
    int64_t count = db_step(st) > 0 ? col_int(st, 0) : 0;
    bool is_new = count == times;
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
    return json_pack("{s:s, s:I, s:s, s:s*, s:I, s:s, s:s, s:s, s:s*}", "host", col_text(st, 2),
                     "port", (json_int_t)col_int(st, 3), "session_id", col_text(st, 0),
                     "command_id", command_id && command_id[0] ? command_id : NULL, "count",
                     (json_int_t)col_int(st, 5), "first_at", first, "last_at", last, "reason",
                     col_text(st, 4), "ask_id", col_text(st, 9));
}

/* ---- Pages ------------------------------------------------------------------------------------
 */

static int cursor_take(const char *cursor, uint64_t *ret_at, uint64_t *ret_id)
{
    char at[BLOCKED_CURSOR];
    const char *dash = cursor ? strchr(cursor, '-') : NULL;
    *ret_at = *ret_id = INT64_MAX;
    if (!cursor)
        return 0;
    if (!dash || (size_t)(dash - cursor) >= sizeof at)
        return -EINVAL;
    (void)snprintf(at, sizeof at, "%.*s", (int)(dash - cursor), cursor);
    if (parse_u64(at, 0, INT64_MAX, ret_at) < 0 || parse_u64(dash + 1, 0, INT64_MAX, ret_id) < 0)
        return -EINVAL;
    return 0;
}

/* Prepares WHICH for a page, with one row more than is shown. */
static int page_start(struct db *db, enum db_stmt which, const char *sql,
                      const struct blocked_query *q, sqlite3_stmt **ret)
{
    uint64_t at, id;
    int r = cursor_take(q->cursor, &at, &id);
    if (r == 0)
        r = db_prepare(db, which, sql, ret);
    if (r < 0)
        return r;
    bind_int(*ret, 3, (int64_t)at);
    bind_int(*ret, 4, (int64_t)id);
    bind_int(*ret, 5, (int64_t)(q->limit ? q->limit : PAGE_ROWS) + 1);
    return 0;
}

struct page {
    size_t limit;
    json_t *items;
    char *cursor;
};

/* One row more: TAKE_ITEM is shown, or tells that there are more. 1 = the page is full. */
static int page_add(struct page *page, json_t *take_item, int64_t at, int64_t id)
{
    if (json_array_size(page->items) == page->limit) {
        json_decref(take_item);
        return 1;
    }
    page->cursor[0] = '\0';
    if (json_array_append_new(page->items, take_item) < 0)
        return -ENOMEM;
    if (json_array_size(page->items) == page->limit)
        (void)snprintf(page->cursor, BLOCKED_CURSOR, "%" PRId64 "-%" PRId64, at, id);
    return 0;
}

/* R as the last page_add() or db_step() left it. */
static int page_end(struct page *page, int r, json_t **ret_items)
{
    if (r <= 0)
        page->cursor[0] = '\0'; /* no row more */
    if (r < 0) {
        json_decref(page->items);
        return r;
    }
    *ret_items = page->items;
    return 0;
}

static struct page page_new(const struct blocked_query *q, char *cursor)
{
    cursor[0] = '\0';
    return (struct page){
        .limit = q->limit ? q->limit : PAGE_ROWS, .items = json_array(), .cursor = cursor};
}

int blocked_list(struct db *db, const struct blocked_query *q, json_t **ret_items,
                 char cursor[static BLOCKED_CURSOR])
{
    sqlite3_stmt *st;
    int r = page_start(db, q->session_id ? ST_BLOCKED_LIST : ST_BLOCKED_LIST_ALL,
                       q->session_id ? SQL_LIST : SQL_LIST_ALL, q, &st);
    if (r < 0)
        return r;
    if (q->session_id) {
        bind_text(st, 1, q->session_id);
        bind_text(st, 2, q->command_id ? q->command_id : "");
    }
    struct page page = page_new(q, cursor);
    while ((r = db_step(st)) > 0) {
        r = page_add(&page, row_to_json(st), col_int(st, 7), col_int(st, 8));
        if (r != 0)
            break;
    }
    db_reset(st);
    return page_end(&page, r, ret_items);
}

/* ---- By host ----------------------------------------------------------------------------------
 */

static json_t *rows_of_host(struct db *db, const char *host)
{
    sqlite3_stmt *st;
    json_t *items = json_array();
    if (db_prepare(db, ST_BLOCKED_OF_HOST, SQL_OF_HOST, &st) < 0)
        return items;
    bind_text(st, 1, host);
    bind_int(st, 2, BLOCKED_HOST_ITEMS);
    while (db_step(st) > 0)
        (void)json_array_append_new(items, row_to_json(st));
    db_reset(st);
    return items;
}

int blocked_by_host(struct db *db, const struct blocked_query *q, json_t **ret_items,
                    char cursor[static BLOCKED_CURSOR])
{
    sqlite3_stmt *st;
    int r = page_start(db, ST_BLOCKED_HOSTS, SQL_HOSTS, q, &st);
    if (r < 0)
        return r;
    struct page page = page_new(q, cursor);
    while ((r = db_step(st)) > 0) {
        const char *host = col_text(st, 0);
        json_t *group = json_pack("{s:s, s:I, s:o}", "host", host, "count",
                                  (json_int_t)col_int(st, 1), "items", rows_of_host(db, host));
        r = page_add(&page, group, col_int(st, 2), col_int(st, 3));
        if (r != 0)
            break;
    }
    db_reset(st);
    return page_end(&page, r, ret_items);
}
