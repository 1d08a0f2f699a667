/* Runs in: daemon. Reads: trusted; what stands in `target` comes from anywhere. May block: no.
 *
 * Writing: the row, its hash, both ends of the chain. Reading is in audit_list.c. */
#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "store/audit_row.h"
#include "store/canonical.h"
#include "store/events.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *const ACTOR_NAMES[] = {"daemon", "owner", "browser", "token", "agent", NULL};
const char *const OUTCOME_NAMES[] = {"refused", "ok", "error", NULL};

static const char SQL_ENDS[] =
    "SELECT last_seq, last_hash, cut_seq, cut_hash, latest_at FROM audit_ends";
static const char SQL_ENDS_SET[] = "UPDATE audit_ends SET last_seq = ?1, last_hash = ?2,"
                                   " cut_seq = ?3, cut_hash = ?4, latest_at = ?5";
static const char SQL_ADD[] =
    "INSERT INTO audit (" AUDIT_COLUMNS
    ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)";
static const char SQL_RUN_ADD[] = "INSERT OR IGNORE INTO audit_runs (first_seq) VALUES (?1)";
static const char SQL_RUNS_CUT[] = "DELETE FROM audit_runs WHERE first_seq <"
                                   " (SELECT max(first_seq) FROM audit_runs WHERE first_seq <= ?1)";
static const char SQL_HASH[] = "SELECT hash FROM audit WHERE seq <= ?1 ORDER BY seq DESC LIMIT 1";
static const char SQL_CUT_AT[] = "SELECT seq FROM audit WHERE seq > ?1 AND seq <= ?2 AND at >= ?3"
                                 " ORDER BY seq LIMIT 1";
static const char SQL_CUT[] = "DELETE FROM audit WHERE seq <= ?1";

/* ---- The ends ---------------------------------------------------------------------------------
 */

int audit_load_ends(struct db *db)
{
    struct audit_ends *ends = &db->audit;
    if (ends->is_loaded)
        return 0;
    ends->last_id[0] = '\0'; /* what was not taken is not told */
    sqlite3_stmt *st;
    int r = db_prepare(db, ST_AUDIT_ENDS, SQL_ENDS, &st);
    if (r == 0)
        r = db_step(st);
    if (r <= 0)
        return r < 0 ? r : -EUCLEAN;
    ends->last_seq = col_int(st, 0);
    ends->cut_seq = col_int(st, 2);
    ends->latest_at = col_int(st, 4);
    bool ok = col_blob32(st, 1, ends->last_hash) && col_blob32(st, 3, ends->cut_hash);
    db_reset(st);
    ends->is_changed = false;
    ends->is_loaded = ok;
    return ok ? 0 : -EUCLEAN;
}

int audit_before_commit(struct db *db)
{
    struct audit_ends *ends = &db->audit;
    if (!ends->is_loaded || !ends->is_changed)
        return 0;
    sqlite3_stmt *st;
    int r = db_prepare(db, ST_AUDIT_ENDS_SET, SQL_ENDS_SET, &st);
    if (r < 0)
        return r;
    bind_int(st, 1, ends->last_seq);
    bind_blob(st, 2, ends->last_hash, sizeof ends->last_hash);
    bind_int(st, 3, ends->cut_seq);
    bind_blob(st, 4, ends->cut_hash, sizeof ends->cut_hash);
    bind_int(st, 5, ends->latest_at);
    r = db_run(db, st);
    if (r == 0)
        ends->is_changed = false;
    return r;
}

/* One event a group: its newest row. */
void audit_taken(struct db *db)
{
    struct audit_ends *ends = &db->audit;
    if (!ends->last_id[0])
        return;
    events_emit(db, &(struct event){EVENT_AUDIT, EVENT_CREATED, ends->last_id, NULL, ends->last_seq,
                                    NULL, NULL});
    ends->last_id[0] = '\0';
}

/* ---- The text and the hash ---------------------------------------------------------------------
 */

void audit_hex(const unsigned char hash[static 32], char ret[static 65])
{
    static const char DIGITS[] = "0123456789abcdef";
    for (size_t i = 0; i < 32; i++) {
        ret[2 * i] = DIGITS[hash[i] >> 4];
        ret[2 * i + 1] = DIGITS[hash[i] & 15];
    }
    ret[64] = '\0';
}

