#include "store_unit.h"

#include "base/clock.h"
#include "base/mem.h"
#include "store/sites.h"

static struct site row(enum site_list list, const char *session, const char *host, int port)
{
    struct site s = {.list = list, .port = port, .enabled = true};
    (void)snprintf(s.session_id, sizeof s.session_id, "%s", session);
    (void)snprintf(s.host, sizeof s.host, "%s", host);
    (void)snprintf(s.source, sizeof s.source, "user");
    (void)snprintf(s.created_by, sizeof s.created_by, "owner");
    id_new("sit", s.id);
    s.created_at = clock_wall_ms();
    s.rev = 1;
    return s;
}

static int gather(const struct site *s, void *arg)
{
    strcat(strcat(arg, s->host), " ");
    return 0;
}

static const char *hosts(struct db *db, int list, const char *session, const char *q,
                         const char *before, unsigned limit)
{
    static char text[4096];
    text[0] = '\0';
    assert_int_equal(sites_each(db, list, session, NULL, q, before, limit, gather, text), 0);
    return text;
}

static void one_row_a_place(void **state)
{
    struct db *db = ((struct place *)*state)->db;
    struct site a = row(SITES_MACHINE, "", "a.test", 443), got;
    assert_int_equal(site_put(db, &a), 0);
    struct site same = row(SITES_MACHINE, "", "a.test", 443);
    assert_int_equal(site_put(db, &same), -EEXIST);
    /* Another port, list or session is another place. */
    struct site others[] = {
        row(SITES_MACHINE, "", "a.test", 0), row(SITES_GUARDED, "", "a.test", 443),
        row(SITES_SESSION, "ses_1", "a.test", 443), row(SITES_SESSION, "ses_2", "a.test", 443)};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(site_put(db, &others[i]), 0);
    assert_int_equal(sites_count(db, -1, NULL), 5);
    assert_int_equal(sites_count(db, SITES_MACHINE, NULL), 2);
    assert_int_equal(sites_count(db, SITES_SESSION, "ses_1"), 1);
    /* A refused row leaves the group as it was. */
    assert_int_equal(db_commit(db), 0);
    assert_int_equal(site_get(db, a.id, &got), 0);
    assert_string_equal(got.host, "a.test");
    assert_int_equal(site_find(db, SITES_SESSION, "ses_2", "a.test", 443, &got), 0);
    assert_string_equal(got.id, others[3].id);
    assert_int_equal(site_find(db, SITES_SESSION, "ses_3", "a.test", 443, &got), -ENOENT);
    assert_int_equal(site_find(db, SITES_MACHINE, NULL, "A.test", 443, &got), -ENOENT);
    assert_int_equal(site_find(db, SITES_MACHINE, NULL, "a.test", 80, &got), -ENOENT);
    /* By id: all but the hits and when it was made. */
    assert_int_equal(site_used(db, a.id, false), 0);
    assert_int_equal(site_used(db, a.id, true), 0);
    a.enabled = false;
    a.created_at = 5;
    a.hits = 77;
    a.rev = 2;
    (void)snprintf(a.note, sizeof a.note, "it's \"noted\"");
    assert_int_equal(site_put(db, &a), 0);
    assert_int_equal(site_get(db, a.id, &got), 0);
    assert_true(!got.enabled && got.rev == 2 && got.created_at > 5);
    assert_true(got.hits == 1 && got.blocked_hits == 1 && got.last_used_at > 0);
    assert_string_equal(got.note, "it's \"noted\"");
    a.port = 0; /* taken by another row */
    assert_int_equal(site_put(db, &a), -EEXIST);
    assert_int_equal(site_delete(db, a.id), 0);
    assert_int_equal(site_delete(db, a.id), -ENOENT);
    assert_int_equal(site_get(db, a.id, &got), -ENOENT);
    assert_int_equal(db_commit(db), 0);
}

