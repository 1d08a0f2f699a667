/* wire/httphead: what is taken, what is refused, and the same answer however the bytes arrive. */
#include "base/mem.h"
#include "wire/httphead.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define H(lines) lines "\r\n\r\n"

/* Feeds IN whole, byte by byte, and in SPLITS pieces of changing size: all must agree. */
static enum head_result feed_all_ways(struct httphead *ret, bool is_response, const char *in,
                                      size_t n, size_t max, size_t *ret_used)
{
    enum head_result result = HEAD_MORE;
    httphead_init(ret, max, is_response);
    result = httphead_feed(ret, in, n, ret_used);
    for (unsigned way = 0; way < 20; way++) {
        struct httphead h;
        enum head_result r = HEAD_MORE;
        size_t at = 0;
        httphead_init(&h, max, is_response);
        while (r == HEAD_MORE && at < n) {
            size_t used, piece = way == 0 ? 1 : 1 + (at * 7 + way * 13) % (way * 5);
            r = httphead_feed(&h, in + at, piece < n - at ? piece : n - at, &used);
            at += used;
        }
        assert_int_equal(r, result);
        if (r == HEAD_DONE) {
            assert_int_equal(at, *ret_used);
            assert_int_equal(h.raw.len, ret->raw.len);
            assert_int_equal(h.n_fields, ret->n_fields);
            assert_int_equal(h.body, ret->body);
        }
        httphead_done(&h);
    }
    return result;
}

static void test_requests(void **state)
{
    static const struct {
        const char *in;
        enum head_target kind;
        enum body_kind body;
        uint64_t len;
        bool keep, expect, upgrade;
    } CASES[] = {
        {H("CONNECT ok.test:443 HTTP/1.1\r\nHost: ok.test:443"), TARGET_AUTHORITY, BODY_NONE, 0,
         true, false, false},
        {H("CONNECT ok.test:443 HTTP/1.0"), TARGET_AUTHORITY, BODY_NONE, 0, false, false, false},
        {H("GET http://ok.test/ HTTP/1.1\r\nHost: ok.test"), TARGET_ABSOLUTE, BODY_NONE, 0, true,
         false, false},
        {H("GET / HTTP/1.1\r\nHost: a\r\nConnection: foo , Close"), TARGET_ORIGIN, BODY_NONE, 0,
         false, false, false},
        {H("OPTIONS * HTTP/1.1\r\nhost:a"), TARGET_ASTERISK, BODY_NONE, 0, true, false, false},
        {H("GET / HTTP/1.0\r\nConnection: keep-alive"), TARGET_ORIGIN, BODY_NONE, 0, true, false,
         false},
        {H("POST http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-Continue"),
         TARGET_ABSOLUTE, BODY_LENGTH, 5, true, true, false},
        {H("POST http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length: 0"), TARGET_ABSOLUTE, BODY_NONE,
         0, true, false, false},
        {H("PUT http://a/ HTTP/1.1\r\nHost: a\r\ntransfer-encoding:\t Chunked "), TARGET_ABSOLUTE,
         BODY_CHUNKED, 0, true, false, false},
        {H("GET http://a/ HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade"),
         TARGET_ABSOLUTE, BODY_NONE, 0, true, false, true},
        {H("\r\n\r\nGET / HTTP/1.1\r\nHost: a"), TARGET_ORIGIN, BODY_NONE, 0, true, false, false},
        {H("GET / HTTP/1.1\r\nHost:\r\nX: \xff caf\xe9"), TARGET_ORIGIN, BODY_NONE, 0, true, false,
         false},
        {H("connect / HTTP/1.1\r\nHost: a"), TARGET_BAD, BODY_NONE, 0, true, false, false},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CASES) - 1; i++) {
        struct httphead h;
        char in[512];
        size_t used, n = strlen(CASES[i].in);
        snprintf(in, sizeof in, "%sbody", CASES[i].in);
        if (feed_all_ways(&h, false, in, n + 4, 4096, &used) != HEAD_DONE)
            fail_msg("case %zu: %s", i, h.why);
        assert_int_equal(used, n);
        assert_int_equal(h.target_kind, CASES[i].kind);
        assert_int_equal(h.body, CASES[i].body);
        assert_int_equal(h.body_len, CASES[i].len);
        assert_int_equal(h.keep_alive, CASES[i].keep);
        assert_int_equal(h.expect_continue, CASES[i].expect);
        assert_int_equal(h.upgrade, CASES[i].upgrade);
        httphead_done(&h);
    }
}