/* FNV-1a of 64 bits (draft-eastlake-fnv, section 2), folded to 16, below the number of the block.
 */
int64_t audit_target_key(int64_t block, const char *target)
{
    uint64_t h = 0xcbf29ce484222325;
    for (const char *c = target; *c; c++)
        h = (h ^ (unsigned char)*c) * 0x100000001b3;
    h ^= h >> 32;
    h ^= h >> 16;
    return block * 65536 + (int64_t)(h & 65535);
}

/* audit_target_key() in SQL, for a migration. */
static void sql_target_key(sqlite3_context *context, int n, sqlite3_value **args)
{
    const char *target = n == 2 ? (const char *)sqlite3_value_text(args[1]) : NULL;
    if (target)
        sqlite3_result_int64(context,
                             audit_target_key(AUDIT_BLOCK(sqlite3_value_int64(args[0])), target));
    else
        sqlite3_result_null(context);
}

int audit_sql_functions(struct db *db)
{
    return db_errno(sqlite3_create_function_v2(
        db->sql, "audit_target_key", 2, SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_DIRECTONLY,
        NULL, sql_target_key, NULL, NULL, NULL));
}

static const char *name_of(const char *const *names, size_t n, int i)
{
    return i >= 0 && (size_t)i < n ? names[i] : "?";
}

/* ,"NAME":VALUE with VALUE a string, or raw JSON; nothing for NULL. The first member of the row is
 * always there, so each of the others begins with a comma. */
static int add_member(struct str *out, const char *name, const char *value, bool is_json)
{
    if (!value)
        return 0;
    int r = str_puts(out, ",\"");
    if (r == 0)
        r = str_puts(out, name);
    if (r == 0)
        r = str_puts(out, "\":");
    if (r == 0)
        r = is_json ? str_puts(out, value) : canonical_add_string(out, value);
    return r;
}

static int add_actor(struct str *out, const struct audit_row *row)
{
    int r = str_puts(out, ",\"actor\":{");
    if (r == 0 && row->actor_id) {
        r = str_puts(out, "\"id\":");
        if (r == 0)
            r = canonical_add_string(out, row->actor_id);
        if (r == 0)
            r = str_putc(out, ',');
    }
    if (r == 0)
        r = str_printf(out, "\"kind\":\"%s\"",
                       name_of(ACTOR_NAMES, ARRAY_LEN(ACTOR_NAMES) - 1, row->actor_kind));
    if (r == 0 && row->peer_uid >= 0)
        r = str_printf(out, ",\"peer_uid\":%lld", (long long)row->peer_uid);
    return r < 0 ? r : str_putc(out, '}');
}

int audit_row_text(struct str *out, const struct audit_row *row)
{
    char at[CLOCK_TEXT_MAX], prev[65];
    clock_text(row->at, at);
    audit_hex(row->prev_hash, prev);
    int r = str_puts(out, "{\"action\":");
    if (r == 0)
        r = canonical_add_string(out, row->action);
    if (r == 0)
        r = add_actor(out, row);
    if (r == 0)
        r = add_member(out, "after", row->after, true);
    if (r == 0)
        r = add_member(out, "at", at, false);
    if (r == 0)
        r = add_member(out, "before", row->before, true);
    if (r == 0)
        r = add_member(out, "command_id", row->command_id, false);
    if (r == 0)
        r = add_member(out, "enforcement", row->enforcement, true);
    if (r == 0)
        r = add_member(out, "id", row->id, false);
    if (r == 0)
        r = add_member(out, "outcome",
                       name_of(OUTCOME_NAMES, ARRAY_LEN(OUTCOME_NAMES) - 1, row->outcome), false);
    if (r == 0)
        r = add_member(out, "prev_hash", prev, false);
    if (r == 0)
        r = str_printf(out, ",\"seq\":%lld", (long long)row->seq);
    if (r == 0)
        r = add_member(out, "session_id", row->session_id, false);
    if (r == 0)
        r = add_member(out, "target", row->target, false);
    return r < 0 ? r : str_putc(out, '}');
}

int audit_row_hash(struct str *text, const struct audit_row *row, unsigned char ret[static 32])
{
    char prev[65];
    audit_hex(row->prev_hash, prev);
    str_clear(text);
    int r = str_puts(text, prev);
    if (r == 0)
        r = audit_row_text(text, row);
    if (r == 0)
        hash_sha256(text->data, text->len, ret);
    return r;
}

