/* Runs in: daemon. Reads: trusted; hosts come from inside the wall, canonical. May block: no. */
#include "store/traffic.h"
#include "base/clock.h"
#include "base/mem.h"
#include "store/db_impl.h"
#include <errno.h>

#define HOUR_MS 3600000

static const char SQL_ADD[] =
    "INSERT INTO traffic (hour, host, port, allowed, blocked) VALUES (?1, ?2, ?3, ?4, 1 - ?4)"
    " ON CONFLICT (hour, host, port) DO UPDATE SET allowed = allowed + excluded.allowed,"
    " blocked = blocked + excluded.blocked";
static const char SQL_BUMP[] =
    "UPDATE traffic SET allowed = allowed + ?4, blocked = blocked + 1 - ?4"
    " WHERE hour = ?1 AND host = ?2 AND port = ?3";
static const char SQL_COUNT[] = "SELECT count(*) FROM traffic WHERE hour = ?1";
static const char SQL_CUT[] = "DELETE FROM traffic WHERE hour <= ?1";
static const char SQL_HOURS[] = "SELECT hour, sum(allowed), sum(blocked) FROM traffic"
                                " GROUP BY hour ORDER BY hour DESC LIMIT ?1";
static const char SQL_HOSTS[] =
    "SELECT host, port, sum(allowed), sum(blocked) FROM traffic WHERE host <> '' AND hour > ?2"
    " GROUP BY host, port ORDER BY sum(allowed + blocked) DESC, host, port LIMIT ?1";

/* Rows that HOUR has, kept in memory: it is a bound, not a truth. */
static int hour_turn(struct db *db, int64_t hour)
{
    sqlite3_stmt *st;
    if (db->traffic.hour == hour)
        return 0;
    int r = db_prepare(db, ST_TRAFFIC_COUNT, SQL_COUNT, &st);
    if (r < 0)
        return r;
    bind_int(st, 1, hour);
    r = db_step(st);
    if (r <= 0)
        return r < 0 ? r : -EIO;
    db->traffic.n = col_int(st, 0);
    db->traffic.hour = hour;
    db_reset(st);
    r = db_prepare_write(db, ST_TRAFFIC_CUT, SQL_CUT, &st);
    if (r < 0)
        return r;
    bind_int(st, 1, hour - (int64_t)TRAFFIC_HOURS * HOUR_MS);
    return db_run(db, st);
}

static int run(struct db *db, enum db_stmt which, const char *sql, int64_t hour, const char *host,
               uint16_t port, enum traffic what)
{
    sqlite3_stmt *st;
    int r = db_prepare_write(db, which, sql, &st);
    if (r < 0)
        return r;
    bind_int(st, 1, hour);
    bind_text(st, 2, host);
    bind_int(st, 3, port);
    bind_int(st, 4, what == TRAFFIC_ALLOWED);
    return db_run(db, st);
}

int traffic_count(struct db *db, const char *host, uint16_t port, enum traffic what)
{
    int64_t hour = clock_wall_ms() / HOUR_MS * HOUR_MS;
    int r = hour_turn(db, hour);
    if (r == 0)
        r = run(db, ST_TRAFFIC_BUMP, SQL_BUMP, hour, host, port, what);
    if (r < 0 || db_changes(db) > 0)
        return r;
    if (db->traffic.n >= TRAFFIC_HOSTS)
        return run(db, ST_TRAFFIC_ADD, SQL_ADD, hour, "", 0, what);
    db->traffic.n++;
    return run(db, ST_TRAFFIC_ADD, SQL_ADD, hour, host, port, what);
}

/* ---- Shown ------------------------------------------------------------------------------------
 */

static json_t *hours_json(struct db *db, int *ret_r)
{
    sqlite3_stmt *st;
    json_t *items = json_array();
    int r = db_prepare(db, ST_TRAFFIC_HOURS, SQL_HOURS, &st);
    if (r == 0)
        bind_int(st, 1, TRAFFIC_HOURS);
    while (r == 0 && (r = db_step(st)) > 0) {
        char at[CLOCK_TEXT_MAX];
        clock_text(col_int(st, 0), at);
        r = json_array_insert_new(items, 0,
                                  json_pack("{s:s, s:I, s:I}", "at", at, "allowed",
                                            (json_int_t)col_int(st, 1), "blocked",
                                            (json_int_t)col_int(st, 2)));
    }
    *ret_r = r;
    return items;
}

static json_t *hosts_json(struct db *db, int *ret_r)
{
    sqlite3_stmt *st;
    json_t *items = json_array();
    int r = db_prepare(db, ST_TRAFFIC_HOSTS, SQL_HOSTS, &st);
    if (r == 0) {
        bind_int(st, 1, TRAFFIC_SHOWN);
        bind_int(st, 2, clock_wall_ms() - (int64_t)TRAFFIC_HOURS * HOUR_MS);
    }
    while (r == 0 && (r = db_step(st)) > 0)
        r = json_array_append_new(items, json_pack("{s:s, s:I, s:I, s:I}", "host", col_text(st, 0),
                                                   "port", (json_int_t)col_int(st, 1), "allowed",
                                                   (json_int_t)col_int(st, 2), "blocked",
                                                   (json_int_t)col_int(st, 3)));
    *ret_r = r;
    return items;
}

int traffic_stats(struct db *db, json_t **ret)
{
    int r_hours, r_hosts;
    json_t *hours = hours_json(db, &r_hours), *hosts = hosts_json(db, &r_hosts);
    *ret = json_pack("{s:o, s:o}", "items", hours, "hosts", hosts);
    if (r_hours == 0 && r_hosts == 0 && *ret)
        return 0;
    json_decref(TAKE(*ret));
    return r_hours < 0 ? r_hours : r_hosts < 0 ? r_hosts : -ENOMEM;
}