static void test_bad_requests(void **state)
{
    static const char *const CASES[] = {
        H("GET / HTTP/1.1"),                       /* no Host */
        H("GET / HTTP/1.1\r\nHost: a\r\nHost: a"), /* two */
        H("GET / HTTP/1.0\r\nHost: a\r\nhost: b"),
        H("CONNECT a:1 HTTP/1.1\r\nHost: a\r\nHost: b"),
        H("GET / HTTP/2.0\r\nHost: a"),
        H("GET / HTTP/1.10\r\nHost: a"),
        H("GET / http/1.1\r\nHost: a"),
        H("GET /\r\nHost: a"),
        H("GET  / HTTP/1.1\r\nHost: a"),
        H("GET / HTTP/1.1 \r\nHost: a"),
        H(" GET / HTTP/1.1\r\nHost: a"),
        H("GET /\t HTTP/1.1\r\nHost: a"),
        H("GET /\xc3\xa9 HTTP/1.1\r\nHost: a"),
        H("GET /\x7f HTTP/1.1\r\nHost: a"),
        H("G(T / HTTP/1.1\r\nHost: a"),
        H("GET x HTTP/1.1\r\nHost: a"),
        H("GET http:/a HTTP/1.1\r\nHost: a"),
        H("GET / HTTP/1.1\r\nHost : a"),
        H("GET / HTTP/1.1\r\nHost: a\r\n folded"),
        H("GET / HTTP/1.1\r\n Host: a"),
        H("GET / HTTP/1.1\r\nHost: a\r\n: x"),
        H("GET / HTTP/1.1\r\nHost: a\r\nno colon"),
        H("GET / HTTP/1.1\r\nHost: a\r\nX: a\x01"
          "b"),
        H("GET / HTTP/1.1\r\nHost: a\r\nX: a\x7f"),
        H("GET / HTTP/1.1\r\nHost: a\r\nX\x80: a"),
        "GET / HTTP/1.1\nHost: a\n\n",
        "GET / HTTP/1.1\r\nHost: a\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n",
        "GET / HTTP/1.1\r\r\nHost: a\r\n\r\n",
        "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "\rGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        H("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked"),
        H("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5"),
        H("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5"),
        H("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5"),
        H("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1"),
        H("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 05"),
        H("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5"),
        H("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5 5"),
        H("POST / HTTP/1.1\r\nHost: a\r\nContent-Length:"),
        H("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999999999999999"),
        H("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked"),
        H("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
        H("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked"),
        H("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0b"
          "chunked"),
        H("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:"),
        H("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked"),
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        struct httphead h;
        size_t used;
        if (feed_all_ways(&h, false, CASES[i], strlen(CASES[i]), 4096, &used) != HEAD_BAD)
            fail_msg("taken: %s", CASES[i]);
        assert_non_null(h.why);
        httphead_done(&h);
    }
}

static void test_nul(void **state)
{
    static const char IN[] = "GET http://ok.test\0.no.test/ HTTP/1.1\r\nHost: a\r\n\r\n";
    struct httphead h;
    size_t used;
    (void)state;
    assert_int_equal(feed_all_ways(&h, false, IN, sizeof IN - 1, 4096, &used), HEAD_BAD);
    httphead_done(&h);
}

static void test_sizes(void **state)
{
    struct httphead h;
    struct str in = {0};
    size_t used;
    (void)state;
    str_puts(&in, "GET / HTTP/1.1\r\nHost: a\r\nX: ");
    while (in.len < 1020)
        str_putc(&in, 'x');
    str_puts(&in, "\r\n\r\n");
    assert_int_equal(feed_all_ways(&h, false, in.data, in.len, 1024, &used), HEAD_DONE);
    httphead_done(&h);
    assert_int_equal(feed_all_ways(&h, false, in.data, in.len, 1023, &used), HEAD_BAD);
    assert_true(h.too_large);
    httphead_done(&h);
    str_clear(&in);
    str_puts(&in, "GET / HTTP/1.1\r\nHost: a\r\n");
    for (int i = 1; i < HEAD_FIELDS_MAX; i++)
        str_puts(&in, "A: b\r\n");
    size_t n = in.len;
    str_puts(&in, "\r\n");
    assert_int_equal(feed_all_ways(&h, false, in.data, in.len, 65536, &used), HEAD_DONE);
    assert_int_equal(h.n_fields, HEAD_FIELDS_MAX);
    httphead_done(&h);
    in.len = n;
    str_puts(&in, "A: b\r\n\r\n");
    assert_int_equal(feed_all_ways(&h, false, in.data, in.len, 65536, &used), HEAD_BAD);
    assert_true(h.too_large);
    httphead_done(&h);
    str_done(&in);
}

static void test_fields(void **state)
{
    static const char IN[] = H("GET / HTTP/1.1\r\nHost:  a b \t\r\nX-One:1\r\nx-one: 2\r\nE:");
    struct httphead h;
    size_t used;
    (void)state;
    assert_int_equal(feed_all_ways(&h, false, IN, sizeof IN - 1, 4096, &used), HEAD_DONE);
    const struct head_field *f = httphead_find(&h, "HOST");
    assert_int_equal(f->value_len, 3);
    assert_memory_equal(f->value, "a b", 3);
    assert_int_equal(httphead_count(&h, "X-ONE"), 2);
    assert_memory_equal(httphead_find(&h, "X-One")->value, "1", 1);
    assert_int_equal(httphead_find(&h, "e")->value_len, 0);
    assert_null(httphead_find(&h, "host2"));
    assert_int_equal(h.method_len, 3);
    httphead_done(&h);
}

static void test_responses(void **state)
{
    static const struct {
        const char *in;
        int status;
        enum body_kind body;
        bool keep;
    } CASES[] = {
        {H("HTTP/1.1 200 OK"), 200, BODY_UNTIL_CLOSE, true},
        {H("HTTP/1.1 200"), 200, BODY_UNTIL_CLOSE, true},
        {H("HTTP/1.0 200 OK\r\nContent-Length: 3"), 200, BODY_LENGTH, false},
        {H("HTTP/1.1 404 \xe9\r\nTransfer-Encoding: chunked"), 404, BODY_CHUNKED, true},
        {H("HTTP/1.1 100 Continue"), 100, BODY_NONE, true},
        {H("HTTP/1.1 204 No\r\nConnection: close"), 204, BODY_NONE, false},
        {H("HTTP/1.1 304 Not Modified\r\nContent-Length: 10"), 304, BODY_NONE, true},
    };
    static const char *const BAD[] = {
        H("HTTP/1.1 20 OK"),
        H("HTTP/1.1 2000 OK"),
        H("HTTP/1.1 099 OK"),
        H("HTTP/1.1 600 OK"),
        H("HTTP/1.1  200 OK"),
        H("HTTP/2 200 OK"),
        H("ICY 200 OK"),
        H("SSH-2.0-OpenSSH_9.2"),
        H("HTTP/1.1 200 O\x01K"),
        H("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip"),
        H("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3"),
        "\r\nHTTP/1.1 200 OK\r\n\r\n",
        "\r\n\r\n",
    };
    struct httphead h;
    size_t used;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        if (feed_all_ways(&h, true, CASES[i].in, strlen(CASES[i].in), 4096, &used) != HEAD_DONE)
            fail_msg("%s: %s", CASES[i].in, h.why);
        assert_int_equal(h.status, CASES[i].status);
        assert_int_equal(h.body, CASES[i].body);
        assert_int_equal(h.keep_alive, CASES[i].keep);
        httphead_done(&h);
    }
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
        if (feed_all_ways(&h, true, BAD[i], strlen(BAD[i]), 4096, &used) != HEAD_BAD)
            fail_msg("taken: %s", BAD[i]);
        httphead_done(&h);
    }
}

