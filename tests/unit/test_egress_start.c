/* wire/egress: what was put is got; what makes no sense is refused. */
#include "base/mem.h"
#include "wire/egress.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct egress_start example(void)
{
    return (struct egress_start){.session = strdup("ses_1"),
                                 .door_port = 3128,
                                 .own_ports = {7777, 7778},
                                 .connections_max = 1024,
                                 .head_max = 65536,
                                 .dial_ms = 10000};
}

static int round_trip(struct egress_start *take_s, struct egress_start *ret, size_t cut)
{
    CLEANUP(pack_done) struct pack p = {0};
    egress_start_put(&p, take_s);
    egress_start_done(take_s);
    assert_int_equal(p.r, 0);
    struct unpack u = unpack_from(p.out.data, p.out.len - cut);
    return egress_start_get(&u, ret);
}

static void test_round_trip(void **state)
{
    struct egress_start s = example(), got = {0};
    (void)state;
    assert_int_equal(round_trip(&s, &got, 0), 0);
    assert_string_equal(got.session, "ses_1");
    assert_int_equal(got.door_port, 3128);
    assert_int_equal(got.own_ports[1], 7778);
    assert_int_equal(got.own_ports[2], 0);
    assert_int_equal(got.connections_max, 1024);
    assert_int_equal(got.head_max, 65536);
    assert_int_equal(got.dial_ms, 10000);
    egress_start_done(&got);
}

static void test_refused(void **state)
{
    struct egress_start got = {0};
    (void)state;
    for (int i = 0; i < 5; i++) {
        struct egress_start s = example();
        s.door_port = i == 0 ? 0 : s.door_port;
        s.connections_max = i == 1 ? 0 : s.connections_max;
        s.head_max = i == 2 ? 0 : s.head_max;
        s.dial_ms = i == 3 ? 0 : s.dial_ms;
        assert_int_equal(round_trip(&s, &got, i == 4), -EBADMSG);
        assert_null(got.session);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
