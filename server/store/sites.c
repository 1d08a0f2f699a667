/* Runs in: daemon. Reads: trusted; hosts are canonical already. May block: no. */
#include "store/sites.h"
#include "base/clock.h"
#include "base/mem.h"
#include "store/db_impl.h"
#include <errno.h>
#include <string.h>

const char *const SITE_LIST_NAMES[] = {"machine", "guarded", "session", NULL};

#define COLUMNS                                                                                    \
    "id, list, session_id, host, port, enabled, allow_private, note, source, site_group,"          \
    " created_by, created_at, last_used_at, hits, blocked_hits, rev"
#define VALUES "(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)"
/* Counters are site_used's: an update leaves them. */
static const char SQL_PUT[] =
    "INSERT INTO sites (" COLUMNS ") VALUES " VALUES " ON CONFLICT (id) DO UPDATE SET"
    " list = excluded.list, session_id = excluded.session_id, host = excluded.host,"
    " port = excluded.port, enabled = excluded.enabled, allow_private = excluded.allow_private,"
    " note = excluded.note, source = excluded.source, site_group = excluded.site_group,"
    " created_by = excluded.created_by, rev = excluded.rev";
static const char SQL_SEED[] = "INSERT INTO sites (" COLUMNS ") VALUES " VALUES
                               " ON CONFLICT (list, session_id, host, port) DO NOTHING";
static const char SQL_GET[] = "SELECT " COLUMNS " FROM sites WHERE id = ?1";
static const char SQL_FIND[] = "SELECT " COLUMNS " FROM sites WHERE list = ?1 AND session_id = ?2"
                               " AND host = ?3 AND port = ?4";
static const char SQL_DELETE[] = "DELETE FROM sites WHERE id = ?1";
static const char SQL_OF_SESSION[] = "DELETE FROM sites WHERE list = 2 AND session_id = ?1";
#define EACH_FILTERS                                                                               \
    " (?3 IS NULL OR source = ?3) AND (?4 IS NULL OR instr(host, lower(?4)) > 0"                   \
    " OR instr(lower(note), lower(?4)) > 0) AND (?5 IS NULL OR id < ?5)"
static const char SQL_EACH[] = "SELECT " COLUMNS " FROM sites WHERE session_id = coalesce(?2, '')"
                               " AND" EACH_FILTERS " ORDER BY id DESC LIMIT ?6";
static const char SQL_EACH_LIST[] =
    "SELECT " COLUMNS " FROM sites WHERE list = ?1 AND session_id = coalesce(?2, '')"
    " AND" EACH_FILTERS " ORDER BY id DESC LIMIT ?6";
static const char SQL_COUNT[] =
    "SELECT count(*) FROM sites WHERE (?1 < 0 OR list = ?1) AND (?2 IS NULL OR session_id = ?2)";
static const char SQL_USED[] =
    "UPDATE sites SET hits = hits + ?2, blocked_hits = blocked_hits + ?3,"
    " last_used_at = max(last_used_at, ?4) WHERE id = ?1";

#define USES_WRITE_MS 1000

static int run_row(struct db *db, enum db_stmt which, const char *sql, const struct site *s)
{
    sqlite3_stmt *st;
    int r = db_prepare_write(db, which, sql, &st);
    if (r < 0)
        return r;
    bind_text(st, 1, s->id);
    bind_int(st, 2, (int64_t)s->list);
    bind_text(st, 3, s->session_id);
    bind_text(st, 4, s->host);
    bind_int(st, 5, s->port);
    bind_int(st, 6, s->enabled);
    bind_int(st, 7, s->allow_private);
    bind_text(st, 8, s->note);
    bind_text(st, 9, s->source);
    bind_text(st, 10, s->group);
    bind_text(st, 11, s->created_by);
    bind_int(st, 12, s->created_at);
    bind_int(st, 13, s->last_used_at);
    bind_int(st, 14, s->hits);
    bind_int(st, 15, s->blocked_hits);
    bind_int(st, 16, s->rev);
    return db_run(db, st);
}

