#include "store_unit.h"

#include "base/mem.h"
#include "store/db_impl.h"
#include "store/events.h"
#include <jansson.h>

static const struct event_filter ALL = {.types = ~0U};

static void emit(struct place *p, enum event_type type, enum event_change change, const char *id,
                 const char *session, int64_t rev)
{
    events_emit(p->db, &(struct event){type, change, id, session, rev, NULL, NULL});
}

/* Reads one; its number is the next AFTER. */
static json_t *next(struct place *p, uint64_t *after, const struct event_filter *f)
{
    struct event_seen seen;
    int r = events_next(p->db, *after, f, &seen);
    assert_true(r >= 0);
    *after = seen.seq;
    return r ? json_loads(seen.json, 0, NULL) : NULL;
}

static const char *text(const json_t *event, const char *member)
{
    return json_string_value(json_object_get(event, member));
}

static void tells_what_changed_in_order(void **state)
{
    struct place *p = *state;
    uint64_t after = events_last(p->db);
    assert_int_equal(after, 0);
    assert_int_equal(strlen(events_boot(p->db)), EVENTS_BOOT - 1);
    json_t *wall = json_pack("{s:s}", "level", "files");
    events_emit(p->db,
                &(struct event){EVENT_COMMAND, EVENT_CREATED, "cmd_1", "ses_1", 4, wall, NULL});
    emit(p, EVENT_SITE, EVENT_REMOVED, "sit_1", NULL, 2);
    json_decref(wall);

    json_t *one = next(p, &after, &ALL);
    assert_string_equal(text(one, "type"), "command");
    assert_string_equal(text(one, "id"), "cmd_1");
    assert_string_equal(text(one, "session_id"), "ses_1");
    assert_string_equal(text(one, "change"), "created");
    assert_int_equal(json_integer_value(json_object_get(one, "rev")), 4);
    assert_string_equal(text(json_object_get(one, "enforcement"), "level"), "files");
    assert_null(json_object_get(one, "origin"));
    json_decref(one);
    assert_int_equal(after, 1);

    one = next(p, &after, &ALL);
    assert_string_equal(text(one, "type"), "site");
    assert_null(json_object_get(one, "session_id"));
    json_decref(one);
    assert_null(next(p, &after, &ALL));
    assert_int_equal(after, 2);
}

static void filters_by_type_and_session(void **state)
{
    struct place *p = *state;
    uint64_t after = 0;
    struct event_filter f = {.types = 1U << EVENT_ASK | 1U << EVENT_SITE, .session_id = "ses_1"};
    emit(p, EVENT_ASK, EVENT_CREATED, "ask_1", "ses_2", 1);
    emit(p, EVENT_SITE, EVENT_CREATED, "sit_1", NULL, 1); /* of no session: not its business */
    emit(p, EVENT_COMMAND, EVENT_CREATED, "cmd_1", "ses_1", 1);
    emit(p, EVENT_ASK, EVENT_CREATED, "ask_2", "ses_1", 1);
    json_t *one = next(p, &after, &f);
    assert_string_equal(text(one, "id"), "ask_2");
    json_decref(one);
    emit(p, EVENT_ASK, EVENT_CREATED, "ask_3", "ses_2", 1);
    assert_null(next(p, &after, &f));
    assert_int_equal(after, 5); /* what does not pass is not looked at twice */
}

static void an_update_nobody_had_is_one_event(void **state)
{
    struct place *p = *state;
    uint64_t after = 0;
    emit(p, EVENT_SESSION, EVENT_CREATED, "ses_1", "ses_1", 1);
    emit(p, EVENT_SESSION, EVENT_CREATED, "ses_2", "ses_2", 1);
    for (int64_t rev = 2; rev <= 50; rev++)
        emit(p, EVENT_SESSION, EVENT_UPDATED, "ses_1", "ses_1", rev);
    json_t *one = next(p, &after, &ALL);
    assert_string_equal(text(one, "change"), "created"); /* still new to whoever reads it */
    assert_int_equal(json_integer_value(json_object_get(one, "rev")), 50);
    json_decref(one);
    /* It has been read: the next change is told again. */
    emit(p, EVENT_SESSION, EVENT_UPDATED, "ses_1", "ses_1", 51);
    one = next(p, &after, &ALL);
    assert_string_equal(text(one, "id"), "ses_2");
    json_decref(one);
    one = next(p, &after, &ALL);
    assert_int_equal(json_integer_value(json_object_get(one, "rev")), 51);
    json_decref(one);
    /* What is gone stays gone, and comes back as a thing of its own. */
    emit(p, EVENT_SESSION, EVENT_REMOVED, "ses_1", "ses_1", 52);
    emit(p, EVENT_SESSION, EVENT_UPDATED, "ses_1", "ses_1", 53);
    one = next(p, &after, &ALL);
    assert_string_equal(text(one, "change"), "removed");
    json_decref(one);
    one = next(p, &after, &ALL);
    assert_string_equal(text(one, "change"), "updated");
    json_decref(one);
}

