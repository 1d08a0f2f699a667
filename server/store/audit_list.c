/* Runs in: daemon. Reads: its own rows, which somebody may have edited. May block: no.
 *
 * Pages and the check of the chain. A page goes along the index of one filter, the narrowest that
 * is given, and tests the others row by row; times bound it by numbers of rows, found by halving.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "store/audit_row.h"
#include <errno.h>
#include <string.h>

#define LIMIT_DEFAULT 50
#define RUNS_MAX      256 /* with more of them times do not bound the scan, they only filter */

#define SQL_PAGE(index, where)                                                                     \
    "SELECT " AUDIT_COLUMNS " FROM audit " index " WHERE " where                                   \
    " seq <= ?2 AND seq >= ?3 ORDER BY seq DESC"
static const char SQL_LIST[] = SQL_PAGE("NOT INDEXED", "");
static const char SQL_LIST_SESSION[] =
    SQL_PAGE("INDEXED BY audit_by_session", "session_id = ?1 AND");
static const char SQL_LIST_ACTOR_ID[] =
    SQL_PAGE("INDEXED BY audit_by_actor_id", "actor_id = ?1 AND");
static const char SQL_LIST_ACTOR_KIND[] =
    SQL_PAGE("INDEXED BY audit_by_actor_kind", "actor_kind = ?1 AND");
static const char SQL_LIST_ACTION[] = SQL_PAGE("INDEXED BY audit_by_action", "action = ?1 AND");
static const char SQL_LIST_TARGET[] = SQL_PAGE("INDEXED BY audit_by_target", "target_key = ?1 AND");
static const char SQL_LIST_OUTCOME[] =
    SQL_PAGE("INDEXED BY audit_by_outcome", "outcome = ?1 AND outcome <> 1 AND");
static const char SQL_FROM[] =
    "SELECT " AUDIT_COLUMNS " FROM audit WHERE seq >= ?1 ORDER BY seq LIMIT ?2";
static const char SQL_AT[] = "SELECT at FROM audit WHERE seq >= ?1 ORDER BY seq LIMIT 1";
static const char SQL_RUNS[] = "SELECT first_seq FROM audit_runs ORDER BY first_seq";

/* From the columns AUDIT_COLUMNS; borrowed until ST is stepped. False: a column has a wrong kind.
 */
static bool audit_row_read(sqlite3_stmt *st, struct audit_row *ret)
{
    struct audit_row row = {
        .seq = col_int(st, 0),
        .id = col_text(st, 1),
        .at = col_int(st, 2),
        .actor_kind = (int)col_int(st, 3),
        .actor_id = col_text(st, 4),
        .peer_uid = sqlite3_column_type(st, 5) == SQLITE_NULL ? -1 : col_int(st, 5),
        .action = col_text(st, 6),
        .session_id = col_text(st, 7),
        .command_id = col_text(st, 8),
        .target = col_text(st, 9),
        .before = col_text(st, 10),
        .after = col_text(st, 11),
        .outcome = (int)col_int(st, 12),
        .enforcement = col_text(st, 13),
        .target_key = col_int(st, 16),
    };
    *ret = row;
    return row.id && row.action && row.target && col_blob32(st, 14, ret->prev_hash) &&
           col_blob32(st, 15, ret->hash);
}

/* ---- Pages -------------------------------------------------------------------------------------
 */

struct page {
    const struct audit_query *q;
    int outcome, actor_kind; /* -1 = any */
    const char *actor_id;
    int64_t from, to; /* numbers of rows, inclusive */

    json_t *items;
    unsigned seen; /* rows looked at */
    int64_t last_seq, next_seq;
    bool is_over;
};

