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

static const char SQL_SESSION_PUT[] =
    "INSERT INTO sessions (id, state, text, doc, tier) VALUES (?1, ?2, ?3, ?4, ?5)"
    " ON CONFLICT (id) DO UPDATE SET state = excluded.state, text = excluded.text,"
    " doc = excluded.doc, tier = excluded.tier";
static const char SQL_COMMAND_PUT[] =
    "INSERT INTO commands (id, state, text, doc, session_id) VALUES (?1, ?2, ?3, ?4, ?5)"
    " ON CONFLICT (id) DO UPDATE SET state = excluded.state, text = excluded.text,"
    " doc = excluded.doc";
static const char SQL_SESSION_GET[] = "SELECT doc FROM sessions WHERE id = ?1";
static const char SQL_COMMAND_GET[] = "SELECT doc FROM commands WHERE id = ?1";
static const char SQL_SESSION_DELETE[] = "DELETE FROM sessions WHERE id = ?1";
static const char SQL_COMMAND_DELETE[] = "DELETE FROM commands WHERE id = ?1";
#define LIST_FILTERS                                                                               \
    " (?1 IS NULL OR id < ?1) AND (?2 IS NULL OR state = ?2)"                                      \
    " AND (?3 IS NULL OR instr(lower(text), lower(?3)) > 0)"
static const char SQL_SESSION_LIST[] = "SELECT doc FROM sessions WHERE" LIST_FILTERS
                                       " AND (?4 IS NULL OR tier = ?4) ORDER BY id DESC LIMIT ?5";
static const char SQL_COMMAND_LIST[] =
    "SELECT doc FROM commands WHERE session_id = ?4 AND" LIST_FILTERS " ORDER BY id DESC LIMIT ?5";
static const char SQL_COMMAND_LIST_ALL[] =
    "SELECT doc FROM commands WHERE" LIST_FILTERS " AND ?4 IS NULL ORDER BY id DESC LIMIT ?5";
static const char SQL_SESSION_ALIVE[] =
    "SELECT id, '', tier, text, doc FROM sessions WHERE state NOT IN ('ended', 'refused')"
    " ORDER BY id";
static const char SQL_COMMAND_ALIVE[] =
    "SELECT id, session_id, NULL, text, doc FROM commands"
    " WHERE state IN ('queued', 'starting', 'running') ORDER BY id";
/* By when it ended: an id only says when it began, and bounds what is looked at. What is alive
 * stays, whatever its age. */
#define OLD_ENDED " AND coalesce(json_extract(doc, '$.ended_at'), '') < ?2 ORDER BY id LIMIT ?3"
static const char SQL_SESSION_OLD[] =
    "SELECT id FROM sessions WHERE id < ?1 AND state IN ('ended', 'refused')" OLD_ENDED;
static const char SQL_COMMAND_OLD[] = "SELECT id FROM commands WHERE id < ?1 AND state NOT IN "
                                      "('queued', 'starting', 'running')" OLD_ENDED;
static const char SQL_BLOCKED_OF_SESSION[] = "DELETE FROM blocked WHERE session_id = ?1";
static const char SQL_BLOCKED_OF_COMMAND[] =
    "DELETE FROM blocked WHERE session_id = (SELECT session_id FROM commands WHERE id = ?1)"
    " AND command_id = ?1";

/* ---- One document ------------------------------------------------------------------------------
 */

