/* wire/dns: questions as resolvers put them, what is answered, and what is not. */
#include "unit.h"

#include "base/mem.h"
#include "wire/dns.h"
#include <errno.h>

#define BYTES(text) text, sizeof(text) - 1
#define HEAD(ar)    "\xab\xcd\x01\x00\x00\x01\x00\x00\x00\x00\x00" ar
#define NAME        "\x02Ok\x04test\x00"
#define OPT         "\x00\x00\x29\x10\x00\x00\x00\x80\x00\x00\x00"

static void questions(void **state)
{
    static const struct {
        const char *in;
        size_t n;
        int want;
        uint16_t type;
        const char *host;
    } CASES[] = {
        {BYTES(HEAD("\0") NAME "\0\1\0\1"), DNS_NOERROR, DNS_A, "ok.test"},
        {BYTES(HEAD("\0") NAME "\0\x1c\0\1"), DNS_NOERROR, DNS_AAAA, "ok.test"},
        {BYTES(HEAD("\1") NAME "\0\1\0\1" OPT), DNS_NOERROR, DNS_A, "ok.test"},
        {BYTES(HEAD("\0") NAME "\0\x41\0\1"), DNS_NOERROR, 65, "ok.test"}, /* HTTPS */
        {BYTES(HEAD("\0") "\4_tcp\4test\0\0\x21\0\1"), DNS_NOERROR, 33, "_tcp.test"},
        {BYTES(HEAD("\0") "\0\0\1\0\1"), DNS_NXDOMAIN, 1, ""}, /* the root */
        {BYTES(HEAD("\0") "\003"
                          "127\1"
                          "0\1"
                          "0\1"
                          "1\0\0\1\0\1"),
         DNS_NXDOMAIN, 1, ""},
        {BYTES(HEAD("\0") "\7ok.test\0\0\1\0\1"), DNS_NXDOMAIN, 1, ""}, /* a dot in a label */
        {BYTES(HEAD("\0") "\3o\0k\4test\0\0\1\0\1"), DNS_NXDOMAIN, 1, ""},
        {BYTES(HEAD("\0") "\3o k\4test\0\0\1\0\1"), DNS_NXDOMAIN, 1, ""},
        {BYTES(HEAD("\0") NAME "\0\1\0\3"), DNS_REFUSED, 1, ""}, /* of class CHAOS */
        {BYTES(HEAD("\0") NAME "\0\1\0\1x"), DNS_FORMERR, 1, ""},
        {BYTES(HEAD("\0") NAME "\0\1\0"), DNS_FORMERR, 1, ""},
        {BYTES(HEAD("\0") "\xc0\x0c\0\1\0\1"), DNS_FORMERR, 0, ""}, /* points at itself */
        {BYTES(HEAD("\0") "\x40"
                          "a\0\0\1\0\1"),
         DNS_FORMERR, 0, ""},
        {BYTES(HEAD("\0") "\5ok"), DNS_FORMERR, 0, ""},
        {BYTES(HEAD("\0")), DNS_FORMERR, 0, ""},
        {BYTES(HEAD("\2") NAME "\0\1\0\1" OPT OPT), DNS_FORMERR, 1, ""},
        {BYTES(HEAD("\1") NAME "\0\1\0\1"), DNS_FORMERR, 1, ""},
        {BYTES(HEAD("\1") NAME "\0\1\0\1\0\0\x29\x10\0\0\1\0\0\0\0"), DNS_BADVERS, 1, ""},
        {BYTES(HEAD("\5") NAME "\0\1\0\1"), DNS_FORMERR, 0, ""},
        {BYTES("\xab\xcd\x01\x00\0\2\0\0\0\0\0\0" NAME "\0\1\0\1"), DNS_FORMERR, 0, ""},
        {BYTES("\xab\xcd\x01\x00\0\1\0\1\0\0\0\0" NAME "\0\1\0\1"), DNS_FORMERR, 0, ""},
        {BYTES("\xab\xcd\x28\x00\0\1\0\0\0\0\0\0" NAME "\0\1\0\1"), DNS_NOTIMP, 0, ""}, /* UPDATE */
        {BYTES("\xab\xcd\x81\x00\0\1\0\0\0\0\0\0" NAME "\0\1\0\1"), -EBADMSG, 0, ""},
        {BYTES("\xab\xcd\x01"), -EBADMSG, 0, ""},
        {BYTES(""), -EBADMSG, 0, ""},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        struct dns_question q = {0};
        int r = dns_question_get(CASES[i].in, CASES[i].n, &q);
        if (r != CASES[i].want || q.type != CASES[i].type || strcmp(q.host, CASES[i].host) != 0)
            fail_msg("case %zu: %d, type %u, host %s", i, r, q.type, q.host);
        /* Cut off anywhere it is never a question that can be answered. */
        for (size_t n = 0; n < CASES[i].n && r == DNS_NOERROR; n++)
            assert_int_not_equal(dns_question_get(CASES[i].in, n, &q), DNS_NOERROR);
    }
}

