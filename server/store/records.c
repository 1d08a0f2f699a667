/* Runs in: daemon. Reads: trusted; texts come from clients. May block: no. */
#include "store/records.h"
#include "base/clock.h"
#include "base/mem.h"
#include "store/audit.h"
#include "store/db_impl.h"
#include "store/owed.h"
#include <errno.h>
#include <string.h>

#define LIMIT_DEFAULT 50

#define LIST_FILTERS                                                                               \
    " (?1 IS NULL OR id < ?1) AND (?2 IS NULL OR state = ?2)"                                      \
    " AND (?3 IS NULL OR instr(lower(text), lower(?3)) > 0)"
#define LIST_ORDER " ORDER BY id DESC LIMIT ?5"
/* Commands and asks belong to a session (?5, ?4); a session has its tier there. */
#define SQL_PUT(table)                                                                             \
    "INSERT INTO " table " (id, state, text, doc, session_id) VALUES (?1, ?2, ?3, ?4, ?5)"         \
    " ON CONFLICT (id) DO UPDATE SET state = excluded.state, text = excluded.text,"                \
    " doc = excluded.doc"
#define SQL_LIST(table)                                                                            \
    "SELECT doc FROM " table " WHERE session_id = ?4 AND" LIST_FILTERS LIST_ORDER
#define SQL_LIST_ALL(table)                                                                        \
    "SELECT doc FROM " table " WHERE" LIST_FILTERS " AND ?4 IS NULL" LIST_ORDER
#define SQL_GET(table)    "SELECT doc FROM " table " WHERE id = ?1"
#define SQL_DELETE(table) "DELETE FROM " table " WHERE id = ?1"
#define SQL_ALIVE(table, states)                                                                   \
    "SELECT id, session_id, NULL, text, doc FROM " table " WHERE state IN (" states ") ORDER BY "  \
    "id"
/* By when it ended: an id only says when it began, and bounds what is looked at. What is alive
 * stays, whatever its age. */
#define OLD_ENDED " AND coalesce(json_extract(doc, '$.ended_at'), '') < ?2 ORDER BY id LIMIT ?3"
#define RUNNING   "'queued', 'starting', 'running'"

struct statement {
    enum db_stmt id;
    const char *sql; /* NULL: nothing to do */
};
/* What differs between the kinds. */
static const struct kind {
    const char *prefix; /* of ids */
    struct statement put, get, delete, list, list_all, alive, old;
    struct statement blocked;  /* its blocked rows go with it */
    const char *lost, *action; /* what it becomes when the daemon died, and the audit's row */
} KINDS[] = {
    [RECORD_SESSION] =
        {.prefix = "ses_",
         .put = {ST_SESSION_PUT,
                 "INSERT INTO sessions (id, state, text, doc, tier) VALUES (?1, ?2, ?3, ?4, ?5)"
                 " ON CONFLICT (id) DO UPDATE SET state = excluded.state, text = excluded.text,"
                 " doc = excluded.doc, tier = excluded.tier"},
         .get = {ST_SESSION_GET, SQL_GET("sessions")},
         .delete = {ST_SESSION_DELETE, SQL_DELETE("sessions")},
         .list_all = {ST_SESSION_LIST, "SELECT doc FROM sessions WHERE" LIST_FILTERS
                                       " AND (?4 IS NULL OR tier = ?4)" LIST_ORDER},
         .alive = {ST_SESSION_ALIVE, "SELECT id, id, tier, text, doc FROM sessions"
                                     " WHERE state NOT IN ('ended', 'refused') ORDER BY id"},
         .old =
             {ST_SESSION_OLD,
              "SELECT id FROM sessions WHERE id < ?1 AND state IN ('ended', 'refused')" OLD_ENDED},
         .blocked = {ST_BLOCKED_OF_SESSION, "DELETE FROM blocked WHERE session_id = ?1"},
         .lost = "ended",
         .action = "session.ended"},
    [RECORD_COMMAND] =
        {.prefix = "cmd_",
         .put = {ST_COMMAND_PUT, SQL_PUT("commands")},
         .get = {ST_COMMAND_GET, SQL_GET("commands")},
         .delete = {ST_COMMAND_DELETE, SQL_DELETE("commands")},
         .list = {ST_COMMAND_LIST, SQL_LIST("commands")},
         .list_all = {ST_COMMAND_LIST_ALL, SQL_LIST_ALL("commands")},
         .alive = {ST_COMMAND_ALIVE, SQL_ALIVE("commands", RUNNING)},
         .old = {ST_COMMAND_OLD,
                 "SELECT id FROM commands WHERE id < ?1 AND state NOT IN (" RUNNING ")" OLD_ENDED},
         .blocked = {ST_BLOCKED_OF_COMMAND,
                     "DELETE FROM blocked WHERE session_id ="
                     " (SELECT session_id FROM commands WHERE id = ?1) AND command_id = ?1"},
         .lost = "lost",
         .action = "command.ended"},
    [RECORD_ASK] = {.prefix = "ask_",
                    .put = {ST_ASK_PUT, SQL_PUT("asks")},
                    .get = {ST_ASK_GET, SQL_GET("asks")},
                    .delete = {ST_ASK_DELETE, SQL_DELETE("asks")},
                    .list = {ST_ASK_LIST, SQL_LIST("asks")},
                    .list_all = {ST_ASK_LIST_ALL, SQL_LIST_ALL("asks")},
                    .alive = {ST_ASK_ALIVE, SQL_ALIVE("asks", "'open'")},
                    .lost = "cancelled",
                    .action = "ask.expired"},
};