static struct site_use *use_find(struct db *db, const char *id)
{
    for (size_t i = 0; i < db->uses.n; i++)
        if (strcmp(db->uses.items[i].id, id) == 0)
            return &db->uses.items[i];
    return NULL;
}

static void row_read(struct db *db, sqlite3_stmt *st, struct site *ret)
{
    memset(ret, 0, sizeof *ret);
    col_copy(st, 0, ret->id, sizeof ret->id);
    ret->list = (enum site_list)col_int(st, 1);
    col_copy(st, 2, ret->session_id, sizeof ret->session_id);
    col_copy(st, 3, ret->host, sizeof ret->host);
    ret->port = (int)col_int(st, 4);
    ret->enabled = col_int(st, 5) != 0;
    ret->allow_private = col_int(st, 6) != 0;
    col_copy(st, 7, ret->note, sizeof ret->note);
    col_copy(st, 8, ret->source, sizeof ret->source);
    col_copy(st, 9, ret->group, sizeof ret->group);
    col_copy(st, 10, ret->created_by, sizeof ret->created_by);
    ret->created_at = col_int(st, 11);
    ret->last_used_at = col_int(st, 12);
    ret->hits = col_int(st, 13);
    ret->blocked_hits = col_int(st, 14);
    ret->rev = col_int(st, 15);
    const struct site_use *use = use_find(db, ret->id);
    if (!use)
        return;
    ret->hits += use->hits - use->grouped_hits;
    ret->blocked_hits += use->blocked_hits - use->grouped_blocked_hits;
    if (use->last_used_at > ret->last_used_at)
        ret->last_used_at = use->last_used_at;
}

static int one_row(struct db *db, sqlite3_stmt *st, struct site *ret)
{
    int r = db_step(st);
    if (r <= 0)
        return r < 0 ? r : -ENOENT;
    row_read(db, st, ret);
    db_reset(st);
    return 0;
}

int site_put(struct db *db, const struct site *s)
{
    return run_row(db, ST_SITE_PUT, SQL_PUT, s);
}

int sites_seed(struct db *db, const struct site *rows, size_t n)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < n; i++) {
        struct site s = rows[i];
        if (!s.id[0])
            id_new("sit", s.id);
        if (!s.created_at)
            s.created_at = clock_wall_ms();
        if (!s.rev)
            s.rev = 1;
        r = run_row(db, ST_SITE_SEED, SQL_SEED, &s);
    }
    return r;
}

int site_get(struct db *db, const char *id, struct site *ret)
{
    sqlite3_stmt *st;
    int r = db_prepare(db, ST_SITE_GET, SQL_GET, &st);
    if (r < 0)
        return r;
    bind_text(st, 1, id);
    return one_row(db, st, ret);
}

int site_find(struct db *db, enum site_list list, const char *session_id, const char *host,
              int port, struct site *ret)
{
    sqlite3_stmt *st;
    int r = db_prepare(db, ST_SITE_FIND, SQL_FIND, &st);
    if (r < 0)
        return r;
    bind_int(st, 1, (int64_t)list);
    bind_text(st, 2, session_id ? session_id : "");
    bind_text(st, 3, host);
    bind_int(st, 4, port);
    return one_row(db, st, ret);
}

int site_delete(struct db *db, const char *id)
{
    int r = db_run_by_id(db, ST_SITE_DELETE, SQL_DELETE, id);
    return r < 0 ? r : r == 0 ? -ENOENT : 0;
}

int sites_of_session_delete(struct db *db, const char *session_id)
{
    int r = db_run_by_id(db, ST_SITE_OF_SESSION, SQL_OF_SESSION, session_id);
    return r < 0 ? r : 0;
}