static void longest_name(void **state)
{
    uint8_t in[12 + 255 + 4] = HEAD("\0");
    struct dns_question q;
    uint8_t out[DNS_ANSWER_MAX];
    (void)state;
    size_t at = 12;
    for (int i = 0; i < 4; i++) {
        size_t n = i < 3 ? 63 : 61;
        in[at++] = (uint8_t)n;
        memset(in + at, 'a', n);
        at += n;
    }
    in[at++] = 0;
    assert_int_equal(at, 12 + 255);
    memcpy(in + at, "\0\x1c\0\1", 4);
    assert_int_equal(dns_question_get(in, sizeof in, &q), DNS_NOERROR);
    assert_int_equal(strlen(q.host), 253);
    assert_int_equal(dns_answer_put(&q, DNS_NOERROR, "0123456789abcdef", 5, out), sizeof in + 28);
    in[12 + 3 * 64] = 62; /* one byte more than a name may have */
    assert_int_equal(dns_question_get(in, sizeof in, &q), DNS_FORMERR);
}

static void answers(void **state)
{
    struct dns_question q;
    uint8_t out[DNS_ANSWER_MAX];
    (void)state;
    /* The name comes back letter by letter as it was asked for: some resolvers compare. */
    assert_int_equal(dns_question_get(BYTES(HEAD("\0") NAME "\0\1\0\1"), &q), DNS_NOERROR);
    static const char a[] = "\xab\xcd\x81\x80\0\1\0\1\0\0\0\0" NAME "\0\1\0\1"
                            "\xc0\x0c\0\1\0\1\0\0\0\x05\0\4\xc6\x12\0\x07";
    assert_int_equal(dns_answer_put(&q, DNS_NOERROR, "\xc6\x12\0\x07", 5, out), sizeof a - 1);
    assert_memory_equal(out, a, sizeof a - 1);
    static const char nothing[] = "\xab\xcd\x81\x80\0\1\0\0\0\0\0\0" NAME "\0\1\0\1";
    assert_int_equal(dns_answer_put(&q, DNS_NOERROR, NULL, 5, out), sizeof nothing - 1);
    assert_memory_equal(out, nothing, sizeof nothing - 1);
    assert_int_equal(dns_answer_put(&q, DNS_SERVFAIL, "\1\2\3\4", 5, out), sizeof nothing - 1);
    assert_int_equal(out[3], 0x82);
    assert_int_equal(dns_question_get(BYTES(HEAD("\1") NAME "\0\x1c\0\1" OPT), &q), DNS_NOERROR);
    static const char aaaa[] = "\xab\xcd\x81\x80\0\1\0\1\0\0\0\1" NAME "\0\x1c\0\1"
                               "\xc0\x0c\0\x1c\0\1\0\0\0\x05\0\x10"
                               "0123456789abcdef"
                               "\0\0\x29\x04\xd0\0\0\x80\0\0\0";
    assert_int_equal(dns_answer_put(&q, DNS_NOERROR, "0123456789abcdef", 5, out), sizeof aaaa - 1);
    assert_memory_equal(out, aaaa, sizeof aaaa - 1);
    assert_int_equal(dns_question_get(BYTES(HEAD("\0") NAME "\0\x41\0\1"), &q), DNS_NOERROR);
    assert_int_equal(dns_answer_put(&q, DNS_NOERROR, "\1\2\3\4", 5, out), sizeof nothing - 1);
    /* A question that could not be read is not repeated; a version that is not known is said. */
    assert_int_equal(dns_question_get(BYTES(HEAD("\0") "\5ok"), &q), DNS_FORMERR);
    assert_int_equal(dns_answer_put(&q, DNS_FORMERR, NULL, 0, out), 12);
    assert_memory_equal(out, "\xab\xcd\x81\x81\0\0\0\0\0\0\0\0", 12);
    assert_int_equal(
        dns_question_get(BYTES(HEAD("\1") NAME "\0\1\0\1\0\0\x29\x10\0\0\1\0\0\0\0"), &q),
        DNS_BADVERS);
    size_t n = dns_answer_put(&q, DNS_BADVERS, NULL, 0, out);
    assert_int_equal(out[3], 0x80);
    assert_memory_equal(out + n - 11, "\0\0\x29\x04\xd0\x01\0\0\0\0\0", 11);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(questions),
        cmocka_unit_test(longest_name),
        cmocka_unit_test(answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