static int prepare(struct db *db, const struct statement *which, sqlite3_stmt **ret)
{
    return db_prepare(db, which->id, which->sql, ret);
}

/* ---- One document ------------------------------------------------------------------------------
 */

static int put_text(struct db *db, const struct record *r, const char *doc)
{
    sqlite3_stmt *st;
    const struct statement *put = &KINDS[r->kind].put;
    int ret = db_prepare_write(db, put->id, put->sql, &st);
    if (ret < 0)
        return ret;
    bind_text(st, 1, r->id);
    bind_text(st, 2, r->state);
    bind_text(st, 3, r->text ? r->text : "");
    bind_text(st, 4, doc);
    bind_text(st, 5, r->kind == RECORD_SESSION ? r->tier : r->session_id);
    return db_run(db, st);
}

int record_put(struct db *db, const struct record *r)
{
    CLEANUP(freep) char *doc = json_dumps(r->doc, JSON_COMPACT);
    return doc ? put_text(db, r, doc) : -ENOMEM;
}

static int doc_parse(const char *text, json_t **ret)
{
    *ret = text ? json_loads(text, 0, NULL) : NULL;
    return *ret ? 0 : -EUCLEAN;
}

int record_get(struct db *db, enum record_kind kind, const char *id, json_t **ret_doc)
{
    sqlite3_stmt *st;
    int r = prepare(db, &KINDS[kind].get, &st);
    if (r < 0)
        return r;
    bind_text(st, 1, id);
    r = db_step(st);
    if (r <= 0)
        return r < 0 ? r : -ENOENT;
    json_t *owed = owed_doc(db, id);
    *ret_doc = json_incref(owed);
    r = owed ? 0 : doc_parse(col_text(st, 0), ret_doc);
    db_reset(st);
    return r;
}

int record_delete(struct db *db, enum record_kind kind, const char *id)
{
    const struct kind *k = &KINDS[kind];
    int r = k->blocked.sql ? db_run_by_id(db, k->blocked.id, k->blocked.sql, id) : 0;
    if (r < 0)
        return r;
    r = db_run_by_id(db, k->delete.id, k->delete.sql, id);
    return r < 0 ? r : r == 0 ? -ENOENT : 0;
}

/* ---- Lists -------------------------------------------------------------------------------------
 */

static int list_statement(struct db *db, const struct record_query *q, sqlite3_stmt **ret)
{
    const struct kind *k = &KINDS[q->kind];
    return prepare(db, q->session_id && k->list.sql ? &k->list : &k->list_all, ret);
}

static int list_doc(const struct db *db, sqlite3_stmt *st, json_t **ret)
{
    json_t *owed = NULL;
    int r = doc_parse(col_text(st, 0), ret);
    const char *id = r == 0 ? json_string_value(json_object_get(*ret, "id")) : NULL;
    if (id && (owed = owed_doc(db, id))) {
        json_decref(*ret);
        *ret = json_incref(owed);
    }
    return r;
}

