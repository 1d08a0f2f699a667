#include "unit.h"

#include "runner/ignore.h"
#include "runner/pattern.h"
#include <errno.h>
#include <string.h>

static void matches(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *path;
        bool fits;
    } rows[] = {{"a", "a", true},
                {"a", "b", false},
                {"a", "a/b", false},
                {"*", "a.c", true},
                {"*", ".hidden", true},
                {"*", "a/b", false},
                {"*.c", "a.c", true},
                {"*.c", "a.c.o", false},
                {"a*b*c", "aXbYc", true},
                {"a*b*c", "aXbYcZ", false},
                {"?", "\xc3\xa9", true}, /* one character of two bytes */
                {"?", "\xc3", true},     /* bytes that are no UTF-8 stand alone */
                {"??", "\xc3\xa9", false},
                {"[a-c]x", "bx", true},
                {"[a-c]x", "dx", false},
                {"[!a-c]x", "dx", true},
                {"[^a-c]x", "ax", false},
                {"[]x]", "]", true},
                {"[a-]", "-", true},
                {"[\\]]", "]", true},
                {"[\xc3\xa9-\xc3\xbc]", "\xc3\xaf", true},
                {"[abc", "[abc", true},
                {"\\*", "*", true},
                {"\\*", "a", false},
                {"a\\", "a\\", true},
                {"**", "a/b/c", true},
                {"**/c", "a/b/c", true},
                {"**/c", "c", true},
                {"a/**", "a/b/c", true},
                {"a/**/c", "a/c", true},
                {"a/**/c", "a/x/y/c", true},
                {"a/**/c", "b/x/c", false},
                {"**/a/**/b", "x/a/y/z/b", true},
                {"**/a/**/b", "a/b/a", false},
                {"**/*.c", "src/x.c", true},
                {"**/*.c", "x.c", true},
                {"a**", "abc", true}, /* within a component as one star */
                {"a**/b", "ax/y/b", false},
                {"src/*/x", "src/a/x", true},
                {"src/*/x", "src/a/b/x", false},
                {"", "a", false}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (pattern_match(rows[i].pattern, rows[i].path) != rows[i].fits)
            fail_msg("%s against %s", rows[i].pattern, rows[i].path);
}

static void leads(void **state)
{
    (void)state;
    assert_true(pattern_may_lead("a/b/c", "a"));
    assert_true(pattern_may_lead("a/b/c", "a/b"));
    assert_false(pattern_may_lead("a/b/c", "a/b/c"));
    assert_false(pattern_may_lead("a/b/c", "b"));
    assert_true(pattern_may_lead("a/**", "a/x/y"));
    assert_true(pattern_may_lead("**/x", "any/thing"));
    assert_true(pattern_may_lead("a/**/b/c", "a/z/z"));
    assert_false(pattern_may_lead("a/**/b", "b"));
    assert_false(pattern_may_lead("*.c", "src"));
}

/* Linear enough: an exponential matcher would not come back. */
static void takes_its_time(void **state)
{
    (void)state;
    char path[2001], pattern[400] = "";
    memset(path, 'a', 2000);
    path[2000] = '\0';
    for (int i = 0; i < 60; i++)
        strcat(pattern, "*a");
    strcat(pattern, "b");
    assert_false(pattern_match(pattern, path));
    for (int i = 1; i < 2000; i += 2)
        path[i] = '/';
    pattern[0] = '\0';
    for (int i = 0; i < 60; i++)
        strcat(pattern, "**/a/");
    strcat(pattern, "b");
    assert_false(pattern_match(pattern, path));
}

static void expands(void **state)
{
    (void)state;
    struct strv v = {0};
    assert_int_equal(pattern_expand("a.{c,h}", &v), 0);
    assert_int_equal(v.n, 2);
    assert_string_equal(v.items[1], "a.h");
    strv_done(&v);
    assert_int_equal(pattern_expand("{a,{b,c}d}{x,}", &v), 0);
    assert_int_equal(v.n, 6);
    assert_string_equal(v.items[2], "bdx");
    assert_string_equal(v.items[5], "cd");
    strv_done(&v);
    assert_int_equal(pattern_expand("a{b}\\{c,d}{", &v), 0);
    assert_int_equal(v.n, 1);
    assert_string_equal(v.items[0], "a{b}\\{c,d}{");
    strv_done(&v);
    assert_int_equal(pattern_expand("{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}", &v), -E2BIG);
    strv_done(&v);
}

static bool left_out(const char *text, const char *path, bool is_folder)
{
    struct ignore ig = {0};
    ignore_parse(&ig, "/w", text, strlen(text));
    bool is = ignore_has(&ig, path, is_folder);
    ignore_done(&ig);
    return is;
}

static void ignores_as_git_does(void **state)
{
    (void)state;
    assert_true(left_out("*.o\n", "/w/a/b.o", false));
    assert_true(left_out("build/\n", "/w/build", true));
    assert_false(left_out("build/\n", "/w/build", false));
    assert_true(left_out("/top\n", "/w/top", false));
    assert_false(left_out("/top\n", "/w/a/top", false));
    assert_true(left_out("a/b\n", "/w/a/b", false));
    assert_false(left_out("a/b\n", "/w/x/a/b", false));
    assert_true(left_out("**/b\n", "/w/x/a/b", false));
    assert_false(left_out("*.o\n!keep.o\n", "/w/keep.o", false));
    assert_true(left_out("!keep.o\n*.o\n", "/w/keep.o", false));
    assert_false(left_out("#x\n", "/w/#x", false));
    assert_true(left_out("\\#x\n", "/w/#x", false));
    assert_true(left_out("x  \r\n", "/w/x", false));
    assert_true(left_out("x\\ \n", "/w/x ", false));
    assert_false(left_out("\n \n/\n!\n", "/w/x", true));
    struct ignore ig = {0};
    ignore_parse(&ig, "/w", "*.log\n", 6);
    size_t before = ig.n;
    ignore_parse(&ig, "/w/sub", "!a.log\n/b\n", 10);
    assert_false(ignore_has(&ig, "/w/sub/a.log", false));
    assert_true(ignore_has(&ig, "/w/sub/b", false));
    assert_true(ignore_has(&ig, "/w/c.log", false));
    ignore_forget(&ig, before);
    assert_true(ignore_has(&ig, "/w/sub/a.log", false));
    ignore_done(&ig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(matches), cmocka_unit_test(leads),
                                       cmocka_unit_test(takes_its_time), cmocka_unit_test(expands),
                                       cmocka_unit_test(ignores_as_git_does)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
