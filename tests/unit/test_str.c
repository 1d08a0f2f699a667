#include "unit.h"

#include "base/str.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void grows_and_keeps_a_nul(void **state)
{
    (void)state;
    struct str s = {0};
    assert_string_equal(str_c(&s), "");
    for (int i = 0; i < 1000; i++)
        assert_int_equal(str_printf(&s, "%d,", i % 10), 0);
    assert_int_equal(s.len, 2000);
    assert_int_equal(strlen(s.data), 2000);
    str_consume(&s, 1996);
    assert_string_equal(s.data, "8,9,");
    str_consume(&s, 99);
    assert_string_equal(s.data, "");
    str_done(&s);
}

static void keeps_the_maximum(void **state)
{
    (void)state;
    struct str s = {.max = 4};
    assert_int_equal(str_puts(&s, "abc"), 0);
    assert_int_equal(str_puts(&s, "de"), -E2BIG);
    assert_string_equal(s.data, "abc");
    assert_int_equal(str_printf(&s, "%d", 12), -E2BIG);
    assert_int_equal(str_putc(&s, 'd'), 0);
    assert_null(str_room(&s, 1));
    assert_int_equal(str_add(&s, "x", SIZE_MAX - 2), -E2BIG);
    str_done(&s);
}

static void escapes_what_hides(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } rows[] = {{"plain ü 漢", "plain ü 漢"},
                {"a\nb\tc", "a\\x0ab\\x09c"},
                {"\x1b[31m", "\\x1b[31m"},
                {"\xff\xc3", "\\xff\\xc3"},
                {"a\xe2\x80\xae"
                 "b",
                 "a\\u{202e}b"},
                {"\xc2\x85", "\\u{85}"},
                {"\xed\xa0\x80", "\\xed\\xa0\\x80"},
                {"\xc0\xaf", "\\xc0\\xaf"},
                {"C:\\x1b", "C:\\\\x1b"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct str s = {0};
        assert_int_equal(str_put_escaped(&s, rows[i].in, strlen(rows[i].in)), 0);
        assert_string_equal(str_c(&s), rows[i].out);
        str_done(&s);
    }
}

static void knows_utf8(void **state)
{
    (void)state;
    assert_true(utf8_is_valid("", 0));
    assert_true(utf8_is_valid("\xf4\x8f\xbf\xbf", 4));
    assert_false(utf8_is_valid("\xf4\x90\x80\x80", 4));
    assert_false(utf8_is_valid("\xe0\x9f\xbf", 3));
    assert_false(utf8_is_valid("\xf0\x8f\xbf\xbf", 4));
    assert_false(utf8_is_valid("a\xe2\x82", 3));
}

static void lists(void **state)
{
    (void)state;
    struct strv v = {0}, copy = {0};
    for (int i = 0; i < 100; i++)
        assert_int_equal(strv_addf(&v, "item-%d", i), 0);
    assert_int_equal(strv_add_take(&v, NULL), -ENOMEM);
    assert_true(strv_has(&v, "item-99"));
    assert_false(strv_has(&v, "item-100"));
    assert_null(v.items[100]);
    assert_int_equal(strv_copy(&copy, &v), 0);
    assert_int_equal(copy.n, 100);
    strv_done(&v);
    strv_done(&copy);
}

static void measures_distance(void **state)
{
    (void)state;
    assert_int_equal(str_distance("", ""), 0);
    assert_int_equal(str_distance("kitten", "sitting"), 3);
    assert_int_equal(str_distance("abc", ""), 3);
    assert_int_equal(str_distance("abcdefghijkl", "zyxwvutsrqpo"), 9);
}

static void reads_numbers(void **state)
{
    (void)state;
    uint64_t v = 7;
    assert_int_equal(parse_u64("18446744073709551615", 0, UINT64_MAX, &v), 0);
    assert_true(v == UINT64_MAX);
    assert_int_equal(parse_u64("18446744073709551616", 0, UINT64_MAX, &v), -ERANGE);
    assert_int_equal(parse_u64("99999999999999999999x", 0, UINT64_MAX, &v), -EINVAL);
    assert_int_equal(parse_u64("", 0, 9, &v), -EINVAL);
    assert_int_equal(parse_u64("-1", 0, 9, &v), -EINVAL);
    assert_int_equal(parse_u64("+1", 0, 9, &v), -EINVAL);
    assert_int_equal(parse_u64(" 1", 0, 9, &v), -EINVAL);
    assert_int_equal(parse_u64("10", 0, 9, &v), -ERANGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(grows_and_keeps_a_nul),
                                       cmocka_unit_test(keeps_the_maximum),
                                       cmocka_unit_test(escapes_what_hides),
                                       cmocka_unit_test(knows_utf8),
                                       cmocka_unit_test(lists),
                                       cmocka_unit_test(measures_distance),
                                       cmocka_unit_test(reads_numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