static void use_is_seen_before_it_is_written(void **state)
{
    struct place *p = *state;
    struct site a = row(SITES_MACHINE, "", "a.test", 443), got;
    assert_int_equal(site_put(p->db, &a), 0);
    assert_int_equal(db_commit(p->db), 0);
    assert_true(db_commit_due(p->db) == UINT64_MAX);
    for (int i = 0; i < 3; i++)
        assert_int_equal(site_used(p->db, a.id, false), 0);
    assert_int_equal(site_used(p->db, a.id, true), 0);
    assert_true(db_commit_due(p->db) <= 1000);
    assert_int_equal(site_get(p->db, a.id, &got), 0);
    assert_true(got.hits == 3 && got.blocked_hits == 1 && got.last_used_at > 0);
    /* Written or not, each use counts once. */
    assert_int_equal(db_commit(p->db), 0);
    assert_int_equal(site_used(p->db, a.id, false), 0);
    assert_int_equal(site_get(p->db, a.id, &got), 0);
    assert_true(got.hits == 4 && got.blocked_hits == 1);
    /* More sites in a second than are gathered. */
    struct site many[100];
    for (size_t i = 0; i < ARRAY_LEN(many); i++) {
        many[i] = row(SITES_SESSION, "ses_1", "m.test", (int)i + 1);
        assert_int_equal(site_put(p->db, &many[i]), 0);
        assert_int_equal(site_used(p->db, many[i].id, false), 0);
    }
    db_close(p->db);
    p->db = NULL;
    assert_int_equal(db_open(p->path, &p->db, NULL), 0);
    assert_int_equal(site_get(p->db, a.id, &got), 0);
    assert_true(got.hits == 4 && got.blocked_hits == 1);
    for (size_t i = 0; i < ARRAY_LEN(many); i++) {
        assert_int_equal(site_get(p->db, many[i].id, &got), 0);
        assert_int_equal(got.hits, 1);
    }
}

static void in_order_and_filtered(void **state)
{
    struct db *db = ((struct place *)*state)->db;
    char ids[4][32];
    static const char *const HOSTS[] = {"one.test", "two.test", "100%.test", "x_y.test"};
    for (size_t i = 0; i < 4; i++) {
        struct site s = row(SITES_MACHINE, "", HOSTS[i], 443);
        memcpy(ids[i], s.id, sizeof s.id);
        assert_int_equal(site_put(db, &s), 0);
    }
    struct site own = row(SITES_SESSION, "ses_1", "own.test", 443);
    assert_int_equal(site_put(db, &own), 0);
    assert_string_equal(hosts(db, SITES_MACHINE, NULL, NULL, NULL, 0),
                        "x_y.test 100%.test two.test one.test ");
    assert_string_equal(hosts(db, SITES_MACHINE, NULL, NULL, NULL, 2), "x_y.test 100%.test ");
    assert_string_equal(hosts(db, SITES_MACHINE, NULL, NULL, ids[2], 2), "two.test one.test ");
    assert_string_equal(hosts(db, SITES_SESSION, "ses_1", NULL, NULL, 0), "own.test ");
    assert_string_equal(hosts(db, SITES_SESSION, "ses_2", NULL, NULL, 0), "");
    /* Text, not a pattern. */
    assert_string_equal(hosts(db, SITES_MACHINE, NULL, "%", NULL, 0), "100%.test ");
    assert_string_equal(hosts(db, SITES_MACHINE, NULL, "_", NULL, 0), "x_y.test ");
    assert_string_equal(hosts(db, SITES_MACHINE, NULL, "ONE", NULL, 0), "one.test ");
    assert_string_equal(hosts(db, SITES_MACHINE, NULL, "' OR 1=1 --", NULL, 0), "");
    assert_int_equal(sites_of_session_delete(db, "ses_1"), 0);
    assert_int_equal(sites_count(db, -1, NULL), 4);
    assert_int_equal(db_commit(db), 0);
}

static void seeds_are_made_once(void **state)
{
    struct place *p = *state;
    struct site seeds[2] = {row(SITES_MACHINE, "", "s1.test", 443),
                            row(SITES_MACHINE, "", "s2.test", 443)};
    for (int i = 0; i < 2; i++) {
        seeds[i].id[0] = '\0';
        seeds[i].enabled = false;
        seeds[i].rev = 0;
        seeds[i].created_at = 0;
    }
    assert_true(sites_seed(p->db, seeds, 2) >= 0);
    struct site got;
    assert_int_equal(site_find(p->db, SITES_MACHINE, NULL, "s1.test", 443, &got), 0);
    assert_true(id_is(got.id, "sit") && !got.enabled && got.rev > 0 && got.created_at > 0);
    got.enabled = true;
    got.rev++;
    assert_int_equal(site_put(p->db, &got), 0);
    assert_int_equal(db_commit(p->db), 0);
    place_close(p);
    place_open(p);
    assert_true(sites_seed(p->db, seeds, 2) >= 0);
    struct site again;
    assert_int_equal(site_find(p->db, SITES_MACHINE, NULL, "s1.test", 443, &again), 0);
    assert_true(again.enabled);
    assert_string_equal(again.id, got.id);
    assert_int_equal(sites_count(p->db, -1, NULL), 2);
    assert_int_equal(db_commit(p->db), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, db_setup, db_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_row_a_place),
        TEST(use_is_seen_before_it_is_written),
        TEST(in_order_and_filtered),
        TEST(seeds_are_made_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
