#include "store_unit.h"

#include "schema_sql.h"
#include "store/audit.h"
#include "store/blocked.h"
#include "store/records.h"
#include <dirent.h>

/* A database as the first schema left it, opened with the schema of today. */

#define SECRET "hunter2-8f1c0d"

static const struct embedded *schema_up_to(int n)
{
    static struct embedded some[16];
    int k = 0;
    for (const struct embedded *e = schema_sql; e->name; e++)
        if (atoi(e->name) <= n)
            some[k++] = *e;
    some[k] = (struct embedded){0};
    return some;
}

static int latest(void)
{
    int n = 0;
    for (const struct embedded *e = schema_sql; e->name; e++)
        n = atoi(e->name) > n ? atoi(e->name) : n;
    return n;
}

static bool file_has(const char *path, const char *what)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    static char bytes[4 << 20];
    size_t n = fread(bytes, 1, sizeof bytes, f);
    assert_true(n < sizeof bytes);
    (void)fclose(f);
    return memmem(bytes, n, what, strlen(what)) != NULL;
}

static bool folder_has(const char *dir, const char *what)
{
    bool found = false;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char path[512];
        (void)snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (e->d_type == DT_REG && file_has(path, what))
            found = true;
    }
    closedir(d);
    return found;
}

static void open_old(struct place *p, int version)
{
    if (db_open_schema(p->path, schema_up_to(version), &p->db, &p->err) < 0)
        fail_msg("%s", p->err.detail);
    assert_int_equal(db_version(p->db), version);
}

static void put(struct db *db, enum record_kind kind, const char *id, const char *session_id,
                json_t *env)
{
    json_t *doc = json_pack("{s:s, s:o, s:I, s:s}", "id", id, "env", env, "rev",
                            (json_int_t)9007199254740991, "display", "a \"b\" \\ \n \xc3\xa9");
    struct record r = {.kind = kind,
                       .id = id,
                       .session_id = session_id,
                       .state = kind == RECORD_SESSION ? "ended" : "exited",
                       .tier = "walled",
                       .text = "text",
                       .doc = doc};
    assert_int_equal(record_put(db, &r), 0);
    json_decref(doc);
}

static void has_names(struct db *db, enum record_kind kind, const char *id, const char *names)
{
    json_t *doc = NULL;
    assert_int_equal(record_get(db, kind, id, &doc), 0);
    char *text = json_dumps(json_object_get(doc, "env"), JSON_COMPACT);
    assert_string_equal(text, names);
    assert_int_equal(json_integer_value(json_object_get(doc, "rev")), 9007199254740991);
    assert_string_equal(json_string_value(json_object_get(doc, "display")),
                        "a \"b\" \\ \n \xc3\xa9");
    assert_int_equal(json_object_size(doc), 4);
    free(text);
    json_decref(doc);
}

static void values_of_variables_are_wiped(void **state)
{
    (void)state;
    struct place p;
    place_make(&p);
    open_old(&p, 1);
    put(p.db, RECORD_SESSION, "ses_1", NULL,
        json_pack("{s:s, s:s}", "ZED", SECRET, "ALPHA", SECRET));
    put(p.db, RECORD_SESSION, "ses_2", NULL, json_object());
    put(p.db, RECORD_COMMAND, "cmd_1", "ses_1",
        json_pack("{s:s, s:n, s:s}", "TOKEN", SECRET, "GONE", "a.b\"c", SECRET));
    put(p.db, RECORD_COMMAND, "cmd_2", "ses_1", json_array()); /* as if written later */
    assert_int_equal(idempotency_put(p.db, "tok_1", "/v1/sessions", "key", "hash", 201, SECRET), 0);
    assert_int_equal(db_commit(p.db), 0);
    place_close(&p);
    assert_true(folder_has(p.dir, SECRET)); /* the control */

    place_open(&p);
    assert_int_equal(db_version(p.db), latest());
    assert_false(folder_has(p.dir, SECRET)); /* while it is open, its WAL too */
    has_names(p.db, RECORD_SESSION, "ses_1", "[\"ALPHA\",\"ZED\"]");
    has_names(p.db, RECORD_SESSION, "ses_2", "[]");
    has_names(p.db, RECORD_COMMAND, "cmd_1", "[\"GONE\",\"TOKEN\",\"a.b\\\"c\"]");
    has_names(p.db, RECORD_COMMAND, "cmd_2", "[]");
    int status;
    char *body;
    assert_int_equal(idempotency_get(p.db, "tok_1", "/v1/sessions", "key", "hash", &status, &body),
                     0);
    place_close(&p);
    assert_false(folder_has(p.dir, SECRET));
    sql_outside(p.path, "CREATE TABLE proof (n CHECK (n = 0));"
                        "INSERT INTO proof SELECT count(*) FROM meta WHERE key = 'rewrite';"
                        "INSERT INTO proof SELECT freelist_count FROM pragma_freelist_count");
    place_done(&p);
}