static void who_was_left_behind_is_told(void **state)
{
    struct place *p = *state;
    struct event_seen seen;
    char id[32];
    for (unsigned i = 1; i <= EVENTS_MAX; i++) {
        (void)snprintf(id, sizeof id, "sit_%u", i);
        emit(p, EVENT_SITE, EVENT_CREATED, id, NULL, 1);
    }
    assert_int_equal(events_next(p->db, 0, &ALL, &seen), 1); /* all are there still */
    assert_int_equal(seen.seq, 1);
    emit(p, EVENT_SITE, EVENT_CREATED, "sit_more", NULL, 1);
    assert_int_equal(events_next(p->db, 0, &ALL, &seen), -ESTALE);
    assert_int_equal(seen.seq, EVENTS_MAX + 1);
    assert_int_equal(events_next(p->db, 1, &ALL, &seen), 1);
    assert_int_equal(seen.seq, 2);
    assert_int_equal(events_next(p->db, EVENTS_MAX + 2, &ALL, &seen),
                     -ESTALE); /* of another boot */
    assert_int_equal(events_next(p->db, EVENTS_MAX + 1, &ALL, &seen), 0);
}

/* Ten thousand long paths are not kept whole: what is kept is in order, and the rest is told. */
static void long_ids_are_bounded(void **state)
{
    struct place *p = *state;
    struct event_seen seen;
    static char id[EVENT_ID_BYTES + 100];
    memset(id, 'a', sizeof id - 1);
    for (unsigned i = 0; i < 3000; i++) {
        (void)snprintf(id, 16, "/%08u", i);
        id[9] = '/';
        emit(p, EVENT_FILE, EVENT_CREATED, id, "ses_1", 0);
    }
    assert_int_equal(events_next(p->db, 0, &ALL, &seen), -ESTALE);
    assert_int_equal(seen.seq, 3000);
    uint64_t kept = EVENTS_BYTES / (EVENT_ID_BYTES + 60);
    assert_int_equal(events_next(p->db, 3000 - kept + 1, &ALL, &seen), 1);
    assert_int_equal(seen.seq, 3000 - kept + 2);
    assert_non_null(strstr(seen.json, "\"id\":\"/0000"));
    assert_int_equal(events_next(p->db, 2999, &ALL, &seen), 1);
    assert_non_null(strstr(seen.json, "\"id\":\"/00002999/a"));
    assert_non_null(strstr(seen.json, "\"rev\":3000,"));
    assert_true(strlen(seen.json) < EVENT_ID_BYTES + 200);
}

struct listener {
    struct watch watch;
    int woken;
};

static void on_event(struct watch *w)
{
    container_of(w, struct listener, watch)->woken++;
}

static void odd_ids_are_text(void **state)
{
    struct place *p = *state;
    uint64_t after = 0;
    struct listener l = {.watch.changed = on_event};
    watch_add(events_watched(p->db), &l.watch);
    emit(p, EVENT_FILE, EVENT_UPDATED, "/a/\xff\n\"x", "ses_1", 1);
    watch_remove(&l.watch);
    assert_int_equal(l.woken, 1);
    json_t *one = next(p, &after, &ALL);
    assert_string_equal(text(one, "id"), "/a/\\xff\\x0a\"x");
    json_decref(one);
}

/* What was told may not be: all who follow read anew. */
static void a_rollback_resets(void **state)
{
    struct place *p = *state;
    struct event_seen seen;
    struct listener l = {.watch.changed = on_event};
    assert_int_equal(db_write_begin(p->db), 0);
    emit(p, EVENT_SITE, EVENT_CREATED, "sit_1", NULL, 1);
    assert_int_equal(events_next(p->db, 0, &ALL, &seen), 1);
    watch_add(events_watched(p->db), &l.watch);
    db_break(p->db, -EIO);
    assert_int_equal(db_commit(p->db), -EIO);
    watch_remove(&l.watch);
    assert_int_equal(l.woken, 1);
    assert_int_equal(events_next(p->db, 1, &ALL, &seen), -ESTALE);
    assert_int_equal(seen.seq, 2);
    assert_int_equal(events_next(p->db, seen.seq, &ALL, &seen), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(tells_what_changed_in_order, db_setup, db_teardown),
        cmocka_unit_test_setup_teardown(filters_by_type_and_session, db_setup, db_teardown),
        cmocka_unit_test_setup_teardown(an_update_nobody_had_is_one_event, db_setup, db_teardown),
        cmocka_unit_test_setup_teardown(who_was_left_behind_is_told, db_setup, db_teardown),
        cmocka_unit_test_setup_teardown(odd_ids_are_text, db_setup, db_teardown),
        cmocka_unit_test_setup_teardown(long_ids_are_bounded, db_setup, db_teardown),
        cmocka_unit_test_setup_teardown(a_rollback_resets, db_setup, db_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