static int list_fill(const struct db *db, sqlite3_stmt *st, size_t limit, json_t *items,
                     bool *ret_more)
{
    int r;
    while ((r = db_step(st)) > 0) {
        if (json_array_size(items) == limit) {
            *ret_more = true;
            break;
        }
        json_t *doc;
        r = list_doc(db, st, &doc);
        if (r == 0 && json_array_append_new(items, doc) < 0)
            r = -ENOMEM;
        if (r < 0)
            break;
    }
    db_reset(st);
    return r < 0 ? r : 0;
}

int record_list(struct db *db, const struct record_query *q, json_t **ret_items, bool *ret_more)
{
    size_t limit = q->limit ? q->limit : LIMIT_DEFAULT;
    if (limit > RECORD_LIST_MAX)
        limit = RECORD_LIST_MAX;
    sqlite3_stmt *st;
    int r = list_statement(db, q, &st);
    if (r < 0)
        return r;
    bind_text(st, 1, q->before_id);
    bind_text(st, 2, q->state);
    bind_text(st, 3, q->q);
    bind_text(st, 4, q->kind == RECORD_SESSION ? q->tier : q->session_id);
    bind_int(st, 5, (int64_t)limit + 1);
    json_t *items = json_array();
    bool more = false;
    r = items ? list_fill(db, st, limit, items, &more) : -ENOMEM;
    if (r < 0) {
        json_decref(items);
        return r;
    }
    *ret_items = items;
    *ret_more = more;
    return 0;
}

/* ---- What a dead daemon left -------------------------------------------------------------------
 */

struct left { /* one record that was alive, copied out of the statement */
    char id[ID_MAX], session_id[ID_MAX];
    char *tier, *text, *doc;
};

static void left_done(struct left *l)
{
    free(l->tier);
    free(l->text);
    free(l->doc);
}

static int left_read(sqlite3_stmt *st, struct left *ret)
{
    struct left l = {0};
    col_copy(st, 0, l.id, sizeof l.id);
    col_copy(st, 1, l.session_id, sizeof l.session_id);
    const char *tier = col_text(st, 2), *text = col_text(st, 3), *doc = col_text(st, 4);
    l.tier = tier ? strdup(tier) : NULL;
    l.text = strdup(text ? text : "");
    l.doc = strdup(doc ? doc : "");
    *ret = l;
    return l.text && l.doc && (!tier || l.tier) ? 0 : -ENOMEM;
}

static int doc_end(json_t *doc, enum record_kind kind, const char *now)
{
    json_t *rev = json_object_get(doc, "rev");
    int r = json_object_set_new(doc, "state", json_string(KINDS[kind].lost));
    if (r == 0 && kind != RECORD_ASK)
        r = json_object_set_new(doc, "ended_at", json_string(now));
    if (r == 0 && kind == RECORD_ASK)
        r = json_object_set_new(doc, "answers", json_array());
    if (r == 0 && kind == RECORD_SESSION)
        r = json_object_set_new(doc, "end_reason", json_string("daemon_died"));
    if (r == 0 && json_is_integer(rev))
        r = json_object_set_new(doc, "rev", json_integer(json_integer_value(rev) + 1));
    return r < 0 ? -ENOMEM : 0;
}

static json_t *left_after(enum record_kind kind, const struct left *l)
{
    switch (kind) {
    case RECORD_SESSION:
        return json_pack("{s:s}", "end_reason", "daemon_died");
    case RECORD_ASK:
        return json_pack("{s:s, s:s}", "ask_id", l->id, "state", KINDS[kind].lost);
    case RECORD_COMMAND:
        return json_pack("{s:s}", "state", KINDS[kind].lost);
    }
    return NULL;
}

