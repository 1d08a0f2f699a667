/* egress/rewrite, egress/reply: what upstream and the client get to see. */
#include "base/mem.h"
#include "egress/reply.h"
#include "egress/rewrite.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void test_uris(void **state)
{
    static const struct {
        const char *in, *host, *path;
        uint16_t port;
    } CASES[] = {
        {"http://ok.test/", "ok.test", "/", 80},
        {"HTTP://OK.test", "ok.test", "", 80},
        {"http://ok.test:8080/a?b=c", "ok.test", "/a?b=c", 8080},
        {"http://ok.test?b", "ok.test", "?b", 80},
        {"http://[2001:db8::1]:8080/x", "2001:db8::1", "/x", 8080},
        {"https://ok.test/", NULL, NULL, 0},
        {"ftp://ok.test/", NULL, NULL, 0},
        {"http://", NULL, NULL, 0},
        {"http:///x", NULL, NULL, 0},
        {"http://a@ok.test/", NULL, NULL, 0},
        {"http://ok.test\\.no.test/", NULL, NULL, 0},
        {"http://ok.test%2f.no.test/", NULL, NULL, 0},
        {"http://ok.test/#x", NULL, NULL, 0},
        {"http://ok.test#x", NULL, NULL, 0},
        {"http://ok.test:/", NULL, NULL, 0},
        {"http://ok.test:080/", NULL, NULL, 0},
        {"http://[ok.test]/", NULL, NULL, 0},
        {"http://0x7f.1/", NULL, NULL, 0},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        char host[HOST_MAX];
        const char *path;
        uint16_t port;
        size_t n;
        const char *why = uri_parse(CASES[i].in, strlen(CASES[i].in), host, &port, &path, &n);
        if ((why == NULL) != (CASES[i].host != NULL))
            fail_msg("%s: %s", CASES[i].in, why != NULL ? why : "taken");
        if (why != NULL)
            continue;
        assert_string_equal(host, CASES[i].host);
        assert_int_equal(port, CASES[i].port);
        assert_int_equal(n, strlen(CASES[i].path));
        assert_memory_equal(path, CASES[i].path, n);
    }
}

static void check_request(const char *in, const char *expected)
{
    CLEANUP(httphead_done) struct httphead h;
    CLEANUP(str_done) struct str out = {0};
    char host[HOST_MAX];
    const char *path;
    uint16_t port;
    size_t used, n;
    httphead_init(&h, 65536, false);
    assert_int_equal(httphead_feed(&h, in, strlen(in), &used), HEAD_DONE);
    assert_null(uri_parse(h.target, h.target_len, host, &port, &path, &n));
    assert_int_equal(rewrite_request(&out, &h, host, port, path, n), 0);
    assert_string_equal(str_c(&out), expected);
}

static void test_requests(void **state)
{
    (void)state;
    check_request(
        "GET http://ok.test:8080/a HTTP/1.1\r\nHost: no.test\r\nProxy-Connection: x\r\n"
        "Proxy-Authorization: Basic x\r\nConnection: keep-alive, X-Drop, Content-Length\r\n"
        "X-Drop: 1\r\nx-keep:  2\r\nTE: trailers\r\nKeep-Alive: 5\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: ok.test:8080\r\nx-keep: 2\r\n\r\n");
    check_request("POST http://OK.test?q HTTP/1.1\r\nHost: x\r\nConnection: Content-Length\r\n"
                  "Content-Length: 3\r\nExpect: 100-continue\r\n\r\n",
                  "POST /?q HTTP/1.1\r\nHost: ok.test\r\nExpect: 100-continue\r\n"
                  "Content-Length: 3\r\n\r\n");
    check_request("PUT http://[::1]/ HTTP/1.1\r\nHost: x\r\nConnection: transfer-encoding\r\n"
                  "Transfer-Encoding: Chunked\r\nTrailer: a\r\n\r\n",
                  "PUT / HTTP/1.1\r\nHost: [::1]\r\nTrailer: a\r\n"
                  "Transfer-Encoding: chunked\r\n\r\n");
    check_request("OPTIONS http://ok.test HTTP/1.1\r\nHost: x\r\n\r\n",
                  "OPTIONS * HTTP/1.1\r\nHost: ok.test\r\n\r\n");
    check_request("GET http://ok.test HTTP/1.0\r\n\r\n", "GET / HTTP/1.0\r\nHost: ok.test\r\n\r\n");
    check_request("GET http://ok.test/ HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n"
                  "Connection: Upgrade\r\n\r\n",
                  "GET / HTTP/1.1\r\nHost: ok.test\r\nUpgrade: websocket\r\n"
                  "Connection: Upgrade\r\n\r\n");
    check_request("GET http://ok.test/ HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n\r\n",
                  "GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n");
}

