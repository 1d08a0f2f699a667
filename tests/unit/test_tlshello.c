/* wire/tlshello: the server's name out of hellos built here, whole and in any split of bytes and
 * records; what is no TLS; what no server may be allowed to read otherwise. */
#include "unit.h"

#include "base/mem.h"
#include "base/str.h"
#include "wire/tlshello.h"

static void put(struct str *s, const void *bytes, size_t n)
{
    assert_int_equal(str_add(s, bytes, n), 0);
}

static void put_number(struct str *s, size_t value, size_t bytes)
{
    for (size_t i = bytes; i-- > 0;)
        assert_int_equal(str_putc(s, (char)(value >> (8 * i))), 0);
}

static void put_extension(struct str *s, unsigned type, const void *body, size_t n)
{
    put_number(s, type, 2);
    put_number(s, n, 2);
    put(s, body, n);
}

static void put_name(struct str *s, const char *name, size_t n)
{
    put_number(s, 0, 2); /* server_name */
    put_number(s, n + 5, 2);
    put_number(s, n + 3, 2);
    put_number(s, 0, 1);
    put_number(s, n, 2);
    put(s, name, n);
}

/* The handshake message; EXTENSIONS NULL = none at all. */
static struct str hello(const struct str *extensions)
{
    struct str body = {0}, message = {0};
    put(&body, "\x03\x03", 2);
    for (int i = 0; i < 32; i++)
        put_number(&body, (size_t)i, 1);
    put_number(&body, 8, 1);
    put(&body, "12345678", 8);
    put_number(&body, 4, 2);
    put(&body, "\x13\x01\x13\x02", 4);
    put_number(&body, 1, 1);
    put_number(&body, 0, 1);
    if (extensions) {
        put_number(&body, extensions->len, 2);
        put(&body, extensions->data, extensions->len);
    }
    put_number(&message, 1, 1);
    put_number(&message, body.len, 3);
    put(&message, body.data, body.len);
    str_done(&body);
    return message;
}

static struct str records(const struct str *message, size_t piece)
{
    struct str out = {0};
    for (size_t at = 0; at < message->len; at += piece) {
        size_t n = piece < message->len - at ? piece : message->len - at;
        put(&out, "\x16\x03\x01", 3);
        put_number(&out, n, 2);
        put(&out, message->data + at, n);
    }
    return out;
}

static enum hello_result feed(struct tlshello *h, const char *in, size_t n, size_t step)
{
    enum hello_result r = HELLO_MORE;
    tlshello_init(h);
    for (size_t at = 0; r == HELLO_MORE && at < n; at += step)
        r = tlshello_feed(h, in + at, step < n - at ? step : n - at);
    return r;
}

static enum hello_result feed_all_ways(struct tlshello *ret, const struct str *in)
{
    enum hello_result r = feed(ret, in->data, in->len, in->len);
    for (size_t step = 1; step < in->len && step < 80; step++) {
        struct tlshello h;
        assert_int_equal(feed(&h, in->data, in->len, step), r);
        assert_string_equal(h.name, ret->name);
        assert_int_equal(h.has_ech, ret->has_ech);
        tlshello_done(&h);
    }
    return r;
}

/* Takes EXTENSIONS, in records of each size. */
static void expect(struct str *extensions, enum hello_result want, const char *name,
                   const char *why)
{
    struct str message = hello(extensions);
    for (size_t piece = 1; piece <= message.len; piece += piece < 8 ? 1 : message.len / 3) {
        struct str in = records(&message, piece);
        struct tlshello h;
        assert_int_equal(feed_all_ways(&h, &in), want);
        assert_string_equal(h.name, name);
        if (why && !strstr(h.why, why))
            fail_msg("%s, not %s", h.why, why);
        tlshello_done(&h);
        str_done(&in);
    }
    str_done(&message);
    str_done(extensions);
}

static void names(void **state)
{
    struct str e = {0};
    (void)state;
    put_extension(&e, 10, "\0\2\0\x1d", 4);
    put_name(&e, "Ok.Test", 7);
    put_extension(&e, 16, "\0\3\2h2", 5);
    expect(&e, HELLO_DONE, "ok.test", NULL);
    put_name(&e, "ok.test.", 8);
    expect(&e, HELLO_DONE, "ok.test", NULL);
    put_name(&e, "203.0.113.10", 12); /* no name by RFC 6066, yet some send it */
    expect(&e, HELLO_DONE, "203.0.113.10", NULL);
    put_extension(&e, 10, "\0\2\0\x1d", 4);
    expect(&e, HELLO_DONE, "", NULL);
    expect(&e, HELLO_DONE, "", NULL); /* an empty list of extensions */
    struct str none = hello(NULL), in = records(&none, none.len);
    struct tlshello h;
    assert_int_equal(feed_all_ways(&h, &in), HELLO_DONE);
    assert_string_equal(h.name, "");
    tlshello_done(&h);
    str_done(&none);
    str_done(&in);
}

