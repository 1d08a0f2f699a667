#include "store_unit.h"

#include "base/clock.h"
#include "store/audit.h"
#include "store/blocked.h"
#include "store/records.h"

#define DAY_MS INT64_C(86400000)

/* ---- Documents ---------------------------------------------------------------------------------
 */

static void put(struct db *db, enum record_kind kind, const char *id, const char *session_id,
                const char *state, const char *text, int64_t ended_at)
{
    char ended[CLOCK_TEXT_MAX];
    clock_text(ended_at, ended);
    json_t *doc = json_pack("{s:s, s:s, s:i}", "id", id, "state", state, "rev", 1);
    if (ended_at)
        json_object_set_new(doc, "ended_at", json_string(ended));
    struct record r = {.kind = kind,
                       .id = id,
                       .session_id = session_id,
                       .state = state,
                       .tier = kind == RECORD_SESSION ? "walled" : NULL,
                       .text = text,
                       .doc = doc};
    assert_int_equal(record_put(db, &r), 0);
    json_decref(doc);
}

/* The ids of a page, "a b c" and + when there are more. */
static const char *page(struct db *db, struct record_query q)
{
    static char text[2048];
    json_t *items = NULL, *doc;
    bool more;
    size_t i;
    assert_int_equal(record_list(db, &q, &items, &more), 0);
    text[0] = '\0';
    json_array_foreach(items, i, doc)
    {
        if (i > 0)
            strcat(text, " ");
        strcat(text, json_string_value(json_object_get(doc, "id")));
    }
    if (more)
        strcat(text, "+");
    json_decref(items);
    return text;
}

static bool there(struct db *db, enum record_kind kind, const char *id)
{
    json_t *doc = NULL;
    int r = record_get(db, kind, id, &doc);
    json_decref(doc);
    assert_true(r == 0 || r == -ENOENT);
    return r == 0;
}

static void documents_and_lists(void **state)
{
    struct db *db = ((struct place *)*state)->db;
    put(db, RECORD_SESSION, "ses_1", NULL, "ready", "My App", 0);
    put(db, RECORD_SESSION, "ses_2", NULL, "ended", "other", 5);
    put(db, RECORD_SESSION, "ses_3", NULL, "ended", "50% app", 5);
    for (int i = 1; i <= 5; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "cmd_%d", i);
        put(db, RECORD_COMMAND, id, i % 2 ? "ses_1" : "ses_2", i == 5 ? "running" : "exited",
            i == 3 ? "make 'all'" : "true", 0);
    }
    assert_string_equal(page(db, (struct record_query){.kind = RECORD_SESSION}),
                        "ses_3 ses_2 ses_1");
    assert_string_equal(page(db, (struct record_query){.kind = RECORD_SESSION, .state = "ended"}),
                        "ses_3 ses_2");
    assert_string_equal(page(db, (struct record_query){.kind = RECORD_SESSION, .q = "APP"}),
                        "ses_3 ses_1");
    /* Text, not a pattern. */
    assert_string_equal(page(db, (struct record_query){.kind = RECORD_SESSION, .q = "0%"}),
                        "ses_3");
    assert_string_equal(page(db, (struct record_query){.kind = RECORD_SESSION, .q = "_"}), "");
    assert_string_equal(page(db, (struct record_query){.kind = RECORD_SESSION, .q = "' OR 1"}), "");
    assert_string_equal(page(db, (struct record_query){.kind = RECORD_SESSION, .tier = "open"}),
                        "");
    struct record_query q = {.kind = RECORD_COMMAND, .limit = 2};
    assert_string_equal(page(db, q), "cmd_5 cmd_4+");
    q.before_id = "cmd_4";
    assert_string_equal(page(db, q), "cmd_3 cmd_2+");
    q.before_id = "cmd_2";
    assert_string_equal(page(db, q), "cmd_1");
    q = (struct record_query){.kind = RECORD_COMMAND, .session_id = "ses_1"};
    assert_string_equal(page(db, q), "cmd_5 cmd_3 cmd_1");
    q.state = "exited";
    assert_string_equal(page(db, q), "cmd_3 cmd_1");
    q.q = "'ALL'";
    assert_string_equal(page(db, q), "cmd_3");
    /* Put anew. */
    put(db, RECORD_COMMAND, "cmd_5", "ses_1", "exited", "true", 7);
    assert_string_equal(page(db, (struct record_query){.kind = RECORD_COMMAND, .state = "running"}),
                        "");
    /* A command of no session is none. */
    json_t *doc = json_object();
    struct record orphan = {.kind = RECORD_COMMAND,
                            .id = "cmd_9",
                            .session_id = "ses_9",
                            .state = "exited",
                            .text = "",
                            .doc = doc};
    assert_int_equal(record_put(db, &orphan), -EEXIST);
    json_decref(doc);
    assert_int_equal(db_commit(db), 0);
}