/* ---- Adding ------------------------------------------------------------------------------------
 */

static int doc_text(struct str *s, const json_t *doc, const char **ret)
{
    str_clear(s);
    *ret = NULL;
    if (!doc)
        return 0;
    int r = canonical_add(s, doc);
    if (r == 0 && s->len > AUDIT_DOC_MAX) {
        size_t n = s->len;
        str_clear(s);
        r = str_printf(s, "{\"too_large\":%zu}", n);
    }
    *ret = str_c(s);
    return r;
}

/* Valid UTF-8 stays as it is; of anything else each bad byte is escaped. */
static int target_text(struct str *s, const char *target, const char **ret)
{
    str_clear(s);
    size_t n = target ? strlen(target) : 0;
    bool is_cut = n > AUDIT_TARGET_MAX;
    if (is_cut) {
        n = AUDIT_TARGET_MAX;
        while (n > 0 && ((unsigned char)target[n] & 0xc0) == 0x80)
            n--;
    }
    *ret = "";
    if (n == 0)
        return 0;
    bool valid = utf8_is_valid(target, n);
    if (valid && !is_cut) {
        *ret = target;
        return 0;
    }
    int r = valid ? str_add(s, target, n) : str_put_escaped(s, target, n);
    *ret = str_c(s);
    return r;
}

static int row_insert(struct db *db, const struct audit_row *row)
{
    sqlite3_stmt *st;
    int r = db_prepare(db, ST_AUDIT_ADD, SQL_ADD, &st);
    if (r < 0)
        return r;
    bind_int(st, 1, row->seq);
    bind_text(st, 2, row->id);
    bind_int(st, 3, row->at);
    bind_int(st, 4, row->actor_kind);
    bind_text(st, 5, row->actor_id);
    if (row->peer_uid >= 0)
        bind_int(st, 6, row->peer_uid);
    bind_text(st, 7, row->action);
    bind_text(st, 8, row->session_id);
    bind_text(st, 9, row->command_id);
    bind_text(st, 10, row->target);
    bind_text(st, 11, row->before);
    bind_text(st, 12, row->after);
    bind_int(st, 13, row->outcome);
    bind_text(st, 14, row->enforcement);
    bind_blob(st, 15, row->prev_hash, sizeof row->prev_hash);
    bind_blob(st, 16, row->hash, sizeof row->hash);
    bind_int(st, 17, row->target_key);
    r = db_run(db, st);
    return r == -EEXIST ? -EUCLEAN : r; /* somebody wrote beside us */
}

static int run_note(struct db *db, int64_t seq, int64_t at)
{
    struct audit_ends *ends = &db->audit;
    bool stepped_back = at < ends->latest_at - AUDIT_RUN_SLACK_MS;
    if (stepped_back || at > ends->latest_at)
        ends->latest_at = at;
    if (!stepped_back)
        return 0;
    sqlite3_stmt *st;
    int r = db_prepare(db, ST_AUDIT_RUN_ADD, SQL_RUN_ADD, &st);
    if (r < 0)
        return r;
    bind_int(st, 1, seq);
    return db_run(db, st);
}

static int row_add(struct db *db, const struct audit_entry *e, const json_t *before,
                   const json_t *after)
{
    struct audit_scratch *room = &db->scratch;
    const struct actor *actor = e->actor;
    struct audit_ends *ends = &db->audit;
    char id[ID_MAX];
    struct audit_row row = {
        .seq = ends->last_seq + 1,
        .at = e->at ? e->at : clock_wall_ms(),
        .peer_uid = actor ? actor->peer_uid : -1,
        .actor_kind = actor ? (int)actor->kind : ACTOR_DAEMON,
        .outcome = (int)e->outcome,
        .id = id,
        .actor_id = actor && actor->id[0] ? actor->id : NULL,
        .action = e->action,
        .session_id = e->session_id,
        .command_id = e->command_id,
    };
    id_new("aud", id);
    memcpy(row.prev_hash, ends->last_hash, sizeof row.prev_hash);
    int r = target_text(&room->target, e->target, &row.target);
    row.target_key = audit_target_key(AUDIT_BLOCK(row.seq), row.target);
    if (r == 0)
        r = doc_text(&room->before, before, &row.before);
    if (r == 0)
        r = doc_text(&room->after, after, &row.after);
    if (r == 0)
        r = doc_text(&room->enforcement, e->enforcement, &row.enforcement);
    if (r == 0)
        r = audit_row_hash(&room->text, &row, row.hash);
    if (r == 0)
        r = row_insert(db, &row);
    if (r == 0)
        r = run_note(db, row.seq, row.at);
    if (r < 0)
        return r;
    ends->last_seq = row.seq;
    memcpy(ends->last_hash, row.hash, sizeof row.hash);
    memcpy(ends->last_id, id, sizeof id);
    ends->is_changed = true;
    return 0;
}