int sites_each(struct db *db, int list, const char *session_id, const char *source, const char *q,
               const char *before_id, unsigned limit, int (*cb)(const struct site *s, void *arg),
               void *arg)
{
    sqlite3_stmt *st;
    int r = list < 0 ? db_prepare(db, ST_SITE_EACH, SQL_EACH, &st)
                     : db_prepare(db, ST_SITE_EACH_LIST, SQL_EACH_LIST, &st);
    if (r < 0)
        return r;
    if (list >= 0)
        bind_int(st, 1, list);
    bind_text(st, 2, session_id);
    bind_text(st, 3, source);
    bind_text(st, 4, q);
    bind_text(st, 5, before_id);
    bind_int(st, 6, limit ? (int64_t)limit : -1);
    while ((r = db_step(st)) > 0) {
        struct site s;
        row_read(db, st, &s);
        r = cb(&s, arg);
        if (r != 0)
            break;
    }
    db_reset(st);
    return r;
}

int64_t sites_count(struct db *db, int list, const char *session_id)
{
    sqlite3_stmt *st;
    int r = db_prepare(db, ST_SITE_COUNT, SQL_COUNT, &st);
    if (r < 0)
        return r;
    bind_int(st, 1, list);
    bind_text(st, 2, session_id);
    r = db_step(st);
    int64_t n = r > 0 ? col_int(st, 0) : r;
    db_reset(st);
    return n;
}

/* ---- Use --------------------------------------------------------------------------------------
 */

static int use_write(struct db *db, struct site_use *use)
{
    sqlite3_stmt *st;
    int r = db_prepare_write(db, ST_SITE_USED, SQL_USED, &st);
    if (r < 0)
        return r;
    bind_text(st, 1, use->id);
    bind_int(st, 2, use->hits - use->grouped_hits);
    bind_int(st, 3, use->blocked_hits - use->grouped_blocked_hits);
    bind_int(st, 4, use->last_used_at);
    r = db_run(db, st);
    if (r < 0)
        return r;
    use->grouped_hits = use->hits;
    use->grouped_blocked_hits = use->blocked_hits;
    return 0;
}

void site_uses_write(struct db *db)
{
    int r = 0;
    db->uses.written_ms = clock_now_ms();
    for (size_t i = 0; r == 0 && i < db->uses.n; i++)
        r = use_write(db, &db->uses.items[i]);
}

uint64_t site_uses_due(const struct db *db)
{
    if (db->uses.n == 0 || db->group_error || db->full)
        return UINT64_MAX;
    uint64_t waited = clock_now_ms() - db->uses.written_ms;
    return waited < USES_WRITE_MS ? USES_WRITE_MS - waited : 0;
}

void site_uses_taken(struct db *db)
{
    size_t n = 0;
    for (size_t i = 0; i < db->uses.n; i++) {
        struct site_use use = db->uses.items[i];
        use.hits -= use.grouped_hits;
        use.blocked_hits -= use.grouped_blocked_hits;
        use.grouped_hits = use.grouped_blocked_hits = 0;
        if (use.hits > 0 || use.blocked_hits > 0)
            db->uses.items[n++] = use;
    }
    db->uses.n = n;
}

void site_uses_rolled_back(struct db *db)
{
    for (size_t i = 0; i < db->uses.n; i++)
        db->uses.items[i].grouped_hits = db->uses.items[i].grouped_blocked_hits = 0;
}

static struct site_use use_of(const char *id)
{
    struct site_use use = {0};
    memcpy(use.id, id, strnlen(id, sizeof use.id - 1));
    return use;
}

int site_used(struct db *db, const char *id, bool was_blocked)
{
    struct site_use fresh = use_of(id), *use = use_find(db, id);
    if (!use && db->uses.n < SITE_USES) {
        use = &db->uses.items[db->uses.n++];
        *use = fresh;
    }
    bool has_room = use != NULL;
    if (!has_room)
        use = &fresh;
    if (was_blocked) {
        use->blocked_hits++;
    } else {
        use->hits++;
        use->last_used_at = clock_wall_ms();
    }
    return has_room ? 0 : use_write(db, use);
}