static int left_end(struct db *db, enum record_kind kind, const struct left *l)
{
    json_t *doc;
    char now[CLOCK_TEXT_MAX];
    clock_text(clock_wall_ms(), now);
    int r = doc_parse(l->doc, &doc);
    if (r < 0)
        return r;
    r = doc_end(doc, kind, now);
    if (r == 0)
        r = record_put(db, &(struct record){.kind = kind,
                                            .id = l->id,
                                            .session_id = l->session_id,
                                            .state = KINDS[kind].lost,
                                            .tier = l->tier,
                                            .text = l->text,
                                            .doc = doc});
    if (r == 0)
        r = audit_add(db,
                      &(struct audit_entry){.action = KINDS[kind].action,
                                            .session_id = l->session_id,
                                            .command_id = kind == RECORD_COMMAND ? l->id : NULL,
                                            .target = l->text,
                                            .take_after = left_after(kind, l),
                                            .outcome = OUTCOME_ERROR,
                                            .enforcement = json_object_get(doc, "enforcement")});
    json_decref(doc);
    return r;
}

/* One after the other: the statement that finds the next is done before the record changes. */
static int left_next(struct db *db, enum record_kind kind, struct left *ret)
{
    sqlite3_stmt *st;
    int r = prepare(db, &KINDS[kind].alive, &st);
    if (r == 0)
        r = db_step(st);
    if (r <= 0)
        return r;
    r = left_read(st, ret);
    db_reset(st);
    return r < 0 ? r : 1;
}

static int mark_kind(struct db *db, enum record_kind kind, void (*lost)(const char *, void *),
                     void *arg)
{
    int n = 0, r;
    for (;;) {
        CLEANUP(left_done) struct left l = {0};
        r = left_next(db, kind, &l);
        if (r > 0)
            r = left_end(db, kind, &l) < 0 ? -EIO : 1;
        if (r <= 0)
            return r < 0 ? r : n;
        if (lost && kind == RECORD_COMMAND)
            lost(l.id, arg);
        n++;
    }
}

int record_mark_lost(struct db *db, void (*lost)(const char *command_id, void *arg), void *arg)
{
    static const enum record_kind ORDER[] = {RECORD_ASK, RECORD_COMMAND, RECORD_SESSION};
    int n = 0;
    for (size_t i = 0; i < ARRAY_LEN(ORDER); i++) {
        int r = mark_kind(db, ORDER[i], lost, arg);
        if (r < 0)
            return r;
        n += r;
    }
    return n;
}

/* ---- Retention ---------------------------------------------------------------------------------
 */

/* The smallest id with that prefix and time: a ULID begins with 48 bits of ms in base 32. */
static void id_of_time(const char *prefix, int64_t wall_ms, char ret[static ID_MAX])
{
    static const char DIGITS[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    uint64_t ms = wall_ms > 0 ? (uint64_t)wall_ms : 0;
    memset(ret, '0', ID_MAX);
    memcpy(ret, prefix, 4);
    for (int i = 13; i >= 4; i--, ms >>= 5)
        ret[i] = DIGITS[ms & 31];
    ret[ID_MAX - 1] = '\0';
}

static int old_ids(struct db *db, enum record_kind kind, int64_t before, unsigned max,
                   struct strv *ret)
{
    char id[ID_MAX], ended[CLOCK_TEXT_MAX];
    sqlite3_stmt *st;
    int r = prepare(db, &KINDS[kind].old, &st);
    if (r < 0)
        return r;
    id_of_time(KINDS[kind].prefix, before, id);
    clock_text(before, ended);
    bind_text(st, 1, id);
    bind_text(st, 2, ended);
    bind_int(st, 3, max);
    while ((r = db_step(st)) > 0 && (r = strv_add(ret, col_text(st, 0))) == 0)
        ;
    db_reset(st);
    return r;
}

static int retain_kind(struct db *db, enum record_kind kind, int64_t before, unsigned max)
{
    CLEANUP(strv_done) struct strv ids = {0};
    int r = old_ids(db, kind, before, max, &ids);
    for (size_t i = 0; r == 0 && i < ids.n; i++)
        r = record_delete(db, kind, ids.items[i]);
    return r < 0 ? r : (int)ids.n;
}

int record_retain(struct db *db, int64_t before_wall_ms, unsigned max)
{
    int commands = retain_kind(db, RECORD_COMMAND, before_wall_ms, max);
    if (commands < 0)
        return commands;
    int sessions = retain_kind(db, RECORD_SESSION, before_wall_ms, max);
    return sessions < 0 ? sessions : commands + sessions;
}
