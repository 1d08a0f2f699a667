/* Runs in: daemon. Reads: token texts of clients. May block: no. */
#include "store/tokens.h"
#include "base/clock.h"
#include "base/fields.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/db_impl.h"
#include <errno.h>
#include <string.h>

#define PREFIX         "cordon_"
#define SECRET_BYTES   32
#define TOUCH_EVERY_MS 60000

const struct scope_name SCOPE_ROWS[] = {
    {SCOPE_READ, "read"},
    {SCOPE_EXEC, "exec"},
    {SCOPE_ASK_CREATE, "ask:create"},
    {SCOPE_ASK_DECIDE, "ask:decide"},
    {SCOPE_SESSIONS, "sessions"},
    {SCOPE_SETTINGS, "settings"},
    {SCOPE_CREDENTIALS, "credentials"},
    {SCOPE_ADMIN, "admin"},
    {0, NULL},
};

#define COLUMNS "id, kind, name, scopes, session_id, created_at, last_used_at, expires_at, hash"
static const char SQL_PUT[] =
    "INSERT INTO tokens (" COLUMNS ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
static const char SQL_FIND[] = "SELECT " COLUMNS " FROM tokens WHERE hash = ?1";
static const char SQL_GET[] = "SELECT " COLUMNS " FROM tokens WHERE id = ?1";
static const char SQL_DELETE[] = "DELETE FROM tokens WHERE id = ?1";
static const char SQL_COUNT[] = "SELECT count(*) FROM tokens WHERE kind = ?1";
static const char SQL_OLDEST[] =
    "DELETE FROM tokens WHERE id IN (SELECT id FROM tokens WHERE kind = ?1"
    " ORDER BY max(created_at, last_used_at), id LIMIT max(0, ?2))";
static const char SQL_EXPIRED[] =
    "DELETE FROM tokens WHERE expires_at <> 0 AND expires_at <= ?1 AND kind = ?2";
/* Each request uses a token: a write a minute is enough to say when. */
static const char SQL_TOUCH[] =
    "UPDATE tokens SET last_used_at = ?2,"
    " expires_at = CASE WHEN ?3 > 0 THEN ?3 ELSE expires_at END WHERE id = ?1";
static const char SQL_LIST[] = "SELECT " COLUMNS " FROM tokens WHERE kind = ?1"
                               " AND (expires_at = 0 OR expires_at > ?2) ORDER BY id DESC";

static void row_read(sqlite3_stmt *st, struct token *ret)
{
    memset(ret, 0, sizeof *ret);
    col_copy(st, 0, ret->id, sizeof ret->id);
    ret->kind = col_int(st, 1) == TOKEN_BROWSER ? TOKEN_BROWSER : TOKEN_API;
    col_copy(st, 2, ret->name, sizeof ret->name);
    ret->scopes = (unsigned)col_int(st, 3) & SCOPES_ALL;
    col_copy(st, 4, ret->session_id, sizeof ret->session_id);
    ret->created_at = col_int(st, 5);
    ret->last_used_at = col_int(st, 6);
    ret->expires_at = col_int(st, 7);
    /* Whatever the file says: an agent's token never holds more. */
    if (ret->session_id[0])
        ret->scopes &= SCOPES_AGENT;
}

static bool is_expired(const struct token *t)
{
    return t->expires_at != 0 && t->expires_at <= clock_wall_ms();
}

static int run_kind(struct db *db, enum db_stmt which, const char *sql, int64_t a, int64_t b)
{
    sqlite3_stmt *st;
    int r = db_prepare_write(db, which, sql, &st);
    if (r < 0)
        return r;
    bind_int(st, 1, a);
    bind_int(st, 2, b);
    return db_run(db, st);
}

static int64_t count_kind(struct db *db, enum token_kind kind)
{
    sqlite3_stmt *st;
    int r = db_prepare(db, ST_TOKEN_COUNT, SQL_COUNT, &st);
    if (r < 0)
        return r;
    bind_int(st, 1, (int64_t)kind);
    r = db_step(st);
    int64_t n = r > 0 ? col_int(st, 0) : r;
    db_reset(st);
    return n;
}

/* Room for one more: expired ones go first; then the oldest browser goes, an API token does not. */
static int make_room(struct db *db, enum token_kind kind)
{
    int r = run_kind(db, ST_TOKEN_EXPIRED, SQL_EXPIRED, clock_wall_ms(), (int64_t)kind);
    int64_t n = r < 0 ? r : count_kind(db, kind);
    if (n < 0)
        return (int)n;
    if (kind == TOKEN_API)
        return n < TOKENS_MAX ? 0 : -E2BIG;
    return run_kind(db, ST_TOKEN_OLDEST, SQL_OLDEST, (int64_t)kind, n + 1 - BROWSERS_MAX);
}

static int insert(struct db *db, const struct token *t, const unsigned char hash[static 32])
{
    sqlite3_stmt *st;
    int r = db_prepare_write(db, ST_TOKEN_PUT, SQL_PUT, &st);
    if (r < 0)
        return r;
    bind_text(st, 1, t->id);
    bind_int(st, 2, (int64_t)t->kind);
    bind_text(st, 3, t->name);
    bind_int(st, 4, t->scopes);
    bind_text(st, 5, t->session_id);
    bind_int(st, 6, t->created_at);
    bind_int(st, 7, t->last_used_at);
    bind_int(st, 8, t->expires_at);
    bind_blob(st, 9, hash, 32);
    return db_run(db, st);
}