int audit_add(struct db *db, const struct audit_entry *e)
{
    json_t *before = e->take_before, *after = e->take_after;
    owed_join(db); /* they came before */
    int r = db_write_begin(db);
    if (r == 0)
        r = audit_load_ends(db);
    if (r == 0)
        r = row_add(db, e, before, after);
    json_decref(before);
    json_decref(after);
    /* A row that is missing would leave what it is about unrecorded: the group must not stand. */
    if (r < 0)
        db_break(db, r);
    return r;
}

/* ---- Cutting -----------------------------------------------------------------------------------
 */

static int query_seq(struct db *db, int64_t from, int64_t to, int64_t at, int64_t *ret)
{
    sqlite3_stmt *st;
    int r = db_prepare(db, ST_AUDIT_CUT_AT, SQL_CUT_AT, &st);
    if (r < 0)
        return r;
    bind_int(st, 1, from);
    bind_int(st, 2, to);
    bind_int(st, 3, at);
    r = db_step(st);
    if (r > 0) {
        *ret = col_int(st, 0);
        db_reset(st);
    }
    return r;
}

/* The number of the last row that goes: the longest old end that is due, MAX rows at most. */
static int cut_point(struct db *db, int64_t before, unsigned max, int64_t *ret)
{
    const struct audit_ends *ends = &db->audit;
    int64_t to = ends->cut_seq + max, first_kept = 0;
    if (to > ends->last_seq)
        to = ends->last_seq;
    int r = query_seq(db, ends->cut_seq, to, before, &first_kept);
    if (r < 0)
        return r;
    int64_t by_age = r > 0 ? first_kept - 1 : to;
    int64_t by_count = ends->last_seq - AUDIT_ROWS_MAX;
    if (by_count > to)
        by_count = to;
    *ret = by_age > by_count ? by_age : by_count;
    return 0;
}

static int cut_to(struct db *db, int64_t seq)
{
    struct audit_ends *ends = &db->audit;
    unsigned char hash[32] = {0};
    sqlite3_stmt *st;
    int r = db_prepare(db, ST_AUDIT_HASH, SQL_HASH, &st);
    if (r < 0)
        return r;
    bind_int(st, 1, seq);
    r = db_step(st);
    if (r < 0)
        return r;
    /* When somebody took that row away the hash is one before it, and the next row does not fit:
     * retention goes on, and the chain is still said to be broken. */
    if (r > 0)
        (void)col_blob32(st, 0, hash);
    db_reset(st);
    r = db_prepare(db, ST_AUDIT_CUT, SQL_CUT, &st);
    if (r < 0)
        return r;
    bind_int(st, 1, seq);
    r = db_run(db, st);
    if (r == 0)
        r = db_prepare(db, ST_AUDIT_RUNS_CUT, SQL_RUNS_CUT, &st);
    if (r < 0)
        return r;
    bind_int(st, 1, seq + 1);
    r = db_run(db, st);
    if (r < 0)
        return r;
    ends->cut_seq = seq;
    memcpy(ends->cut_hash, hash, sizeof hash);
    ends->is_changed = true;
    return 0;
}

int audit_retain(struct db *db, int64_t before_wall_ms, unsigned max_rows)
{
    int64_t seq = 0;
    int r = audit_load_ends(db);
    if (r == 0)
        r = cut_point(db, before_wall_ms, max_rows, &seq);
    if (r < 0 || seq <= db->audit.cut_seq)
        return r;
    int n = (int)(seq - db->audit.cut_seq);
    r = db_write_begin(db);
    if (r == 0)
        r = cut_to(db, seq);
    return r < 0 ? r : n;
}
