#include "store_unit.h"

#include "base/clock.h"
#include "store/blocked.h"
#include "store/traffic.h"

static void block(struct db *db, const char *session, const char *command, const char *host,
                  uint16_t port, const char *reason)
{
    struct blocked_row row = {session, command, host, reason, port, 0};
    assert_int_equal(blocked_count(db, &row, NULL), 0);
}

/* The hosts of a page, "a b c" and + when there are more; CURSOR is that of the next. */
static const char *page(struct db *db, struct blocked_query q, bool by_host,
                        char cursor[static BLOCKED_CURSOR])
{
    static char text[BLOCKED_MAX * 16];
    json_t *items = NULL, *item;
    size_t i;
    assert_int_equal((by_host ? blocked_by_host : blocked_list)(db, &q, &items, cursor), 0);
    text[0] = '\0';
    json_array_foreach(items, i, item)
    {
        if (i > 0)
            strcat(text, " ");
        strcat(text, json_string_value(json_object_get(item, "host")));
    }
    if (cursor[0])
        strcat(text, "+");
    json_decref(items);
    return text;
}

static size_t count_of(struct db *db, struct blocked_query q)
{
    char next[BLOCKED_CURSOR];
    json_t *items = NULL;
    q.limit = 10000;
    assert_int_equal(blocked_list(db, &q, &items, next), 0);
    size_t n = json_array_size(items);
    assert_string_equal(next, "");
    json_decref(items);
    return n;
}

/* Another millisecond, so that what follows is the latest. */
static void tick(void)
{
    for (int64_t at = clock_wall_ms(); clock_wall_ms() == at;)
        ;
}

static void is_counted(void **state)
{
    struct db *db = ((struct place *)*state)->db;
    struct blocked_row row = {"ses_1", NULL, "h.test", "not_listed", 443, 0};
    char next[BLOCKED_CURSOR];
    json_t *items = NULL, *item;
    size_t i;
    int64_t n = 0, total = 0;
    for (int k = 1; k <= 3; k++) {
        assert_int_equal(blocked_count(db, &row, &n), 0);
        assert_int_equal(n, k);
    }
    block(db, "ses_1", NULL, "h.test", 443, "denied");
    block(db, "ses_1", NULL, "h.test", 80, "not_listed");
    block(db, "ses_1", "cmd_1", "h.test", 443, "not_listed");
    struct blocked_query q = {.session_id = "ses_1"};
    assert_int_equal(blocked_list(db, &q, &items, next), 0);
    assert_int_equal(json_array_size(items), 3);
    json_array_foreach(items, i, item)
    {
        total += json_integer_value(json_object_get(item, "count"));
        assert_null(json_object_get(item, "command_id"));
    }
    assert_int_equal(total, 5);
    json_decref(items);
    q.command_id = "cmd_1";
    assert_int_equal(blocked_list(db, &q, &items, next), 0);
    assert_int_equal(json_array_size(items), 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(items, 0), "command_id")),
                        "cmd_1");
    json_decref(items);
    assert_int_equal(count_of(db, (struct blocked_query){.session_id = "ses_2"}), 0);
    assert_int_equal(db_commit(db), 0);
}

/* However many names are tried. */
static void is_bounded(void **state)
{
    struct db *db = ((struct place *)*state)->db;
    for (int i = 0; i < BLOCKED_MAX + 200; i++) {
        char host[32];
        (void)snprintf(host, sizeof host, "h%d.test", i);
        block(db, "ses_1", NULL, host, 443, "not_listed");
        if (i < 10) /* another session has its own */
            block(db, "ses_2", NULL, host, 443, "not_listed");
    }
    assert_int_equal(count_of(db, (struct blocked_query){.session_id = "ses_1"}), BLOCKED_MAX);
    assert_int_equal(count_of(db, (struct blocked_query){.session_id = "ses_2"}), 10);
    assert_int_equal(count_of(db, (struct blocked_query){0}), BLOCKED_MAX + 10);
    assert_int_equal(db_commit(db), 0);
}

static void has_pages(void **state)
{
    struct db *db = ((struct place *)*state)->db;
    char next[BLOCKED_CURSOR], again[BLOCKED_CURSOR], host[2] = "a";
    for (; host[0] <= 'e'; host[0]++) /* all within a millisecond or two */
        block(db, host[0] < 'c' ? "ses_1" : "ses_2", NULL, host, 443, "not_listed");
    tick();
    block(db, "ses_1", NULL, "b", 443, "not_listed"); /* the latest */
    block(db, "ses_1", "cmd_1", "never shown among wholes", 443, "not_listed");
    struct blocked_query q = {.limit = 2};
    assert_string_equal(page(db, q, false, next), "b e+");
    q.cursor = next;
    assert_string_equal(page(db, q, false, again), "d c+");
    q.cursor = again;
    assert_string_equal(page(db, q, false, next), "a");
    q = (struct blocked_query){.session_id = "ses_2", .limit = 3};
    assert_string_equal(page(db, q, false, next), "e d c"); /* full, and the last */
    q.limit = 2;
    assert_string_equal(page(db, q, false, next), "e d+");
    q.cursor = next;
    assert_string_equal(page(db, q, false, again), "c");
    static const char *const BAD[] = {
        "x",  "1",   "-",     "1-",
        "-1", "1-x", "1-1-1", "11111111111111111111111111111111111111111111111111-1"};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        json_t *items;
        q.cursor = BAD[i];
        assert_int_equal(blocked_list(db, &q, &items, again), -EINVAL);
        assert_int_equal(blocked_by_host(db, &q, &items, again), -EINVAL);
    }
    assert_int_equal(db_commit(db), 0);
}

