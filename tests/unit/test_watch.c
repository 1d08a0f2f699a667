#include "unit.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/watch.h"
#include <string.h>

struct observer {
    struct watch watch;
    int seen;
    struct watch *victim;
    struct watched *subject;
    struct watch *newcomer;
};

static void observe(struct watch *w)
{
    struct observer *o = container_of(w, struct observer, watch);
    o->seen++;
    if (o->victim)
        watch_remove(o->victim);
    if (o->newcomer)
        watch_add(o->subject, o->newcomer);
}

static void survives_removal_and_adding(void **state)
{
    (void)state;
    struct watched subject = {0};
    struct observer a = {.watch.changed = observe}, b = a, c = a, d = a;
    watched_notify(&subject);
    watch_remove(&a.watch);
    watch_add(&subject, &a.watch);
    watch_add(&subject, &b.watch);
    watch_add(&subject, &c.watch);
    a.victim = &b.watch; /* the next one */
    c.victim = &c.watch; /* itself */
    a.subject = &subject;
    a.newcomer = &d.watch; /* waits for the next round */
    watched_notify(&subject);
    assert_int_equal(a.seen, 1);
    assert_int_equal(b.seen, 0);
    assert_int_equal(c.seen, 1);
    assert_int_equal(d.seen, 0);
    assert_true(watch_is_added(&a.watch));
    assert_false(watch_is_added(&c.watch));
    a.newcomer = NULL;
    watched_notify(&subject);
    assert_int_equal(a.seen, 2);
    assert_int_equal(d.seen, 1);
}

static void errors_are_filled_once(void **state)
{
    (void)state;
    struct err err = {0};
    assert_int_equal(err_set(NULL, -5, "x", NULL, "y"), -5);
    assert_int_equal(err_set(&err, -5, "first", "cure", "cause %d", 1), -5);
    assert_int_equal(err_member(&err, -6, "second", "/p", "other"), -6);
    assert_string_equal(err.code, "first");
    assert_string_equal(err.detail, "cause 1");
    assert_string_equal(err.hint, "cure");
    err_clear(&err);
    assert_false(err_is_set(&err));
    assert_int_equal(err_member(&err, -6, "second", "/p", "other"), -6);
    assert_string_equal(err.pointer, "/p");
    assert_string_equal(child_exit_name(CHILD_LANDLOCK), "landlock");
    assert_string_equal(child_exit_name(CHILD_PROTOCOL), "protocol");
    assert_string_equal(child_exit_name(1), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(survives_removal_and_adding),
                                       cmocka_unit_test(errors_are_filled_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
