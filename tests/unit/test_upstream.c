/* The proxy of the host: how it is written, and which hosts go past it. */
#include "unit.h"

#include "base/mem.h"
#include "policy/upstream.h"

static void forms(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host;
        uint16_t port;
        const char *user, *shown;
    } GOOD[] = {
        {"http://proxy.corp:3128", "proxy.corp", 3128, "", "http://proxy.corp:3128"},
        {"HTTP://Proxy.Corp.:3128/", "proxy.corp", 3128, "", "http://proxy.corp:3128"},
        {"proxy.corp:8080", "proxy.corp", 8080, "", "http://proxy.corp:8080"},
        {"http://proxy.corp", "proxy.corp", 80, "", "http://proxy.corp:80"},
        {"http://10.0.0.1:3128", "10.0.0.1", 3128, "", "http://10.0.0.1:3128"},
        {"http://[2001:db8::1]:3128", "2001:db8::1", 3128, "", "http://[2001:db8::1]:3128"},
        {"http://me:secret@p:1", "p", 1, "me:secret", "http://me:***@p:1"},
        {"me:secret@p:1", "p", 1, "me:secret", "http://me:***@p:1"},
        {"http://me@p:1", "p", 1, "me:", "http://me:***@p:1"},
        {"http://me:p%40ss%3a%2F@p:1", "p", 1, "me:p@ss:/", "http://me:***@p:1"},
        {"http://me:a@b@p:1", "p", 1, "me:a@b", "http://me:***@p:1"},
    };
    for (size_t i = 0; i < sizeof GOOD / sizeof GOOD[0]; i++) {
        struct upstream up;
        CLEANUP(str_done) struct str shown = {0};
        const char *why = upstream_parse(GOOD[i].text, &up);
        if (why)
            fail_msg("%s: %s", GOOD[i].text, why);
        assert_string_equal(up.host, GOOD[i].host);
        assert_int_equal(up.port, GOOD[i].port);
        assert_string_equal(up.user, GOOD[i].user);
        assert_int_equal(upstream_put_shown(&shown, &up), 0);
        assert_string_equal(str_c(&shown), GOOD[i].shown);
    }
}

static void what_is_none(void **state)
{
    (void)state;
    static const char *const BAD[] = {
        "",
        "https://p:1",
        "socks5://p:1",
        "http://",
        "http://:3128",
        "http://p:0",
        "http://p:70000",
        "http://p:x",
        "http://p:1/path",
        "http://p:1?q",
        "http://p p:1",
        "http://p:1\r\nX: y",
        "http://:secret@p:1",
        "http://m%3ae:secret@p:1",
        "http://me:%0d%0a@p:1",
        "http://me:%zz@p:1",
        "http://me:%4@p:1",
        "http://2130706433:1",
    };
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        struct upstream up = {.port = 7};
        if (upstream_parse(BAD[i], &up) == NULL)
            fail_msg("%s is taken", BAD[i]);
        assert_int_equal(up.port, 7);
    }
    char text[600] = "http://me:";
    memset(text + 10, 'x', 500);
    memcpy(text + 510, "@p:1", 5);
    struct upstream up;
    assert_non_null(upstream_parse(text, &up));
}

static void authorization(void **state)
{
    (void)state;
    struct upstream up;
    CLEANUP(str_done) struct str text = {0};
    assert_null(upstream_parse("http://Aladdin:open%20sesame@p:1", &up));
    assert_int_equal(upstream_authorization(&up, &text), 0);
    assert_string_equal(str_c(&text), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="); /* RFC 7617, 2 */
    str_clear(&text);
    assert_null(upstream_parse("http://p:1", &up));
    assert_int_equal(upstream_authorization(&up, &text), 0);
    assert_int_equal(text.len, 0);
}

static void no_proxy(void **state)
{
    (void)state;
    static const struct {
        const char *list, *host;
        uint16_t port;
        bool is_named;
    } ROWS[] = {
        {NULL, "ok.test", 443, false},
        {"", "ok.test", 443, false},
        {" , ,", "ok.test", 443, false},
        {"*", "ok.test", 443, true},
        {"*", "10.0.0.1", 443, true},
        {"ok.test", "ok.test", 443, true},
        {"OK.test.", "ok.test", 443, true},
        {"ok.test", "a.ok.test", 443, true},
        {".ok.test", "a.ok.test", 443, true},
        {".ok.test", "ok.test", 443, true},
        {"*.ok.test", "a.ok.test", 443, true},
        {"ok.test", "notok.test", 443, false},
        {"ok.test", "ok.test.no.test", 443, false},
        {"test", "ok.test", 443, true},
        {"k.test", "ok.test", 443, false},
        {"a.test,ok.test b.test", "ok.test", 443, true},
        {"a.test,ok.test b.test", "b.test", 443, true},
        {"ok.test:443", "ok.test", 443, true},
        {"ok.test:443", "ok.test", 80, false},
        {"ok.test:", "ok.test", 443, false},
        {"ok.test:x", "ok.test", 443, false},
        {"10.0.0.1", "10.0.0.1", 443, true},
        {"0.0.1", "10.0.0.1", 443, false},
        {"10.0.0.0/8", "10.200.0.1", 443, true},
        {"10.0.0.0/8", "11.0.0.1", 443, false},
        {"10.0.0.128/25", "10.0.0.127", 443, false},
        {"10.0.0.128/25", "10.0.0.129", 443, true},
        {"10.0.0.0/8", "ok.test", 443, false},
        {"10.0.0.0/33", "10.0.0.1", 443, false},
        {"10.0.0.0/", "10.0.0.1", 443, false},
        {"10.0.0.0/-1", "10.0.0.1", 443, false},
        {"0.0.0.0/0", "10.0.0.1", 443, true},
        {"0.0.0.0/0", "::1", 443, false},
        {"2001:db8::/32", "2001:db8:1::1", 443, true},
        {"2001:db8::/32", "2001:db9::1", 443, false},
        {"2001:db8::1", "2001:db8::1", 443, true},
        {"[2001:db8::1]", "2001:db8::1", 443, true},
        {"[2001:db8::1]:443", "2001:db8::1", 443, true},
        {"[2001:db8::1]:443", "2001:db8::1", 80, false},
        {"[2001:db8::1", "2001:db8::1", 443, false},
        {"[]", "ok.test", 443, false},
        {".", "ok.test", 443, false},
        {"*.", "ok.test", 443, false},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++)
        if (upstream_is_bypassed(ROWS[i].list, ROWS[i].host, ROWS[i].port) != ROWS[i].is_named)
            fail_msg("\"%s\" and %s:%u", ROWS[i].list ? ROWS[i].list : "(none)", ROWS[i].host,
                     ROWS[i].port);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(forms), cmocka_unit_test(what_is_none),
                                       cmocka_unit_test(authorization), cmocka_unit_test(no_proxy)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
