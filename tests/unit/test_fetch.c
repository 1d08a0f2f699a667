/* cordon-fetch's readers: URLs, encodings, HTML as Markdown, links, results; its order. */
#include "unit.h"

#include "base/mem.h"
#include "fetch/charset.h"
#include "fetch/content.h"
#include "fetch/link_to.h"
#include "fetch/markdown.h"
#include "fetch/results.h"
#include "wire/fetch.h"
#include "wire/url.h"
#include <errno.h>

static struct url base_url(void)
{
    struct url u = {0};
    const char *why = NULL;
    assert_int_equal(url_parse("https://ok.test/a/b/c?q=1", 25, &u, &why), 0);
    return u;
}

static void urls(void **state)
{
    static const struct {
        const char *in, *out; /* NULL: refused */
    } CASES[] = {{"https://ok.test", "https://ok.test/"},
                 {"HTTPS://OK.test:443/x#y", "https://ok.test/x"},
                 {"http://ok.test:8080?a=b c", "http://ok.test:8080/?a=b%20c"},
                 {"http://b\xc3\xbc"
                  "cher.test/\xc3\xbc",
                  "http://xn--bcher-kva.test/%C3%BC"},
                 {"http://[2001:DB8:0::1]:81/", "http://[2001:db8::1]:81/"},
                 {"http://ok.test./", "http://ok.test/"},
                 {"http://ok.test/a\\b", "http://ok.test/a%5Cb"},
                 {"http://127.0.0.1/", "http://127.0.0.1/"},
                 {"https://u:p@ok.test/", NULL},
                 {"https://ok.test:0443/", NULL},
                 {"https://ok.test:/", NULL},
                 {"https://0177.0.0.1/", NULL},
                 {"https://ok.test\\.no.test/", NULL},
                 {"https://ok.test\n/", NULL},
                 {"//ok.test/", NULL},
                 {"javascript:alert(1)", NULL}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(str_done) struct str text = {0};
        struct url u = {0};
        const char *why = NULL;
        int r = url_parse(CASES[i].in, strlen(CASES[i].in), &u, &why);
        if (!CASES[i].out) {
            assert_int_equal(r, -EINVAL);
            assert_non_null(why);
            continue;
        }
        assert_int_equal(r, 0);
        assert_int_equal(url_text(&u, &text), 0);
        assert_string_equal(str_c(&text), CASES[i].out);
        url_done(&u);
    }
}

static void links(void **state)
{
    static const struct {
        const char *in, *out;
    } CASES[] = {{"d", "https://ok.test/a/b/d"},
                 {"./d", "https://ok.test/a/b/d"},
                 {"../d/", "https://ok.test/a/d/"},
                 {"../../../../d", "https://ok.test/d"},
                 {"/d/./e/../f", "https://ok.test/d/f"},
                 {"?x", "https://ok.test/a/b/c?x"},
                 {"//z.test/y", "https://z.test/y"},
                 {"http://z.test/(a) b", "http://z.test/%28a%29%20b"},
                 {"mailto:a@b.test", "mailto:a@b.test"},
                 {"#f", NULL},
                 {"javascript:x", NULL},
                 {" ", NULL},
                 {"data:text/html,x", NULL},
                 {"..", "https://ok.test/a/"}};
    struct url u = base_url();
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(str_done) struct str out = {0};
        bool there = link_resolve(&u, CASES[i].in, strlen(CASES[i].in), &out);
        assert_int_equal(there, CASES[i].out != NULL);
        assert_string_equal(str_c(&out), CASES[i].out ? CASES[i].out : "");
    }
    url_done(&u);
}

static void markdown(void **state)
{
    static const struct {
        const char *in, *out;
    } CASES[] = {
        {"<p>a<p>b", "a\n\nb\n"},
        {"a <b> b </b> c", "a **b** c\n"},
        {"<b></b><i> </i>x", "x\n"},
        {"<a href=x>one <b>two</a> three", "[one **two**](https://ok.test/a/b/x) three\n"},
        {"<a href=x><div>block</div></a>", "[block](https://ok.test/a/b/x)\n"},
        {"<ul><li>a<ul><li>b</ul><li>c</ul>d", "- a\n  - b\n- c\n\nd\n"},
        {"<ol><li>a<p>more</p><li>b</ol>", "1. a\n\n  more\n\n2. b\n"},
        {"<pre>\n x\n\n  y</pre>z", "```\n x\n\n  y\n```\n\nz\n"},
        {"<table><tr><td>a<td>b<tr><td>c</table>", "| a | b |\n| --- | --- |\n| c |\n"},
        {"<title>T</title><p>x", "# T\n\nx\n"},
        {"<title>T</title><h1>H</h1>x", "# H\n\nx\n"},
        {"x<!-- <p>y -->z &lt;&#65;&#x42;&copy;&nope;", "xz <AB\xc2\xa9&nope;\n"},
        {"<script>a<b>c</script>d<style>e</style>", "d\n"},
        {"<blockquote>q<blockquote>r</blockquote></blockquote>s", "> q\n\n> > r\n\ns\n"},
        {"1 < 2 && 3 > 2 <3", "1 < 2 && 3 > 2 <3\n"},
        {"<p>unclosed <b>bold", "unclosed **bold**\n"},
        {"</b></p></ul></li></pre></blockquote>x", "x\n"},
        {"", ""},
    };
    struct url u = base_url();
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(str_done) struct str out = {0};
        assert_int_equal(markdown_make(CASES[i].in, strlen(CASES[i].in), &u, false, &out), 0);
        assert_string_equal(str_c(&out), CASES[i].out);
    }
    url_done(&u);
}