static void by_host(void **state)
{
    struct db *db = ((struct place *)*state)->db;
    char next[BLOCKED_CURSOR], session[16];
    json_t *items = NULL;
    for (unsigned i = 0; i < BLOCKED_HOST_ITEMS + 5; i++) {
        (void)snprintf(session, sizeof session, "ses_%u", i);
        block(db, session, NULL, "many.test", 443, "not_listed");
        block(db, session, "cmd_1", "many.test", 443, "not_listed");
    }
    tick();
    block(db, "ses_1", NULL, "one.test", 443, "not_listed");
    block(db, "ses_1", NULL, "one.test", 80, "denied");
    tick();
    block(db, "ses_1", NULL, "last.test", 80, "denied");
    struct blocked_query q = {.limit = 2};
    assert_string_equal(page(db, q, true, next), "last.test one.test+");
    q.cursor = next;
    assert_int_equal(blocked_by_host(db, &q, &items, next), 0);
    assert_string_equal(next, "");
    const json_t *many = json_array_get(items, 0);
    assert_string_equal(json_string_value(json_object_get(many, "host")), "many.test");
    assert_int_equal(json_integer_value(json_object_get(many, "count")), BLOCKED_HOST_ITEMS + 5);
    assert_int_equal(json_array_size(json_object_get(many, "items")), BLOCKED_HOST_ITEMS);
    json_decref(items);
    assert_int_equal(db_commit(db), 0);
}

/* ---- Traffic ------------------------------------------------------------------------------------
 */

static int64_t member(const json_t *row, const char *name)
{
    return json_integer_value(json_object_get(row, name));
}

static void traffic_by_hour_and_host(void **state)
{
    struct place *p = *state;
    json_t *stats = NULL, *row;
    int64_t hour = clock_wall_ms() / 3600000 * 3600000;
    char sql[512], at[CLOCK_TEXT_MAX];
    place_close(p);
    (void)snprintf(sql, sizeof sql,
                   "INSERT INTO traffic VALUES (%lld, 'old.test', 443, 7, 8), (%lld, 'h.test', 443,"
                   " 10, 1), (%lld, '', 0, 100, 100)",
                   (long long)(hour - 169LL * 3600000), (long long)(hour - 2LL * 3600000),
                   (long long)(hour - 2LL * 3600000));
    sql_outside(p->path, sql);
    place_open(p);
    for (int i = 0; i < 3; i++)
        assert_int_equal(traffic_count(p->db, "h.test", 443, TRAFFIC_ALLOWED), 0);
    assert_int_equal(traffic_count(p->db, "h.test", 443, TRAFFIC_BLOCKED), 0);
    assert_int_equal(traffic_count(p->db, "h.test", 80, TRAFFIC_BLOCKED), 0);
    assert_int_equal(db_commit(p->db), 0);
    assert_int_equal(traffic_stats(p->db, &stats), 0);
    assert_int_equal(json_array_size(json_object_get(stats, "items")), 2); /* what is old went */
    row = json_array_get(json_object_get(stats, "items"), 0);
    assert_true(member(row, "allowed") == 110 && member(row, "blocked") == 101);
    row = json_array_get(json_object_get(stats, "items"), 1);
    assert_true(member(row, "allowed") == 3 && member(row, "blocked") == 2);
    clock_text(hour, at);
    assert_string_equal(json_string_value(json_object_get(row, "at")), at);
    assert_int_equal(json_array_size(json_object_get(stats, "hosts")), 2);
    row = json_array_get(json_object_get(stats, "hosts"), 0);
    assert_true(member(row, "port") == 443 && member(row, "allowed") == 13 &&
                member(row, "blocked") == 2);
    json_decref(stats);
}

static void traffic_is_bounded(void **state)
{
    struct place *p = *state;
    json_t *stats = NULL;
    char host[32];
    for (int i = 0; i < 1000; i++) {
        (void)snprintf(host, sizeof host, "h%d.test", i);
        assert_int_equal(traffic_count(p->db, host, 443, TRAFFIC_BLOCKED), 0);
    }
    /* Who is known by then is counted on. */
    assert_int_equal(traffic_count(p->db, "h0.test", 443, TRAFFIC_ALLOWED), 0);
    assert_int_equal(db_commit(p->db), 0);
    assert_int_equal(traffic_stats(p->db, &stats), 0);
    const json_t *hours = json_object_get(stats, "items"), *hosts = json_object_get(stats, "hosts");
    int64_t blocked = 0;
    for (size_t i = 0; i < json_array_size(hours); i++) /* the hour may have turned */
        blocked += member(json_array_get(hours, i), "blocked");
    assert_int_equal(blocked, 1000);
    assert_int_equal(json_array_size(hosts), TRAFFIC_SHOWN);
    assert_string_equal(json_string_value(json_object_get(json_array_get(hosts, 0), "host")),
                        "h0.test");
    json_decref(stats);
    place_close(p);
    sql_outside(p->path, "CREATE TABLE proof (n CHECK (n <= 2 * 257));"
                         "INSERT INTO proof SELECT count(*) FROM traffic");
    place_open(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(is_counted, db_setup, db_teardown),
        cmocka_unit_test_setup_teardown(is_bounded, db_setup, db_teardown),
        cmocka_unit_test_setup_teardown(has_pages, db_setup, db_teardown),
        cmocka_unit_test_setup_teardown(by_host, db_setup, db_teardown),
        cmocka_unit_test_setup_teardown(traffic_by_hour_and_host, db_setup, db_teardown),
        cmocka_unit_test_setup_teardown(traffic_is_bounded, db_setup, db_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