static size_t blocked(struct db *db, const char *session_id, const char *command_id)
{
    struct blocked_query q = {.session_id = session_id, .command_id = command_id};
    char next[BLOCKED_CURSOR];
    json_t *items = NULL;
    assert_int_equal(blocked_list(db, &q, &items, next), 0);
    size_t n = json_array_size(items);
    json_decref(items);
    return n;
}

static void deleting(void **state)
{
    struct db *db = ((struct place *)*state)->db;
    struct blocked_row row = {.session_id = "ses_1", .host = "h.test", .reason = "not_listed"};
    put(db, RECORD_SESSION, "ses_1", NULL, "ended", "", 5);
    put(db, RECORD_COMMAND, "cmd_1", "ses_1", "exited", "", 5);
    put(db, RECORD_COMMAND, "cmd_2", "ses_1", "exited", "", 5);
    assert_int_equal(blocked_count(db, &row, NULL), 0);
    row.command_id = "cmd_1";
    assert_int_equal(blocked_count(db, &row, NULL), 0);
    row.command_id = "cmd_2";
    assert_int_equal(blocked_count(db, &row, NULL), 0);
    assert_int_equal(record_delete(db, RECORD_COMMAND, "cmd_1"), 0);
    assert_int_equal(record_delete(db, RECORD_COMMAND, "cmd_1"), -ENOENT);
    assert_int_equal(blocked(db, "ses_1", "cmd_1"), 0);
    assert_int_equal(blocked(db, "ses_1", "cmd_2"), 1);
    assert_true(there(db, RECORD_COMMAND, "cmd_2"));
    assert_int_equal(record_delete(db, RECORD_SESSION, "ses_1"), 0);
    assert_false(there(db, RECORD_COMMAND, "cmd_2"));
    assert_int_equal(blocked(db, NULL, NULL), 0);
    assert_int_equal(record_delete(db, RECORD_SESSION, "ses_1"), -ENOENT);
    assert_int_equal(db_commit(db), 0);
}

/* ---- Retention ---------------------------------------------------------------------------------
 */