static void check_for_proxy(const char *in, const char *authorization, const char *expected)
{
    CLEANUP(str_done) struct str head = {0}, out = {0};
    assert_int_equal(str_puts(&head, in), 0);
    assert_int_equal(rewrite_for_proxy(&out, &head, authorization), 0);
    assert_string_equal(str_c(&out), expected);
}

static void test_for_proxy(void **state)
{
    (void)state;
    check_for_proxy("GET /a?b HTTP/1.1\r\nHost: ok.test:8080\r\nX: y\r\n\r\n", "",
                    "GET http://ok.test:8080/a?b HTTP/1.1\r\nHost: ok.test:8080\r\nX: y\r\n\r\n");
    check_for_proxy("GET /?Host:x HTTP/1.0\r\nHost: [2001:db8::1]\r\n\r\n", "Basic eDp5",
                    "GET http://[2001:db8::1]/?Host:x HTTP/1.0\r\nHost: [2001:db8::1]\r\n"
                    "Proxy-Authorization: Basic eDp5\r\n\r\n");
    check_for_proxy("OPTIONS * HTTP/1.1\r\nHost: ok.test\r\n\r\n", "",
                    "OPTIONS http://ok.test HTTP/1.1\r\nHost: ok.test\r\n\r\n");
    CLEANUP(str_done) struct str out = {0}, head = {0};
    assert_int_equal(str_puts(&head, "nothing of the kind"), 0);
    assert_true(rewrite_for_proxy(&out, &head, "") < 0);
}

static void check_response(const char *in, struct rewrite_response how, const char *expected)
{
    CLEANUP(httphead_done) struct httphead h;
    CLEANUP(str_done) struct str out = {0};
    size_t used;
    httphead_init(&h, 65536, true);
    assert_int_equal(httphead_feed(&h, in, strlen(in), &used), HEAD_DONE);
    assert_int_equal(rewrite_response(&out, &h, &how), 0);
    assert_string_equal(str_c(&out), expected);
}

static void test_responses(void **state)
{
    const struct rewrite_response keep = {.keep_alive = true, .client_minor = 1},
                                  close = {.client_minor = 1}, old = {.keep_alive = true},
                                  up = {.keep_alive = true, .client_minor = 1, .upgraded = true};
    (void)state;
    check_response("HTTP/1.0 200 Fine\r\nConnection: keep-alive\r\nContent-Length: 2\r\n"
                   "Proxy-Authenticate: Basic\r\nHost: x\r\n\r\n",
                   keep, "HTTP/1.1 200 Fine\r\nHost: x\r\nContent-Length: 2\r\n\r\n");
    check_response("HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n", close,
                   "HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n");
    check_response("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", old,
                   "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\n");
    check_response("HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\n", keep,
                   "HTTP/1.1 204 No\r\n\r\n");
    check_response("HTTP/1.1 304 Not\r\nContent-Length: 9\r\n\r\n", keep,
                   "HTTP/1.1 304 Not\r\nContent-Length: 9\r\n\r\n");
    check_response("HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
                   up,
                   "HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
    check_response("HTTP/1.1 100 Continue\r\n\r\n", close, "HTTP/1.1 100 Continue\r\n\r\n");
}

static void test_replies(void **state)
{
    struct reply r = {.status = 403,
                      .code = "site_not_listed",
                      .host = "no.test",
                      .port = 443,
                      .detail = "no.test:443 is on no list",
                      .rule = "a \"rule\"\n",
                      .hint = "cordon sites add no.test:443"};
    CLEANUP(str_done) struct str text = {0}, json = {0}, head = {0};
    (void)state;
    assert_int_equal(reply_put(&text, &r, false, false), 0);
    assert_int_equal(strncmp(str_c(&text), "HTTP/1.1 403 Blocked by Cordon: no.test:443\r\n", 45),
                     0);
    assert_non_null(strstr(str_c(&text), "\r\nConnection: close\r\n\r\nBlocked by Cordon: "));
    assert_non_null(strstr(str_c(&text), "\nWhat to do: cordon sites add no.test:443\n"));
    assert_int_equal(reply_put(&json, &r, true, false), 0);
    assert_non_null(strstr(str_c(&json), "\"host\":\"no.test\",\"port\":443,"));
    assert_non_null(strstr(str_c(&json), "\"rule\":\"a \\\"rule\\\"\\u000a\""));
    r.detail = "a\r\nb\"\\";
    assert_int_equal(reply_put(&head, &r, false, true), 0);
    assert_non_null(strstr(str_c(&head), "details=\"a??b??\"\r\n"));
    assert_string_equal(strstr(str_c(&head), "\r\n\r\n"), "\r\n\r\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uris),      cmocka_unit_test(test_requests),
        cmocka_unit_test(test_for_proxy), cmocka_unit_test(test_responses),
        cmocka_unit_test(test_replies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