static int name_index(const char *const *names, const char *name)
{
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

static int64_t at_of(struct db *db, int64_t seq)
{
    sqlite3_stmt *st;
    if (db_prepare(db, ST_AUDIT_AT, SQL_AT, &st) < 0)
        return 0;
    bind_int(st, 1, seq);
    if (db_step(st) <= 0)
        return INT64_MAX;
    int64_t at = col_int(st, 0);
    db_reset(st);
    return at;
}

/* The first number in [FROM, TO] whose row is later than AT, TO + 1 when none is. */
static int64_t first_after(struct db *db, int64_t from, int64_t to, int64_t at)
{
    int64_t end = to + 1;
    while (from < end) {
        int64_t middle = from + (end - from) / 2;
        if (at_of(db, middle) > at)
            end = middle;
        else
            from = middle + 1;
    }
    return from;
}

/* Narrows the page to the rows of one run [FROM, TO] that may lie in its times, and widens HULL. */
static void run_bounds(struct db *db, const struct page *p, int64_t from, int64_t to,
                       struct page *hull)
{
    if (p->q->until)
        to = first_after(db, from, to, p->q->until + AUDIT_RUN_SLACK_MS) - 1;
    if (p->q->since)
        from = first_after(db, from, to, p->q->since - AUDIT_RUN_SLACK_MS - 1);
    if (from > to)
        return;
    if (from < hull->from)
        hull->from = from;
    if (to > hull->to)
        hull->to = to;
}

static int time_bounds(struct db *db, struct page *p)
{
    if (!p->q->since && !p->q->until)
        return 0;
    int64_t runs[RUNS_MAX + 1];
    size_t n = 0;
    sqlite3_stmt *st;
    int r = db_prepare(db, ST_AUDIT_RUNS, SQL_RUNS, &st);
    if (r < 0)
        return r;
    while ((r = db_step(st)) > 0 && n <= RUNS_MAX)
        runs[n++] = col_int(st, 0);
    db_reset(st);
    if (r < 0 || n == 0 || n > RUNS_MAX)
        return r < 0 ? r : 0;
    struct page hull = {.from = INT64_MAX, .to = 0};
    for (size_t i = 0; i < n; i++) {
        int64_t from = runs[i] > p->from ? runs[i] : p->from;
        int64_t to = i + 1 < n && runs[i + 1] - 1 < p->to ? runs[i + 1] - 1 : p->to;
        if (from <= to)
            run_bounds(db, p, from, to, &hull);
    }
    p->from = hull.from;
    p->to = hull.to;
    return 0;
}

/* Along which index; a target is looked for block by block. */
static int page_statement(struct db *db, const struct page *p, int64_t block, sqlite3_stmt **ret)
{
    const struct audit_query *q = p->q;
    int r;
    if (q->target)
        r = db_prepare(db, ST_AUDIT_LIST_TARGET, SQL_LIST_TARGET, ret);
    else if (q->session)
        r = db_prepare(db, ST_AUDIT_LIST_SESSION, SQL_LIST_SESSION, ret);
    else if (p->actor_id)
        r = db_prepare(db, ST_AUDIT_LIST_ACTOR_ID, SQL_LIST_ACTOR_ID, ret);
    else if (q->action)
        r = db_prepare(db, ST_AUDIT_LIST_ACTION, SQL_LIST_ACTION, ret);
    else if (p->outcome >= 0 && p->outcome != OUTCOME_OK)
        r = db_prepare(db, ST_AUDIT_LIST_OUTCOME, SQL_LIST_OUTCOME, ret);
    else if (p->actor_kind >= 0)
        r = db_prepare(db, ST_AUDIT_LIST_ACTOR_KIND, SQL_LIST_ACTOR_KIND, ret);
    else
        r = db_prepare(db, ST_AUDIT_LIST, SQL_LIST, ret);
    if (r < 0)
        return r;
    const char *text = q->session ? q->session : p->actor_id ? p->actor_id : q->action;
    if (q->target)
        bind_int(*ret, 1, audit_target_key(block, q->target));
    else if (text)
        bind_text(*ret, 1, text);
    else if (p->outcome >= 0 && p->outcome != OUTCOME_OK)
        bind_int(*ret, 1, p->outcome);
    else if (p->actor_kind >= 0)
        bind_int(*ret, 1, p->actor_kind);
    bind_int(*ret, 2, p->to);
    bind_int(*ret, 3, p->from);
    return 0;
}

static bool same(const char *wanted, const char *text)
{
    return !wanted || (text && strcmp(wanted, text) == 0);
}

static bool row_matches(const struct page *p, const struct audit_row *row)
{
    const struct audit_query *q = p->q;
    return same(q->session, row->session_id) && same(q->action, row->action) &&
           same(q->target, row->target) && same(p->actor_id, row->actor_id) &&
           (p->actor_kind < 0 || p->actor_kind == row->actor_kind) &&
           (p->outcome < 0 || p->outcome == row->outcome) && (!q->since || row->at >= q->since) &&
           (!q->until || row->at <= q->until);
}

/* A row that was edited into something unreadable is shown without its documents. */
static int row_to_json(struct str *text, struct audit_row *row, json_t **ret)
{
    char hash[65];
    str_clear(text);
    int r = audit_row_text(text, row);
    if (r < 0)
        return r;
    json_t *json = json_loadb(text->data, text->len, 0, NULL);
    if (!json && (row->before || row->after || row->enforcement)) {
        row->before = row->enforcement = NULL;
        row->after = "{\"unreadable\":true}";
        return row_to_json(text, row, ret);
    }
    if (!json)
        return -EUCLEAN;
    audit_hex(row->hash, hash);
    *ret = json;
    return json_object_set_new(json, "hash", json_string(hash)) < 0 ? -ENOMEM : 0;
}

static int page_add(struct page *p, struct audit_row *row, struct str *text)
{
    json_t *json = NULL;
    int r = row_to_json(text, row, &json);
    if (r < 0) {
        json_decref(json);
        return r;
    }
    return json_array_append_new(p->items, json) < 0 ? -ENOMEM : 0;
}

/* One row more is looked for than the page holds: is there a next page? */
static int page_fill(struct page *p, sqlite3_stmt *st, struct str *text)
{
    size_t limit = p->q->limit ? p->q->limit : LIMIT_DEFAULT;
    int r = 0;
    for (; !p->is_over && (r = db_step(st)) > 0; p->seen++) {
        struct audit_row row;
        bool is_whole = audit_row_read(st, &row);
        bool matches = is_whole && row_matches(p, &row);
        bool is_full = json_array_size(p->items) == limit;
        if (p->seen == AUDIT_SCAN_MAX || (is_full && matches)) {
            p->next_seq = p->last_seq;
            p->is_over = true;
        } else if (!is_full) {
            p->last_seq = row.seq;
            r = matches ? page_add(p, &row, text) : 0;
        }
        if (r < 0)
            break;
    }
    db_reset(st);
    return r < 0 ? r : 0;
}

static int page_read(struct db *db, struct page *p)
{
    int64_t block = AUDIT_BLOCK(p->to), first = p->q->target ? AUDIT_BLOCK(p->from) : block;
    sqlite3_stmt *st;
    int r = 0;
    for (; r == 0 && block >= first && !p->is_over; block--) {
        r = page_statement(db, p, block, &st);
        if (r == 0)
            r = page_fill(p, st, &db->scratch.text);
    }
    return r;
}

int audit_list(struct db *db, const struct audit_query *q, json_t **ret_items,
               int64_t *ret_next_seq)
{
    struct page p = {.q = q, .outcome = -1, .actor_kind = -1};
    int r = audit_load_ends(db);
    if (r < 0)
        return r;
    if (q->outcome && (p.outcome = name_index(OUTCOME_NAMES, q->outcome)) < 0)
        return -EINVAL;
    if (q->actor && (p.actor_kind = name_index(ACTOR_NAMES, q->actor)) < 0)
        p.actor_id = q->actor;
    p.from = db->audit.cut_seq + 1;
    p.to = q->before_seq ? q->before_seq - 1 : db->audit.last_seq;
    r = time_bounds(db, &p);
    if (r < 0)
        return r;
    p.items = json_array();
    r = p.items ? page_read(db, &p) : -ENOMEM;
    if (r < 0) {
        json_decref(p.items);
        return r;
    }
    *ret_items = p.items;
    *ret_next_seq = p.next_seq;
    return 0;
}

/* ---- The chain ---------------------------------------------------------------------------------
 */

static int verify_end(struct audit_verify *v, int64_t broken_at)
{
    v->ok = broken_at == 0;
    v->broken_at = broken_at;
    return 0;
}

static bool row_is_good(struct db *db, const struct audit_verify *v, const struct audit_row *row)
{
    char prev[65];
    unsigned char hash[32];
    audit_hex(row->prev_hash, prev);
    return strcmp(prev, v->prev_hash) == 0 &&
           row->target_key == audit_target_key(AUDIT_BLOCK(row->seq), row->target) &&
           audit_row_hash(&db->scratch.text, row, hash) == 0 &&
           memcmp(hash, row->hash, sizeof hash) == 0;
}

int audit_verify_step(struct db *db, struct audit_verify *v, unsigned n)
{
    int r = audit_load_ends(db);
    if (r < 0)
        return r;
    const struct audit_ends *ends = &db->audit;
    if (v->next_seq <= ends->cut_seq) { /* at the start, or retention came along */
        v->next_seq = ends->cut_seq + 1;
        audit_hex(ends->cut_hash, v->prev_hash);
    }
    sqlite3_stmt *st;
    r = db_prepare(db, ST_AUDIT_FROM, SQL_FROM, &st);
    if (r < 0)
        return r;
    bind_int(st, 1, v->next_seq);
    bind_int(st, 2, n);
    unsigned done = 0;
    while ((r = db_step(st)) > 0) {
        struct audit_row row;
        bool is_whole = audit_row_read(st, &row);
        if (row.seq != v->next_seq || !is_whole || !row_is_good(db, v, &row)) {
            db_reset(st);
            return verify_end(v, v->next_seq);
        }
        audit_hex(row.hash, v->prev_hash);
        v->next_seq++;
        v->rows++;
        done++;
    }
    if (r < 0)
        return r;
    if (done == n)
        return 1;
    char last[65];
    audit_hex(ends->last_hash, last);
    bool is_last = v->next_seq == ends->last_seq + 1 && strcmp(last, v->prev_hash) == 0;
    return verify_end(v, is_last ? 0 : v->next_seq > ends->last_seq ? ends->last_seq : v->next_seq);
}