static void encodings(void **state)
{
    static const struct {
        const char *type, *in, *out;
        size_t n;
    } CASES[] = {
        {"text/html", "caf\xe9 \x80", "caf\xc3\xa9 \xe2\x82\xac", 0},
        {"text/html", "<meta charset=latin1>\xc3\xa9", "<meta charset=latin1>\xc3\x83\xc2\xa9", 0},
        {"text/html; charset=utf-8", "\xc3\xa9\xff\xed\xa0\x80.",
         "\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd.", 0},
        {"text/plain", "\xef\xbb\xbfx\x1b[1m\r\n", "x [1m\n", 0},
        {"text/plain; charset=UTF-16BE", "\0a\xd8\x3d\xdc\x1f", "a\xf0\x9f\x90\x9f", 6},
        {"text/plain",
         "\xff\xfe"
         "a\0\x3d\xd8",
         "a\xef\xbf\xbd", 6}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(str_done) struct str out = {0};
        size_t n = CASES[i].n ? CASES[i].n : strlen(CASES[i].in);
        assert_int_equal(charset_decode(CASES[i].type, CASES[i].in, n, true, &out), 0);
        assert_string_equal(str_c(&out), CASES[i].out);
    }
}

/* A page is cut at whole characters, and says so; what is no text stays bytes. */
static void bounds(void **state)
{
    struct url u = base_url();
    struct content in = {
        .form = FETCH_MARKDOWN, .type = "text/plain", .url = &u, .bytes = "ab\xc3\xa9", .n = 4};
    (void)state;
    for (size_t max = 1; max <= 4; max++) {
        CLEANUP(str_done) struct str out = {.max = max};
        bool is_text = false, is_cut = false;
        assert_int_equal(content_make(&in, &out, &is_text, &is_cut), 0);
        assert_true(is_text);
        assert_int_equal(is_cut, max < 4);
        assert_int_equal(out.len, max == 3 ? 2 : max);
    }
    in.type = "application/octet-stream";
    in.bytes = "\0\xff";
    in.n = 2;
    CLEANUP(str_done) struct str out = {.max = 10};
    bool is_text = true, is_cut = true;
    assert_int_equal(content_make(&in, &out, &is_text, &is_cut), 0);
    assert_false(is_text);
    assert_false(is_cut);
    assert_int_equal(out.len, 2);
    url_done(&u);
}

static void order(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        struct fetch_order o = {.session = strdup("ses_1"),
                                .form = FETCH_BRAVE,
                                .url = strdup("https://ok.test/"),
                                .body = strdup(""),
                                .max_bytes = i == 1 ? 0 : 10,
                                .n_results = i == 2 ? 21 : 20,
                                .time_ms = i == 3 ? 0 : 30000,
                                .dial_ms = 1,
                                .redirects = i == 4 ? 21 : 5,
                                .own_ports = {7411},
                                .ca_file = strdup("")},
                           got = {0};
        CLEANUP(pack_done) struct pack p = {0};
        assert_int_equal(strv_add(&o.headers, "X-Key: secret"), 0);
        fetch_order_put(&p, &o);
        fetch_order_done(&o);
        assert_null(o.headers.items);
        struct unpack u = unpack_from(p.out.data, p.out.len - (i == 5));
        assert_int_equal(fetch_order_get(&u, &got), i == 0 ? 0 : -EBADMSG);
        if (i == 0) {
            assert_string_equal(got.headers.items[0], "X-Key: secret");
            assert_int_equal(got.own_ports[0], 7411);
        }
        fetch_order_done(&got);
    }
}

static void count_result(const char *title, const char *url, const char *snippet, void *arg)
{
    (void)snippet;
    assert_string_equal(title, "t");
    assert_string_equal(url, "https://ok.test/");
    ++*(int *)arg;
}

static void results(void **state)
{
    static const char MANY[] =
        "{\"results\":[{\"title\":\"<b>t</b>\",\"url\":\"https://"
        "OK.test\"},{\"title\":\"t\",\"url\":"
        "\"https://ok.test/\"},{\"title\":\"t\",\"url\":\"https://ok.test/#x\"}]}";
    int n = 0;
    (void)state;
    assert_int_equal(results_read(FETCH_TAVILY, MANY, strlen(MANY), 2, count_result, &n), 2);
    assert_int_equal(n, 2);
    assert_int_equal(results_read(FETCH_TAVILY, "{}", 2, 2, count_result, &n), -EBADMSG);
    assert_int_equal(results_read(FETCH_BRAVE, "{}", 2, 2, count_result, &n), 0);
    assert_int_equal(results_read(FETCH_BRAVE, "<p>", 3, 2, count_result, &n), -EBADMSG);
    assert_int_equal(results_read(FETCH_DUCKDUCKGO, "<p>", 3, 2, count_result, &n), -EBADMSG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(urls),      cmocka_unit_test(links),  cmocka_unit_test(markdown),
        cmocka_unit_test(encodings), cmocka_unit_test(bounds), cmocka_unit_test(order),
        cmocka_unit_test(results),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