static void encrypted_hello(void **state)
{
    struct str e = {0};
    struct tlshello h;
    (void)state;
    put_name(&e, "outer.test", 10);
    put_extension(&e, 0xfe0d, "\0whatever", 9);
    struct str message = hello(&e), in = records(&message, message.len);
    assert_int_equal(feed_all_ways(&h, &in), HELLO_DONE);
    assert_string_equal(h.name, "outer.test");
    assert_true(h.has_ech);
    tlshello_done(&h);
    str_done(&e);
    str_done(&message);
    str_done(&in);
}

static void what_reads_two_ways(void **state)
{
    struct str e = {0};
    (void)state;
    put_name(&e, "ok.test", 7);
    put_name(&e, "no.test", 7);
    expect(&e, HELLO_BAD, "", "comes twice");
    put_extension(&e, 10, "", 0);
    put_extension(&e, 10, "", 0);
    expect(&e, HELLO_BAD, "", "comes twice");
    put_extension(&e, 0, "\0\x14\0\0\7ok.test\0\0\7no.test", 22); /* two in one list */
    expect(&e, HELLO_BAD, "", "not one host's");
    put_extension(&e, 0, "\0\x0a\1\0\7ok.test", 12); /* a type that is none */
    expect(&e, HELLO_BAD, "", "not one host's");
    put_extension(&e, 0, "\0\x0a\0\0\7ok.testX", 13);
    expect(&e, HELLO_BAD, "", "wrong length");
    put_extension(&e, 0, "\0\x03\0\0\0", 5);
    expect(&e, HELLO_BAD, "", "not one host's");
    put_extension(&e, 0, "", 0);
    expect(&e, HELLO_BAD, "", "wrong length");
    put_name(&e, "no.test\0.ok.test", 16);
    expect(&e, HELLO_BAD, "", "neither a name");
    put_name(&e, "ok.test ", 8);
    expect(&e, HELLO_BAD, "", "neither a name");
    put_number(&e, 0, 2);
    put_number(&e, 40, 2);
    expect(&e, HELLO_BAD, "", "cut off");
}

static void other_bytes(void **state)
{
    static const struct {
        const char *in;
        size_t n;
        enum hello_result want;
    } CASES[] = {
        {"GET / HTTP/1.1\r\n", 16, HELLO_NOT_TLS},
        {"SSH-2.0-x\r\n", 11, HELLO_NOT_TLS},
        {"\x80\x2e\x01\x03\x01", 5, HELLO_NOT_TLS}, /* SSL 2's hello names nobody */
        {"\x16\x02", 2, HELLO_NOT_TLS},
        {"\x17\x03\x03", 3, HELLO_NOT_TLS},
        {"\x16\x03\x01\x00\x00", 5, HELLO_BAD},
        {"\x16\x03\x01\x40\x01", 5, HELLO_BAD},
        {"\x16\x03\x01\x00\x04\x02", 6, HELLO_BAD},
        {"\x16\x03\x01\x00\x04\x01\x01\x00\x00", 9, HELLO_BAD}, /* 65,536 bytes to come */
        {"\x16\x03\x01\x00\x01\x01\x17\x03\x03\x00\x01", 11,
         HELLO_BAD}, /* another record between */
        {"\x16\x03\x01\x00\x01\x01\x16\x02", 8, HELLO_BAD},
        {"\x16\x03\x01\x00\x04\x01\x00\x00\x00", 9, HELLO_BAD}, /* empty */
        {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03", 10, HELLO_MORE},
        {"\x16", 1, HELLO_MORE},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        struct str in = {0};
        struct tlshello h;
        put(&in, CASES[i].in, CASES[i].n);
        assert_int_equal(feed_all_ways(&h, &in), CASES[i].want);
        assert_true((h.why != NULL) == (CASES[i].want == HELLO_BAD));
        tlshello_done(&h);
        str_done(&in);
    }
}

static void what_follows(void **state)
{
    struct str e = {0};
    struct tlshello h;
    (void)state;
    put_name(&e, "ok.test", 7);
    struct str message = hello(&e);
    struct str in = records(&message, message.len);
    put(&in,
        "\x17\x03\x03\x00\x05"
        "early",
        10); /* a record of its own: not looked at */
    assert_int_equal(feed_all_ways(&h, &in), HELLO_DONE);
    assert_string_equal(h.name, "ok.test");
    tlshello_done(&h);
    str_done(&in);
    put(&message, "\x14", 1); /* in the same record: whose would it be? */
    in = records(&message, message.len);
    assert_int_equal(feed_all_ways(&h, &in), HELLO_BAD);
    tlshello_done(&h);
    str_done(&in);
    str_done(&message);
    str_done(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),        cmocka_unit_test(encrypted_hello),
        cmocka_unit_test(other_bytes),  cmocka_unit_test(what_reads_two_ways),
        cmocka_unit_test(what_follows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
