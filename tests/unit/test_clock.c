#include "unit.h"

#include "base/clock.h"
#include "base/hash.h"
#include <errno.h>
#include <string.h>

static void dates_both_ways(void **state)
{
    (void)state;
    static const struct {
        const char *in;
        int64_t ms;
    } good[] = {{"1970-01-01T00:00:00Z", 0},
                {"2026-12-01T09:30:00.120Z", 1796117400120},
                {"2026-12-01T10:30:00.12+01:00", 1796117400120},
                {"2026-12-01t04:00:00.1209-05:30", 1796117400120},
                {"1969-12-31T23:59:59.999Z", -1}};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        int64_t got = 7;
        assert_int_equal(clock_parse(good[i].in, &got), 0);
        assert_true(got == good[i].ms);
        char text[CLOCK_TEXT_MAX];
        clock_text(got, text);
        int64_t again;
        assert_int_equal(clock_parse(text, &again), 0);
        assert_true(again == got);
    }
    static const char *const bad[] = {"",
                                      "2026",
                                      "2026-12-01",
                                      "2026-12-01T09:30:00",
                                      "2026-13-01T09:30:00Z",
                                      "2026-02-30T09:30:00Z",
                                      "2026-12-01T24:30:00Z",
                                      "2026-12-01T09:30:00Zx",
                                      "2026-12-01T09:30:00.Z",
                                      "2026-12-01T09:30:00+0100",
                                      "+026-12-01T09:30:00Z"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        int64_t got;
        assert_int_equal(clock_parse(bad[i], &got), -EINVAL);
    }
    char text[CLOCK_TEXT_MAX];
    clock_text(1796117400120, text);
    assert_string_equal(text, "2026-12-01T09:30:00.120Z");
}

static void ids_sort_as_made(void **state)
{
    (void)state;
    char last[ID_MAX], next[ID_MAX];
    id_new("ses", last);
    assert_int_equal(strlen(last), ID_MAX - 1);
    for (int i = 0; i < 10000; i++) {
        id_new("ses", next);
        assert_true(strcmp(last, next) < 0);
        assert_true(id_is(next, "ses"));
        memcpy(last, next, sizeof(last));
    }
    assert_false(id_is(last, "cmd"));
    last[10] = 'U';
    assert_false(id_is(last, "ses"));
    assert_false(id_is("ses_", "ses"));
}

static void base64_of_rfc_4648(void **state)
{
    (void)state;
    char out[16];
    base64url("foobar", 6, out);
    assert_string_equal(out, "Zm9vYmFy");
    base64url("fooba", 5, out);
    assert_string_equal(out, "Zm9vYmE");
    base64url("\xff\xfe", 2, out);
    assert_string_equal(out, "__4");
}

static void hashes_as_fips_180(void **state)
{
    (void)state;
    char out[HASH_TEXT_MAX];
    hash_sha256_hex("abc", 3, out);
    assert_string_equal(out, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_true(hash_equal("abc", "abc", 3));
    assert_false(hash_equal("abc", "abd", 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dates_both_ways), cmocka_unit_test(ids_sort_as_made),
        cmocka_unit_test(base64_of_rfc_4648), cmocka_unit_test(hashes_as_fips_180)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
