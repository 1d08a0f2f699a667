/* wire/socks: greetings and requests of three versions, whole, byte by byte and in splits; case 55.
 */
#include "unit.h"

#include "base/mem.h"
#include "wire/socks.h"

static enum socks_result feed(struct socks *s, const char *in, size_t n, size_t step,
                              size_t *ret_at)
{
    enum socks_result r = SOCKS_MORE;
    size_t at = 0;
    while (at < n && (r == SOCKS_MORE || r == SOCKS_GREETED)) {
        size_t used, piece = step < n - at ? step : n - at;
        r = socks_feed(s, in + at, piece, &used);
        if (r == SOCKS_MORE)
            assert_int_equal(used, piece);
        at += used;
    }
    *ret_at = at;
    return r;
}

/* Fed whole, and in each size of piece: the same result, the same host, as many bytes taken. */
static enum socks_result feed_all_ways(struct socks *ret, const char *in, size_t n, size_t *ret_at)
{
    socks_init(ret);
    enum socks_result r = feed(ret, in, n, n, ret_at);
    for (size_t step = 1; step < n; step++) {
        struct socks s;
        size_t at;
        socks_init(&s);
        assert_int_equal(feed(&s, in, n, step, &at), r);
        assert_int_equal(at, *ret_at);
        assert_string_equal(s.host, ret->host);
        assert_int_equal(s.port, ret->port);
        assert_int_equal(s.answer_len, ret->answer_len);
        assert_memory_equal(s.answer, ret->answer, s.answer_len);
    }
    return r;
}

#define BYTES(text)    text, sizeof(text) - 1
#define GREETING       "\x05\x01\x00"
#define NAMED(n, name) GREETING "\x05\x01\x00\x03" n name "\x01\xbb"

static void what_is_asked(void **state)
{
    static const struct {
        const char *in;
        size_t n;
        const char *host;
        uint16_t port;
        enum host_kind kind;
    } CASES[] = {
        {BYTES(NAMED("\x07", "ok.test")), "ok.test", 443, HOST_NAME},
        {BYTES(NAMED("\x08", "OK.Test.")), "ok.test", 443, HOST_NAME},
        {BYTES(NAMED("\x0b", "203.0.113.9")), "203.0.113.9", 443, HOST_V4},
        {BYTES("\x05\x03\x02\x01\x00\x05\x01\x00\x01\xcb\x00\x71\x0a\x1f\x90"), "203.0.113.10",
         8080, HOST_V4},
        {BYTES(GREETING "\x05\x01\x00\x04\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x10\x00\x16"),
         "2001:db8::10", 22, HOST_V6},
        {BYTES("\x04\x01\x01\xbb\xcb\x00\x71\x0a"
               "someone\0"),
         "203.0.113.10", 443, HOST_V4},
        {BYTES("\x04\x01\x00\x50\x00\x00\x00\x01\0ok.test\0"), "ok.test", 80, HOST_NAME},
        {BYTES("\x04\x01\x00\x50\x00\x00\x00\x00\0"), "0.0.0.0", 80, HOST_V4},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        struct socks s;
        size_t at;
        assert_int_equal(feed_all_ways(&s, CASES[i].in, CASES[i].n, &at), SOCKS_ASKED);
        assert_int_equal(at, CASES[i].n);
        assert_string_equal(s.host, CASES[i].host);
        assert_int_equal(s.port, CASES[i].port);
        assert_int_equal(s.kind, CASES[i].kind);
        assert_int_equal(s.version, i < 5 ? 5 : 4);
    }
}

