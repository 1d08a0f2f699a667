/* Runs in: any. Reads: trusted. May block: no.
 *
 * api/http_head: what the library may see. */
#include "api/http.h"
#include "api/http_head.h"
#include "base/mem.h"
#include "base/str.h"
#include "unit.h"
#include <string.h>

static void expect(const char *bytes, size_t n, enum head_state want, const char *want_code)
{
    const char *code = NULL, *why = NULL;
    enum head_state got = head_judge(bytes, n, &code, &why);

    if (got != want)
        fail_msg("%d instead of %d (%s): %.*s", got, want, why ? why : "", (int)n, bytes);
    if (want_code) {
        assert_string_equal(code, want_code);
        assert_true(strlen(why) > 10);
    }
}
#define WHOLE(text)         expect(text, sizeof text - 1, HEAD_WHOLE, NULL)
#define REFUSED(code, text) expect(text, sizeof text - 1, HEAD_REFUSED, code)
#define GET                 "GET /v1/health HTTP/1.1\r\n"

static void taken(void **state)
{
    (void)state;
    WHOLE(GET "\r\n");
    WHOLE("\r\n\r\n" GET "Host: localhost\r\n\r\n");
    WHOLE(GET "Host: a\r\nX:\r\nY: \t \r\nZ: \xc3\xa4 \t b\r\n\r\nrest \n of \r it");
    WHOLE("M-SEARCH * HTTP/1.0\r\n\r\n");
    WHOLE("GET http://a/ HTTP/1.1\r\n\r\n"); /* refused later, with its Host */
    WHOLE("POST / HTTP/1.1\r\ncontent-length:\t9223372036854775807 \r\n\r\n");
    WHOLE("POST / HTTP/1.1\r\nTRANSFER-ENCODING: Chunked\r\n\r\n");
}

static void not_yet(void **state)
{
    static const char head[] = GET "Host: localhost:7411\r\nContent-Length: 2\r\n\r\n";
    (void)state;
    expect("", 0, HEAD_PARTIAL, NULL);
    for (size_t n = 0; n < sizeof head - 1; n++)
        expect(head, n, HEAD_PARTIAL, NULL);
    expect(head, sizeof head - 1, HEAD_WHOLE, NULL);
}

static void refused(void **state)
{
    (void)state;
    REFUSED("json_invalid", "GARBAGE\r\n");
    REFUSED("json_invalid", "GET /\r\n");
    REFUSED("json_invalid", "GET  HTTP/1.1\r\n");
    REFUSED("json_invalid", " GET / HTTP/1.1\r\n");
    REFUSED("json_invalid", "GET / HTTP/1.1 \r\n");
    REFUSED("json_invalid", "GET /a b HTTP/1.1\r\n");
    REFUSED("json_invalid", "GET /\xff HTTP/1.1\r\n");
    REFUSED("json_invalid", "GET /\0 HTTP/1.1\r\n");
    REFUSED("json_invalid", "G(T / HTTP/1.1\r\n");
    REFUSED("json_invalid", "GET / http/1.1\r\n");
    REFUSED("json_invalid", "\x16\x03\x01\x02\x00\x01\n");
    REFUSED("host_missing", "PRI * HTTP/2.0\r\n");
    REFUSED("host_missing", "GET / HTTP/1.2\r\n");
    REFUSED("json_invalid", "GET / HTTP/1.1\n");
    REFUSED("json_invalid", GET "X: a\n");
    REFUSED("json_invalid", GET "X: a\rY: b\r\n");
    REFUSED("json_invalid", GET " X: a\r\n");
    REFUSED("json_invalid", GET "X: a\r\n b\r\n");
    REFUSED("json_invalid", GET "X: a\r\n\tb\r\n");
    REFUSED("json_invalid", GET "X : a\r\n");
    REFUSED("json_invalid", GET "X\r\n");
    REFUSED("json_invalid", GET ": a\r\n");
    REFUSED("json_invalid", GET "Host: localhost\0.evil\r\n");
    REFUSED("json_invalid", GET "X: \x7f\r\n");
}

static void lengths(void **state)
{
    (void)state;
    REFUSED("json_invalid", GET "Content-Length: \r\n");
    REFUSED("json_invalid", GET "Content-Length: +2\r\n");
    REFUSED("json_invalid", GET "Content-Length: -2\r\n");
    REFUSED("json_invalid", GET "Content-Length: 2, 2\r\n");
    REFUSED("json_invalid", GET "Content-Length: 0x2\r\n");
    REFUSED("json_invalid", GET "Content-Length: 2\r\nContent-Length: 2\r\n");
    REFUSED("body_too_large", GET "Content-Length: 9223372036854775808\r\n");
    REFUSED("body_too_large", GET "Content-Length: 99999999999999999999999999999999\r\n");
    REFUSED("json_invalid", GET "Transfer-Encoding: gzip\r\n");
    REFUSED("json_invalid", GET "Transfer-Encoding: gzip, chunked\r\n");
    REFUSED("json_invalid", GET "Transfer-Encoding:\r\n");
    REFUSED("json_invalid", GET "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n");
    REFUSED("json_invalid", GET "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n");
    REFUSED("json_invalid", GET "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n");
}

static void too_large(void **state)
{
    CLEANUP(str_done) struct str head = {0};
    (void)state;

    assert_int_equal(str_puts(&head, GET "X: "), 0);
    while (head.len < API_HEAD_MAX - 4)
        assert_int_equal(str_putc(&head, 'a'), 0);
    assert_int_equal(str_puts(&head, "\r\n\r\n"), 0);
    assert_int_equal(head.len, API_HEAD_MAX);
    expect(head.data, head.len, HEAD_WHOLE, NULL);
    assert_int_equal(str_puts(&head, "its body is none of the head"), 0);
    expect(head.data, head.len, HEAD_WHOLE, NULL);

    str_clear(&head);
    while (head.len <= API_HEAD_MAX)
        assert_int_equal(str_putc(&head, 'a'), 0);
    expect(head.data, head.len, HEAD_REFUSED, "headers_too_large");
    expect(head.data, head.len - 1, HEAD_PARTIAL, NULL);
}

static void many_fields(void **state)
{
    CLEANUP(str_done) struct str head = {0};
    (void)state;

    assert_int_equal(str_puts(&head, GET), 0);
    for (int i = 0; i < API_FIELDS_MAX; i++)
        assert_int_equal(str_puts(&head, "X: a\r\n"), 0);
    expect(head.data, head.len, HEAD_PARTIAL, NULL);
    assert_int_equal(str_puts(&head, "X: a\r\n"), 0);
    expect(head.data, head.len, HEAD_REFUSED, "headers_too_large");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(taken),     cmocka_unit_test(not_yet),
                                       cmocka_unit_test(refused),   cmocka_unit_test(lengths),
                                       cmocka_unit_test(too_large), cmocka_unit_test(many_fields)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