int token_new(struct db *db, struct token *t, char ret_text[static TOKEN_TEXT_MAX])
{
    if (t->session_id[0] && (t->scopes & ~SCOPES_AGENT) != 0)
        return -EPERM;
    unsigned char secret[SECRET_BYTES], hash[32];
    char text[TOKEN_TEXT_MAX] = PREFIX;
    int r = make_room(db, t->kind);
    if (r == 0)
        r = random_bytes(secret, sizeof secret);
    if (r < 0)
        return r;
    base64url(secret, sizeof secret, text + strlen(PREFIX));
    hash_sha256(text, strlen(text), hash);
    id_new(t->kind == TOKEN_BROWSER ? "brw" : "tok", t->id);
    t->created_at = clock_wall_ms();
    t->last_used_at = 0;
    r = insert(db, t, hash);
    if (r == 0)
        memcpy(ret_text, text, sizeof text);
    explicit_bzero(secret, sizeof secret);
    explicit_bzero(text, sizeof text);
    return r;
}

int token_find(struct db *db, const char *text, struct token *ret)
{
    size_t n = strlen(text);
    if (n != TOKEN_TEXT_MAX - 2 || !str_starts(text, PREFIX))
        return -ENOENT;
    /* The index is searched by a hash: what its timing tells is about the hash, not the secret. */
    unsigned char hash[32], stored[32];
    hash_sha256(text, n, hash);
    sqlite3_stmt *st;
    int r = db_prepare(db, ST_TOKEN_FIND, SQL_FIND, &st);
    if (r < 0)
        return r;
    bind_blob(st, 1, hash, sizeof hash);
    r = db_step(st);
    if (r <= 0)
        return r < 0 ? r : -ENOENT;
    struct token t;
    row_read(st, &t);
    bool same = col_blob32(st, 8, stored) && hash_equal(hash, stored, sizeof hash);
    db_reset(st);
    if (!same || is_expired(&t))
        return -ENOENT;
    *ret = t;
    return 0;
}

int token_get(struct db *db, const char *id, struct token *ret)
{
    sqlite3_stmt *st;
    int r = db_prepare(db, ST_TOKEN_GET, SQL_GET, &st);
    if (r < 0)
        return r;
    bind_text(st, 1, id);
    r = db_step(st);
    if (r <= 0)
        return r < 0 ? r : -ENOENT;
    struct token t;
    row_read(st, &t);
    db_reset(st);
    if (is_expired(&t))
        return -ENOENT;
    *ret = t;
    return 0;
}

int token_delete(struct db *db, const char *id)
{
    int r = db_run_by_id(db, ST_TOKEN_DELETE, SQL_DELETE, id);
    return r < 0 ? r : r == 0 ? -ENOENT : 0;
}

int token_touch(struct db *db, const char *id, int64_t expires_at)
{
    struct token t;
    int64_t now = clock_wall_ms();
    int r = token_get(db, id, &t);
    if (r < 0)
        return r;
    if (now >= t.last_used_at && now - t.last_used_at < TOUCH_EVERY_MS)
        return 0;
    sqlite3_stmt *st;
    r = db_prepare_write(db, ST_TOKEN_TOUCH, SQL_TOUCH, &st);
    if (r < 0)
        return r;
    bind_text(st, 1, id);
    bind_int(st, 2, now);
    bind_int(st, 3, expires_at);
    return db_run(db, st);
}

/* ---- As JSON -----------------------------------------------------------------------------------
 */

json_t *scopes_json(unsigned scopes)
{
    json_t *names = json_array();
    for (const struct scope_name *s = SCOPE_ROWS; names && s->name; s++)
        if (scopes & s->scope)
            (void)json_array_append_new(names, json_string(s->name));
    return names;
}

json_t *token_to_json(const struct token *t)
{
    if (t->kind == TOKEN_BROWSER)
        return json_pack("{s:s, s:o, s:o}", "id", t->id, "created_at", time_json(t->created_at),
                         "last_used_at",
                         time_json(t->last_used_at ? t->last_used_at : t->created_at));
    return json_pack("{s:s, s:s, s:o, s:s?, s:o, s:o, s:o}", "id", t->id, "name", t->name, "scopes",
                     scopes_json(t->scopes), "session_id", t->session_id[0] ? t->session_id : NULL,
                     "created_at", time_json(t->created_at), "last_used_at",
                     time_json(t->last_used_at), "expires_at", time_json(t->expires_at));
}

int tokens_list(struct db *db, enum token_kind kind, json_t **ret_items)
{
    sqlite3_stmt *st;
    int r = db_prepare(db, ST_TOKEN_LIST, SQL_LIST, &st);
    if (r < 0)
        return r;
    bind_int(st, 1, (int64_t)kind);
    bind_int(st, 2, clock_wall_ms());
    json_t *items = json_array();
    while (items && (r = db_step(st)) > 0) {
        struct token t;
        row_read(st, &t);
        if (json_array_append_new(items, token_to_json(&t)) < 0) {
            db_reset(st);
            r = -ENOMEM;
            break;
        }
    }
    if (!items || r < 0) {
        json_decref(items);
        return items ? r : -ENOMEM;
    }
    *ret_items = items;
    return 0;
}