static void what_is_refused(void **state)
{
    static const struct {
        const char *in;
        size_t n;
        const char *why;
        int answer; /* its second byte, -1 = nothing is said */
    } CASES[] = {
        {BYTES("GET / HTTP/1.1"), "neither SOCKS4 nor", -1},
        {BYTES("\x05\x00"), "password", 0xff},
        {BYTES("\x05\x02\x01\x02"), "password", 0xff},
        {BYTES(GREETING "\x04\x01\x00"), "not of SOCKS5", SOCKS_FAILED},
        {BYTES(GREETING "\x05\x02\x00"), "only CONNECT", SOCKS_NO_SUCH_COMMAND},
        {BYTES(GREETING "\x05\x03\x00"), "only CONNECT", SOCKS_NO_SUCH_COMMAND},
        {BYTES(GREETING "\x05\x01\x01"), "reserved", SOCKS_FAILED},
        {BYTES(GREETING "\x05\x01\x00\x02\x00"), "no known kind", SOCKS_NO_SUCH_ADDRESS},
        {BYTES(GREETING "\x05\x01\x00\x03\x00\x00\x50"), "neither a name", SOCKS_FAILED},
        {BYTES(GREETING "\x05\x01\x00\x03\x07ok.test\x00\x00"), "port 0", SOCKS_FAILED},
        {BYTES("\x04\x02\x00\x50"), "no BIND", 0x5b},
        {BYTES("\x04\x01\x00\x50\x00\x00\x00\x01\0\0"), "neither a name", 0x5b},
        /* Case 55: what a resolver would read otherwise than we do. */
        {BYTES(NAMED("\x0f", "no.test\0.ok.tes")), "neither", SOCKS_FAILED},
        {BYTES(NAMED("\x11", "no.test%00.ok.tes")), "neither", SOCKS_FAILED},
        {BYTES(NAMED("\x0f", "no.test .ok.tes")), "neither", SOCKS_FAILED},
        {BYTES(NAMED("\x0f", "no.test\r\n.ok.te")), "neither", SOCKS_FAILED},
        {BYTES(NAMED("\x0f", "no.test#.ok.tes")), "neither", SOCKS_FAILED},
        {BYTES(NAMED("\x0f", "no.test?.ok.tes")), "neither", SOCKS_FAILED},
        {BYTES(NAMED("\x0f", "ok.test@no.test")), "neither", SOCKS_FAILED},
        {BYTES(NAMED("\x0f", "no.test\\.ok.tes")), "neither", SOCKS_FAILED},
        {BYTES(NAMED("\x08", "ok\t.test")), "neither", SOCKS_FAILED},
        {BYTES(NAMED("\x08", "ok\x7f.test")), "neither", SOCKS_FAILED},
        {BYTES(NAMED("\x08", "ok\xff.test")), "neither", SOCKS_FAILED},
        {BYTES(NAMED("\x08", "0x7f.0.1")), "neither", SOCKS_FAILED},
        {BYTES(NAMED("\x0a", "2130706433")), "neither", SOCKS_FAILED},
        {BYTES(NAMED("\x09", "ok..test.")), "neither", SOCKS_FAILED},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        struct socks s;
        size_t at;
        uint8_t said[SOCKS_REPLY_MAX];
        assert_int_equal(feed_all_ways(&s, CASES[i].in, CASES[i].n, &at), SOCKS_BAD);
        if (!strstr(s.why, CASES[i].why))
            fail_msg("case %zu: %s", i, s.why);
        size_t n = socks_answer(&s, said);
        assert_int_equal(n > 0 ? said[1] : -1, CASES[i].answer);
    }
}

/* Nothing is asked for ever: without its end each form is refused at a fixed length. */
static void what_does_not_end(void **state)
{
    static const char *const STARTS[] = {"\x04\x01\x01\x01\x01\x01\x01\x01",
                                         "\x04\x01\x01\x01\0\0\0\x01u"};
    static const size_t LENGTHS[] = {8, 10};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct socks s;
        size_t used, fed = 0;
        socks_init(&s);
        assert_int_equal(socks_feed(&s, STARTS[i], LENGTHS[i], &used), SOCKS_MORE);
        while (socks_feed(&s, "a", 1, &used) == SOCKS_MORE)
            assert_true(++fed < 300);
        assert_int_equal(fed, 255);
        assert_non_null(strstr(s.why, "does not end"));
    }
    /* The longest name there can be in SOCKS5 is no host: 253 is a name's limit. */
    char long5[] = GREETING "\x05\x01\x00\x03\xff"
                            "0123456789";
    char in[3 + 5 + 255 + 2];
    struct socks s;
    size_t at;
    memset(in, 'a', sizeof in);
    memcpy(in, long5, 8);
    for (size_t i = 8 + 60; i < sizeof in - 2; i += 61)
        in[i] = '.';
    assert_int_equal(feed_all_ways(&s, in, sizeof in, &at), SOCKS_BAD);
}

static void what_is_replied(void **state)
{
    struct socks s;
    uint8_t said[SOCKS_REPLY_MAX];
    size_t used;
    (void)state;
    socks_init(&s);
    assert_int_equal(socks_feed(&s, GREETING "\x05", 4, &used), SOCKS_GREETED);
    assert_int_equal(used, 3); /* a client that does not wait is read on */
    assert_int_equal(socks_answer(&s, said), 2);
    assert_memory_equal(said, "\x05\x00", 2);
    assert_int_equal(socks_reply(&s, SOCKS_OPENED, said), 10);
    assert_memory_equal(said, "\x05\0\0\x01\0\0\0\0\0\0", 10);
    assert_int_equal(socks_reply(&s, SOCKS_NOT_ALLOWED, said), 10);
    assert_int_equal(said[1], 2);
    socks_init(&s);
    assert_int_equal(socks_feed(&s, "\x04", 1, &used), SOCKS_MORE);
    assert_int_equal(socks_reply(&s, SOCKS_OPENED, said), 8);
    assert_memory_equal(said, "\0\x5a\0\0\0\0\0\0", 8);
    assert_int_equal(socks_reply(&s, SOCKS_TIMED_OUT, said), 8);
    assert_int_equal(said[1], 0x5b);
    socks_init(&s);
    assert_int_equal(socks_reply(&s, SOCKS_FAILED, said), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_asked),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(what_does_not_end),
        cmocka_unit_test(what_is_replied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