static enum head_result chunks_all_ways(const char *in, size_t n, size_t *ret_used)
{
    struct chunks c;
    chunks_init(&c);
    enum head_result result = chunks_feed(&c, in, n, ret_used);
    for (unsigned way = 0; way < 20; way++) {
        enum head_result r = HEAD_MORE;
        size_t at = 0;
        chunks_init(&c);
        while (r == HEAD_MORE && at < n) {
            size_t used, piece = way == 0 ? 1 : 1 + (at * 7 + way * 13) % (way * 5);
            r = chunks_feed(&c, in + at, piece < n - at ? piece : n - at, &used);
            at += used;
        }
        assert_int_equal(r, result);
        if (r == HEAD_DONE)
            assert_int_equal(at, *ret_used);
    }
    return result;
}

static void test_chunks(void **state)
{
    static const char *const GOOD[] = {
        "0\r\n\r\n",
        "5\r\nhello\r\n0\r\n\r\n",
        "A;name=\"va lue\"\r\n0123456789\r\n000\r\n\r\n",
        "5\r\nhello\r\n1\r\n!\r\n0\r\nTrailer: yes\r\nX:\r\n\r\n",
    };
    static const char *const BAD[] = {
        "\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        " 5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n",
        "-5\r\nhello\r\n",
        "+5\r\nhello\r\n",
        "5\nhello\r\n",
        "5;a\nhello\r\n",
        "5;a\r\r\nhello\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello\r0\r\n\r\n",
        ";\r\n",
        "g\r\n",
        "fffffffffffffffff\r\n",
        "0000000000000000000000005\r\nhello\r\n0\r\n\r\n",
        "0\r\n folded\r\n\r\n",
        "0\r\nA b: c\r\n\r\n",
        "0\r\n: c\r\n\r\n",
        "0\r\nA: \x01\r\n\r\n",
        "0\r\nA: b\n\r\n",
        "0\r\n\rX",
    };
    size_t used;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(GOOD); i++) {
        char in[256];
        snprintf(in, sizeof in, "%sGET / HTTP/1.1", GOOD[i]);
        if (chunks_all_ways(in, strlen(in), &used) != HEAD_DONE)
            fail_msg("refused: %s", GOOD[i]);
        assert_int_equal(used, strlen(GOOD[i]));
        for (size_t n = 0; n < strlen(GOOD[i]); n++)
            assert_int_equal(chunks_all_ways(in, n, &used), HEAD_MORE);
    }
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++)
        if (chunks_all_ways(BAD[i], strlen(BAD[i]), &used) != HEAD_BAD)
            fail_msg("taken: %s", BAD[i]);
}

static void test_chunk_bounds(void **state)
{
    struct str in = {0};
    size_t used;
    (void)state;
    str_puts(&in, "5;");
    for (int i = 0; i < CHUNK_LINE_MAX; i++)
        str_putc(&in, 'x');
    assert_int_equal(chunks_all_ways(in.data, in.len, &used), HEAD_BAD);
    str_clear(&in);
    str_puts(&in, "0\r\n");
    while (in.len < CHUNK_TRAILER_MAX + 3)
        str_puts(&in, "A: b\r\n");
    assert_int_equal(chunks_all_ways(in.data, in.len, &used), HEAD_BAD);
    str_done(&in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests), cmocka_unit_test(test_bad_requests),
        cmocka_unit_test(test_nul),      cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_fields),   cmocka_unit_test(test_responses),
        cmocka_unit_test(test_chunks),   cmocka_unit_test(test_chunk_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