static int put_text(struct db *db, const struct record *r, const char *doc)
{
    sqlite3_stmt *st;
    bool is_session = r->kind == RECORD_SESSION;
    int ret = is_session ? db_prepare_write(db, ST_SESSION_PUT, SQL_SESSION_PUT, &st)
                         : db_prepare_write(db, ST_COMMAND_PUT, SQL_COMMAND_PUT, &st);
    if (ret < 0)
        return ret;
    bind_text(st, 1, r->id);
    bind_text(st, 2, r->state);
    bind_text(st, 3, r->text ? r->text : "");
    bind_text(st, 4, doc);
    bind_text(st, 5, is_session ? r->tier : r->session_id);
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
    int r = kind == RECORD_SESSION ? db_prepare(db, ST_SESSION_GET, SQL_SESSION_GET, &st)
                                   : db_prepare(db, ST_COMMAND_GET, SQL_COMMAND_GET, &st);
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
    bool is_session = kind == RECORD_SESSION;
    int r = is_session ? db_run_by_id(db, ST_BLOCKED_OF_SESSION, SQL_BLOCKED_OF_SESSION, id)
                       : db_run_by_id(db, ST_BLOCKED_OF_COMMAND, SQL_BLOCKED_OF_COMMAND, id);
    if (r < 0)
        return r;
    r = is_session ? db_run_by_id(db, ST_SESSION_DELETE, SQL_SESSION_DELETE, id)
                   : db_run_by_id(db, ST_COMMAND_DELETE, SQL_COMMAND_DELETE, id);
    return r < 0 ? r : r == 0 ? -ENOENT : 0;
}

/* ---- Lists -------------------------------------------------------------------------------------
 */

static int list_statement(struct db *db, const struct record_query *q, sqlite3_stmt **ret)
{
    if (q->kind == RECORD_SESSION)
        return db_prepare(db, ST_SESSION_LIST, SQL_SESSION_LIST, ret);
    if (q->session_id)
        return db_prepare(db, ST_COMMAND_LIST, SQL_COMMAND_LIST, ret);
    return db_prepare(db, ST_COMMAND_LIST_ALL, SQL_COMMAND_LIST_ALL, ret);
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
    const char *state = kind == RECORD_SESSION ? "ended" : "lost";
    json_t *rev = json_object_get(doc, "rev");
    int r = json_object_set_new(doc, "state", json_string(state));
    if (r == 0)
        r = json_object_set_new(doc, "ended_at", json_string(now));
    if (r == 0 && kind == RECORD_SESSION)
        r = json_object_set_new(doc, "end_reason", json_string("daemon_died"));
    if (r == 0 && json_is_integer(rev))
        r = json_object_set_new(doc, "rev", json_integer(json_integer_value(rev) + 1));
    return r < 0 ? -ENOMEM : 0;
}

static int left_end(struct db *db, enum record_kind kind, const struct left *l)
{
    bool is_session = kind == RECORD_SESSION;
    const char *session_id = is_session ? l->id : l->session_id;
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
                                            .session_id = session_id,
                                            .state = is_session ? "ended" : "lost",
                                            .tier = l->tier,
                                            .text = l->text,
                                            .doc = doc});
    if (r == 0)
        r = audit_add(db,
                      &(struct audit_entry){
                          .action = is_session ? "session.ended" : "command.ended",
                          .session_id = session_id,
                          .command_id = is_session ? NULL : l->id,
                          .target = l->text,
                          .take_after = is_session ? json_pack("{s:s}", "end_reason", "daemon_died")
                                                   : json_pack("{s:s}", "state", "lost"),
                          .outcome = OUTCOME_ERROR,
                          .enforcement = json_object_get(doc, "enforcement")});
    json_decref(doc);
    return r;
}

/* One after the other: the statement that finds the next is done before the record changes. */
static int left_next(struct db *db, enum record_kind kind, struct left *ret)
{
    sqlite3_stmt *st;
    int r = kind == RECORD_SESSION ? db_prepare(db, ST_SESSION_ALIVE, SQL_SESSION_ALIVE, &st)
                                   : db_prepare(db, ST_COMMAND_ALIVE, SQL_COMMAND_ALIVE, &st);
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
    int commands = mark_kind(db, RECORD_COMMAND, lost, arg);
    int sessions = commands < 0 ? commands : mark_kind(db, RECORD_SESSION, NULL, NULL);
    return sessions < 0 ? sessions : commands + sessions;
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
    bool is_session = kind == RECORD_SESSION;
    int r = is_session ? db_prepare(db, ST_SESSION_OLD, SQL_SESSION_OLD, &st)
                       : db_prepare(db, ST_COMMAND_OLD, SQL_COMMAND_OLD, &st);
    if (r < 0)
        return r;
    id_of_time(is_session ? "ses_" : "cmd_", before, id);
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