/* Killed between the migration and the wiping: the next start wipes. */
static void wiping_is_made_up_for(void **state)
{
    (void)state;
    struct place p;
    place_make(&p);
    place_open(&p);
    place_close(&p);
    /* A row that went left its bytes behind. */
    sql_outside(p.path, "PRAGMA secure_delete = OFF;"
                        "INSERT INTO sessions VALUES ('ses_1', 'ended', NULL, '', '" SECRET "');"
                        "DELETE FROM sessions; INSERT INTO meta VALUES ('rewrite', 1)");
    assert_true(folder_has(p.dir, SECRET));
    place_open(&p);
    assert_false(folder_has(p.dir, SECRET));
    place_done(&p);
}

/* Rows of the first schema are found by target, outcome and time, and the chain holds. */
static void audit_of_before(void **state)
{
    (void)state;
    struct place p;
    place_make(&p);
    open_old(&p, 2);
    place_close(&p);
    sql_outside(p.path,
                "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40)"
                " INSERT INTO audit SELECT i, 'aud_' || i, 1000000 + i * 5 - 500 * (i > 20) -"
                " 8 * (i = 10), 0, NULL, NULL, 'a', NULL, NULL, 't' || (i % 4), NULL, NULL,"
                " 1 + (i % 10 = 0), NULL, zeroblob(32), zeroblob(32) FROM n;"
                "UPDATE audit_ends SET last_seq = 40, latest_at = 1000100");
    place_open(&p);
    json_t *items = NULL;
    int64_t next;
    for (int i = 0; i < 4; i++) {
        char target[8];
        (void)snprintf(target, sizeof target, "t%d", i);
        struct audit_query q = {.target = target};
        assert_int_equal(audit_list(p.db, &q, &items, &next), 0);
        assert_int_equal(json_array_size(items), 10);
        json_decref(items);
    }
    struct audit_query error = {.outcome = "error"}, ok = {.outcome = "ok"},
                       some = {.since = 1000055, .until = 1000060};
    assert_int_equal(audit_list(p.db, &error, &items, &next), 0);
    assert_int_equal(json_array_size(items), 4);
    json_decref(items);
    assert_int_equal(audit_list(p.db, &ok, &items, &next), 0);
    assert_int_equal(json_array_size(items), 36);
    json_decref(items);
    assert_int_equal(audit_list(p.db, &some, &items, &next), 0);
    assert_int_equal(json_array_size(items), 2);
    json_decref(items);
    /* What comes now follows on. */
    assert_int_equal(audit_add(p.db, &(struct audit_entry){.action = "b", .target = "t1"}), 0);
    assert_int_equal(db_commit(p.db), 0);
    place_close(&p);
    sql_outside(p.path, "CREATE TABLE proof (n CHECK (n IN (1, 21)));"
                        "INSERT INTO proof SELECT first_seq FROM audit_runs;"
                        "CREATE TABLE two (n CHECK (n = 2));"
                        "INSERT INTO two SELECT count(*) FROM audit_runs");
    place_done(&p);
}

/* Rows of refused connections keep their counts and their order, and pages of them work. */
static void blocked_of_before(void **state)
{
    (void)state;
    struct place p;
    char next[BLOCKED_CURSOR], last[BLOCKED_CURSOR];
    json_t *items = NULL;
    place_make(&p);
    open_old(&p, 3);
    place_close(&p);
    sql_outside(p.path, "INSERT INTO blocked VALUES"
                        " ('ses_1', '', 'new.test', 443, 'not_listed', 3, 5, 9),"
                        " ('ses_1', '', 'old.test', 443, 'not_listed', 4, 5, 6),"
                        " ('ses_1', 'cmd_1', 'old.test', 443, 'not_listed', 2, 5, 6)");
    place_open(&p);
    struct blocked_query q = {.limit = 1};
    assert_int_equal(blocked_list(p.db, &q, &items, next), 0);
    assert_string_equal(json_string_value(json_object_get(json_array_get(items, 0), "host")),
                        "new.test");
    json_decref(items);
    q.cursor = next;
    assert_int_equal(blocked_list(p.db, &q, &items, last), 0);
    assert_string_equal(last, "");
    assert_int_equal(json_integer_value(json_object_get(json_array_get(items, 0), "count")), 4);
    json_decref(items);
    struct blocked_row row = {"ses_1", NULL, "old.test", "not_listed", 443, 0};
    int64_t n = 0;
    assert_int_equal(blocked_count(p.db, &row, &n), 0);
    assert_int_equal(n, 5);
    assert_int_equal(db_commit(p.db), 0);
    place_done(&p);
}

static void newer_is_refused(void **state)
{
    (void)state;
    struct place p;
    place_make(&p);
    place_open(&p);
    place_close(&p);
    struct err err = {0};
    assert_int_equal(db_open_schema(p.path, schema_up_to(latest() - 1), &p.db, &err), -EPROTO);
    assert_string_equal(err.code, "store_unusable");
    assert_non_null(strstr(err.detail, "newer version of Cordon"));
    assert_non_null(strstr(err.hint, "newer version"));
    assert_null(p.db);
    place_open(&p); /* untouched */
    assert_int_equal(db_version(p.db), latest());
    place_done(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_of_variables_are_wiped),
        cmocka_unit_test(wiping_is_made_up_for),
        cmocka_unit_test(audit_of_before),
        cmocka_unit_test(blocked_of_before),
        cmocka_unit_test(newer_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