/* An id of a time, as id_new makes them. */
static const char *id_at(const char *prefix, int64_t ms, int which)
{
    static const char DIGITS[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    static char ids[8][ID_MAX];
    char *id = ids[which];
    memset(id, 'A', ID_MAX - 1);
    id[ID_MAX - 1] = '\0';
    memcpy(id, prefix, 3);
    id[3] = '_';
    for (int i = 13; i >= 4; i--, ms >>= 5)
        id[i] = DIGITS[ms & 31];
    assert_true(id_is(id, prefix));
    return id;
}

static void what_ended_long_ago_goes(void **state)
{
    struct db *db = ((struct place *)*state)->db;
    int64_t now = clock_wall_ms(), before = now - 90 * DAY_MS;
    const char *old = id_at("ses", now - 200 * DAY_MS, 0),
               *just = id_at("ses", now - 199 * DAY_MS, 1),
               *alive = id_at("ses", now - 198 * DAY_MS, 2),
               *refused = id_at("ses", now - 197 * DAY_MS, 3);
    put(db, RECORD_SESSION, old, NULL, "ended", "", before - 1);
    put(db, RECORD_SESSION, just, NULL, "ended", "", now); /* as old, and just ended */
    put(db, RECORD_SESSION, alive, NULL, "ready", "", 0);
    put(db, RECORD_SESSION, refused, NULL, "refused", "", 0);
    const char *c_old = id_at("cmd", now - 200 * DAY_MS, 4),
               *c_just = id_at("cmd", now - 199 * DAY_MS, 5),
               *c_past = id_at("cmd", now - 198 * DAY_MS, 6),
               *c_alive = id_at("cmd", now - 197 * DAY_MS, 7);
    put(db, RECORD_COMMAND, c_old, old, "exited", "", before - 1);
    put(db, RECORD_COMMAND, c_just, just, "exited", "", now);
    put(db, RECORD_COMMAND, c_past, alive, "lost", "", before - 1);
    put(db, RECORD_COMMAND, c_alive, alive, "running", "", 0);
    struct blocked_row row = {.session_id = old, .host = "h.test", .reason = "not_listed"};
    assert_int_equal(blocked_count(db, &row, NULL), 0);
    assert_int_equal(record_retain(db, before, 100), 4);
    assert_false(there(db, RECORD_SESSION, old));
    assert_false(there(db, RECORD_SESSION, refused));
    assert_false(there(db, RECORD_COMMAND, c_old));
    assert_false(there(db, RECORD_COMMAND, c_past));
    assert_true(there(db, RECORD_SESSION, just) && there(db, RECORD_COMMAND, c_just));
    assert_true(there(db, RECORD_SESSION, alive) && there(db, RECORD_COMMAND, c_alive));
    assert_int_equal(blocked(db, NULL, NULL), 0);
    assert_int_equal(record_retain(db, before, 100), 0);
    assert_int_equal(db_commit(db), 0);
}

static void old_ones_go_in_slices(void **state)
{
    struct db *db = ((struct place *)*state)->db;
    char id[ID_MAX];
    for (int i = 0; i < 25; i++) {
        id_new("ses", id);
        put(db, RECORD_SESSION, id, NULL, "ended", "", 1000);
    }
    int64_t later = clock_wall_ms() + 1000;
    assert_int_equal(record_retain(db, later, 10), 10);
    assert_int_equal(record_retain(db, later, 10), 10);
    assert_int_equal(record_retain(db, later, 10), 5);
    assert_int_equal(db_commit(db), 0);
}

/* ---- What a dead daemon left -------------------------------------------------------------------
 */

static void told(const char *id, void *arg)
{
    strcat(strcat(arg, id), " ");
}

static void alive_becomes_lost(void **state)
{
    struct place *p = *state;
    put(p->db, RECORD_SESSION, "ses_1", NULL, "ready", "app", 0);
    put(p->db, RECORD_SESSION, "ses_2", NULL, "ended", "", 5);
    put(p->db, RECORD_SESSION, "ses_3", NULL, "verifying", "", 0);
    put(p->db, RECORD_COMMAND, "cmd_1", "ses_1", "running", "make", 0);
    put(p->db, RECORD_COMMAND, "cmd_2", "ses_1", "queued", "", 0);
    put(p->db, RECORD_COMMAND, "cmd_3", "ses_1", "exited", "", 5);
    char ids[64] = "";
    assert_int_equal(record_mark_lost(p->db, told, ids), 4);
    assert_int_equal(db_commit(p->db), 0);
    assert_string_equal(ids, "cmd_1 cmd_2 ");
    assert_string_equal(page(p->db, (struct record_query){.kind = RECORD_COMMAND, .state = "lost"}),
                        "cmd_2 cmd_1");
    json_t *doc = NULL;
    const char *reason, *ended;
    int rev;
    int64_t at;
    assert_int_equal(record_get(p->db, RECORD_SESSION, "ses_1", &doc), 0);
    assert_int_equal(
        json_unpack(doc, "{s:s, s:s, s:i}", "end_reason", &reason, "ended_at", &ended, "rev", &rev),
        0);
    assert_string_equal(reason, "daemon_died");
    assert_int_equal(clock_parse(ended, &at), 0);
    assert_true(clock_wall_ms() - at < 60000);
    assert_int_equal(rev, 2);
    json_decref(doc);
    json_t *rows = NULL;
    int64_t next;
    assert_int_equal(audit_list(p->db, &(struct audit_query){.outcome = "error"}, &rows, &next), 0);
    assert_int_equal(json_array_size(rows), 4);
    json_decref(rows);
    /* Once. */
    assert_int_equal(record_mark_lost(p->db, told, ids), 0);
}

/* ---- First answers -----------------------------------------------------------------------------
 */

static int get(struct db *db, const char *token, const char *route, const char *key,
               const char *hash)
{
    int status = 0;
    char *body = NULL;
    int r = idempotency_get(db, token, route, key, hash, &status, &body);
    if (r == 1) {
        assert_int_equal(status, 201);
        assert_string_equal(body, "{\"id\":1}");
    }
    free(body);
    return r;
}

static void first_answers(void **state)
{
    struct place *p = *state;
    assert_int_equal(get(p->db, "tok_1", "/v1/sites", "k", "h"), 0);
    assert_int_equal(idempotency_put(p->db, "tok_1", "/v1/sites", "k", "h", 201, "{\"id\":1}"), 0);
    assert_int_equal(get(p->db, "tok_1", "/v1/sites", "k", "h"), 1);
    assert_int_equal(get(p->db, "tok_1", "/v1/sites", "k", "other"), -EEXIST);
    assert_int_equal(get(p->db, "tok_2", "/v1/sites", "k", "h"), 0);
    assert_int_equal(get(p->db, "tok_1", "/v1/sessions", "k", "h"), 0);
    assert_int_equal(get(p->db, "tok_1", "/v1/sites", "K", "h"), 0);
    place_close(p);
    place_open(p);
    assert_int_equal(get(p->db, "tok_1", "/v1/sites", "k", "h"), 1);
    /* A day later it is as if it had not been. */
    place_close(p);
    sql_outside(p->path, "UPDATE idempotency SET created_at = created_at - 86400000");
    place_open(p);
    assert_int_equal(get(p->db, "tok_1", "/v1/sites", "k", "h"), 0);
    assert_int_equal(get(p->db, "tok_1", "/v1/sites", "k", "other"), 0);
    assert_int_equal(idempotency_put(p->db, "tok_1", "/v1/sites", "k2", "h", 201, "x"), 0);
    place_close(p);
    sql_outside(p->path, "CREATE TABLE proof (n CHECK (n = 1));"
                         "INSERT INTO proof SELECT count(*) FROM idempotency");
    place_open(p);
}

static void first_answers_are_bounded(void **state)
{
    struct place *p = *state;
    for (int i = 0; i < IDEMPOTENCY_MAX + 50; i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(idempotency_put(p->db, "tok_1", "/r", key, "h", 201, "{\"id\":1}"), 0);
        if (i % 100 == 99)
            assert_int_equal(db_commit(p->db), 0);
    }
    char last[16];
    (void)snprintf(last, sizeof last, "k%d", IDEMPOTENCY_MAX + 49);
    assert_int_equal(get(p->db, "tok_1", "/r", last, "h"), 1);
    place_close(p);
    sql_outside(p->path, "CREATE TABLE proof (n CHECK (n = 10000));"
                         "INSERT INTO proof SELECT count(*) FROM idempotency");
    place_open(p);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, db_setup, db_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(documents_and_lists),       TEST(deleting),           TEST(what_ended_long_ago_goes),
        TEST(old_ones_go_in_slices),     TEST(alive_becomes_lost), TEST(first_answers),
        TEST(first_answers_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
