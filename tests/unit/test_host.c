/* wire/host and wire/idna: canonical spellings, ports, and the classes of addresses. */
#include "base/mem.h"
#include "wire/host.h"
#include "wire/idna.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

struct host_case {
    const char *in;
    size_t n; /* 0 = strlen */
    enum host_kind kind;
    const char *out;
};

static void check_hosts(const struct host_case *cases, size_t n, bool bracketed)
{
    for (size_t i = 0; i < n; i++) {
        char out[HOST_MAX] = "untouched";
        size_t len = cases[i].n != 0 ? cases[i].n : strlen(cases[i].in);
        enum host_kind kind = host_canonical(cases[i].in, len, bracketed, out);
        if (kind != cases[i].kind)
            fail_msg("\"%s\": kind %u, expected %u", cases[i].in, kind, cases[i].kind);
        assert_string_equal(out, kind == HOST_BAD ? "untouched" : cases[i].out);
    }
}

static void test_names(void **state)
{
    static const struct host_case CASES[] = {
        {"ok.test", 0, HOST_NAME, "ok.test"},
        {"OK.Test.", 0, HOST_NAME, "ok.test"},
        {"a", 0, HOST_NAME, "a"},
        {"localhost", 0, HOST_NAME, "localhost"},
        {"a_b.c-d.e1", 0, HOST_NAME, "a_b.c-d.e1"},
        {"-ok.test", 0, HOST_NAME, "-ok.test"},
        {"xn--bcher-kva.example", 0, HOST_NAME, "xn--bcher-kva.example"},
        {"1.2.3.4.example", 0, HOST_NAME, "1.2.3.4.example"},
        {"0xa.b", 0, HOST_NAME, "0xa.b"},
        {"1e5", 0, HOST_NAME, "1e5"},
        {"", 0, HOST_BAD, NULL},
        {".", 0, HOST_BAD, NULL},
        {"..", 0, HOST_BAD, NULL},
        {".ok.test", 0, HOST_BAD, NULL},
        {"ok..test", 0, HOST_BAD, NULL},
        {"ok.test..", 0, HOST_BAD, NULL},
        {"*.ok.test", 0, HOST_BAD, NULL},
        {"no.test\0.ok.test", 16, HOST_BAD, NULL},
        {"no.test%00.ok.test", 0, HOST_BAD, NULL},
        {"no.test .ok.test", 0, HOST_BAD, NULL},
        {"no.test\r\n.ok.test", 0, HOST_BAD, NULL},
        {"no.test#.ok.test", 0, HOST_BAD, NULL},
        {"no.test?.ok.test", 0, HOST_BAD, NULL},
        {"no.test/.ok.test", 0, HOST_BAD, NULL},
        {"ok.test@no.test", 0, HOST_BAD, NULL},
        {"no.test\\.ok.test", 0, HOST_BAD, NULL},
        {"no\ttest", 0, HOST_BAD, NULL},
        {"no\x7ftest", 0, HOST_BAD, NULL},
        {"b\xc3\xbc"
         "cher.example",
         0, HOST_BAD, NULL},
        {"[ok.test]", 0, HOST_BAD, NULL},
        {"ok.test:80", 0, HOST_BAD, NULL},
    };
    (void)state;
    check_hosts(CASES, ARRAY_LEN(CASES), true);
    check_hosts(CASES, ARRAY_LEN(CASES), false);
}

static void test_lengths(void **state)
{
    char name[400], out[HOST_MAX];
    (void)state;
    memset(name, 'a', sizeof name);
    assert_int_equal(host_canonical(name, 63, true, out), HOST_NAME);
    assert_int_equal(host_canonical(name, 64, true, out), HOST_BAD);
    for (size_t i = 63; i < sizeof name; i += 64)
        name[i] = '.';
    assert_int_equal(host_canonical(name, 253, true, out), HOST_NAME);
    assert_int_equal(strlen(out), 253);
    assert_int_equal(host_canonical(name, 254, true, out), HOST_BAD);
    assert_int_equal(host_canonical(name, 400, true, out), HOST_BAD);
    name[253] = '.';
    assert_int_equal(host_canonical(name, 254, true, out), HOST_NAME);
    assert_int_equal(strlen(out), 253);
}

static void test_addresses(void **state)
{
    static const struct host_case EITHER[] = {
        {"1.2.3.4", 0, HOST_V4, "1.2.3.4"},  {"255.255.255.255", 0, HOST_V4, "255.255.255.255"},
        {"0.0.0.0", 0, HOST_V4, "0.0.0.0"},  {"256.1.1.1", 0, HOST_BAD, NULL},
        {"1.2.3.4.", 0, HOST_BAD, NULL},     {"1.2.3", 0, HOST_BAD, NULL},
        {"1.2.3.4.5", 0, HOST_BAD, NULL},    {"01.2.3.4", 0, HOST_BAD, NULL},
        {"0x7f.0.0.1", 0, HOST_BAD, NULL},   {"0x7f000001", 0, HOST_BAD, NULL},
        {"a.0x", 0, HOST_BAD, NULL},         {"a.0X1F", 0, HOST_BAD, NULL},
        {"2130706433", 0, HOST_BAD, NULL},   {"127.1", 0, HOST_BAD, NULL},
        {"017700000001", 0, HOST_BAD, NULL}, {"foo.1", 0, HOST_BAD, NULL},
    };
    static const struct host_case BRACKETED[] = {
        {"[::1]", 0, HOST_V6, "::1"},
        {"[2001:DB8:0:0:0:0:0:1]", 0, HOST_V6, "2001:db8::1"},
        {"[2001:db8:0:1:1:1:1:1]", 0, HOST_V6, "2001:db8:0:1:1:1:1:1"},
        {"[::ffff:1.2.3.4]", 0, HOST_V6, "::ffff:1.2.3.4"},
        {"[::]", 0, HOST_V6, "::"},
        {"::1", 0, HOST_BAD, NULL},
        {"[fe80::1%lo]", 0, HOST_BAD, NULL},
        {"[fe80::1%25lo]", 0, HOST_BAD, NULL},
        {"[1.2.3.4]", 0, HOST_BAD, NULL},
        {"[]", 0, HOST_BAD, NULL},
        {"[", 0, HOST_BAD, NULL},
        {"[:]", 0, HOST_BAD, NULL},
        {"[::1", 0, HOST_BAD, NULL},
        {"[[::1]]", 0, HOST_BAD, NULL},
        {"[v1.a]", 0, HOST_BAD, NULL},
        {"[1:2:3:4:5:6:7:8:9]", 0, HOST_BAD, NULL},
    };
    static const struct host_case BARE[] = {
        {"::1", 0, HOST_V6, "::1"},
        {"[::1]", 0, HOST_BAD, NULL},
        {"fe80::1%lo", 0, HOST_BAD, NULL},
    };
    (void)state;
    check_hosts(EITHER, ARRAY_LEN(EITHER), true);
    check_hosts(EITHER, ARRAY_LEN(EITHER), false);
    check_hosts(BRACKETED, ARRAY_LEN(BRACKETED), true);
    check_hosts(BARE, ARRAY_LEN(BARE), false);
}

static void test_ports(void **state)
{
    static const struct {
        const char *in;
        uint16_t fallback, port;
        const char *host;
    } CASES[] = {
        {"ok.test:443", 0, 443, "ok.test"},
        {"OK.test.:1", 0, 1, "ok.test"},
        {"ok.test:65535", 0, 65535, "ok.test"},
        {"[::1]:8080", 0, 8080, "::1"},
        {"1.2.3.4:80", 0, 80, "1.2.3.4"},
        {"ok.test", 80, 80, "ok.test"},
        {"[::1]", 80, 80, "::1"},
        {"ok.test", 0, 0, NULL},
        {"ok.test:", 80, 0, NULL},
        {"ok.test:0", 80, 0, NULL},
        {"ok.test:0443", 80, 0, NULL},
        {"ok.test:+443", 80, 0, NULL},
        {"ok.test:-1", 80, 0, NULL},
        {"ok.test:443 ", 80, 0, NULL},
        {"ok.test: 443", 80, 0, NULL},
        {"ok.test:65536", 80, 0, NULL},
        {"ok.test:65979", 80, 0, NULL},
        {"ok.test:0x50", 80, 0, NULL},
        {"ok.test:80:80", 80, 0, NULL},
        {"::1:80", 80, 0, NULL},
        {"[ok.test]:443", 80, 0, NULL},
        {"[::1]443", 80, 0, NULL},
        {"[::1]:", 80, 0, NULL},
        {"a@ok.test:443", 80, 0, NULL},
        {":443", 80, 0, NULL},
        {"", 80, 0, NULL},
        {"[", 80, 0, NULL},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        char host[HOST_MAX], text[HOST_MAX + 10];
        uint16_t port = 0;
        enum host_kind kind =
            host_port_parse(CASES[i].in, strlen(CASES[i].in), CASES[i].fallback, host, &port);
        if ((kind != HOST_BAD) != (CASES[i].host != NULL))
            fail_msg("\"%s\": kind %u", CASES[i].in, kind);
        if (kind == HOST_BAD)
            continue;
        assert_string_equal(host, CASES[i].host);
        assert_int_equal(port, CASES[i].port);
        /* The text is its own canonical form. */
        char again[HOST_MAX];
        host_port_text(host, port, text);
        assert_int_equal(host_port_parse(text, strlen(text), 0, again, &port), kind);
        assert_string_equal(host, again);
    }
}

static enum addr_class class_of(const char *text)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
        return addr_class((struct sockaddr *)&v4);
    assert_int_equal(inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
    return addr_class((struct sockaddr *)&v6);
}

static void test_classes(void **state)
{
    static const struct {
        const char *address;
        enum addr_class class;
    } CASES[] = {
        {"8.8.8.8", ADDR_PUBLIC},
        {"203.0.113.5", ADDR_PUBLIC},
        {"192.0.2.1", ADDR_PUBLIC},
        {"198.51.100.1", ADDR_PUBLIC},
        {"0.0.0.0", ADDR_UNSPECIFIED},
        {"0.1.2.3", ADDR_RESERVED},
        {"10.0.0.1", ADDR_PRIVATE},
        {"172.15.255.255", ADDR_PUBLIC},
        {"172.16.0.0", ADDR_PRIVATE},
        {"172.31.255.255", ADDR_PRIVATE},
        {"172.32.0.0", ADDR_PUBLIC},
        {"192.168.1.1", ADDR_PRIVATE},
        {"100.63.255.255", ADDR_PUBLIC},
        {"100.64.0.1", ADDR_CARRIER_NAT},
        {"100.127.255.255", ADDR_CARRIER_NAT},
        {"100.128.0.0", ADDR_PUBLIC},
        {"100.100.100.200", ADDR_METADATA},
        {"127.0.0.1", ADDR_LOOPBACK},
        {"127.255.255.254", ADDR_LOOPBACK},
        {"169.254.169.254", ADDR_METADATA},
        {"169.254.170.2", ADDR_METADATA},
        {"169.254.1.1", ADDR_LINK_LOCAL},
        {"168.63.129.16", ADDR_METADATA},
        {"168.63.129.17", ADDR_PUBLIC},
        {"192.0.0.192", ADDR_METADATA},
        {"192.0.0.1", ADDR_RESERVED},
        {"192.88.99.1", ADDR_RESERVED},
        {"198.18.0.1", ADDR_RESERVED},
        {"198.19.255.255", ADDR_RESERVED},
        {"198.20.0.0", ADDR_PUBLIC},
        {"224.0.0.1", ADDR_MULTICAST},
        {"239.255.255.255", ADDR_MULTICAST},
        {"240.0.0.1", ADDR_RESERVED},
        {"255.255.255.255", ADDR_RESERVED},
        {"::", ADDR_UNSPECIFIED},
        {"::1", ADDR_LOOPBACK},
        {"::2", ADDR_RESERVED},
        {"::7f00:1", ADDR_LOOPBACK},
        {"::8.8.8.8", ADDR_RESERVED},
        {"::ffff:127.0.0.1", ADDR_LOOPBACK},
        {"::ffff:10.1.1.1", ADDR_PRIVATE},
        {"::ffff:8.8.8.8", ADDR_PUBLIC},
        {"::ffff:0:127.0.0.1", ADDR_RESERVED},
        {"64:ff9b::7f00:1", ADDR_LOOPBACK},
        {"64:ff9b::169.254.169.254", ADDR_METADATA},
        {"64:ff9b::8.8.8.8", ADDR_PUBLIC},
        {"64:ff9b:1::8.8.8.8", ADDR_RESERVED},
        {"100::1", ADDR_RESERVED},
        {"2002:7f00:1::1", ADDR_LOOPBACK},
        {"2002:a00:1::1", ADDR_PRIVATE},
        {"2002:808:808::1", ADDR_RESERVED},
        {"2001:0:4136:e378:8000:63bf:80ff:fffe", ADDR_LOOPBACK}, /* 127.0.0.1, inverted */
        {"2001:0:4136:e378:8000:63bf:3fff:fdd2", ADDR_RESERVED},
        {"2001:2::1", ADDR_RESERVED},
        {"2001:20::1", ADDR_RESERVED},
        {"2001:db8::1", ADDR_PUBLIC},
        {"2001:4860:4860::8888", ADDR_PUBLIC},
        {"2606:4700::1", ADDR_PUBLIC},
        {"3fff::1", ADDR_PUBLIC},
        {"4000::1", ADDR_RESERVED},
        {"5f00::1", ADDR_RESERVED},
        {"fc00::1", ADDR_PRIVATE},
        {"fd12::1", ADDR_PRIVATE},
        {"fd00:ec2::254", ADDR_METADATA},
        {"fd20:ce::254", ADDR_METADATA},
        {"fe80::1", ADDR_LINK_LOCAL},
        {"febf::1", ADDR_LINK_LOCAL},
        {"fec0::1", ADDR_RESERVED},
        {"ff02::1", ADDR_MULTICAST},
    };
    struct sockaddr other = {.sa_family = AF_UNIX};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++)
        if (class_of(CASES[i].address) != CASES[i].class)
            fail_msg("%s: %s, expected %s", CASES[i].address,
                     addr_class_name(class_of(CASES[i].address)), addr_class_name(CASES[i].class));
    assert_int_equal(addr_class(&other), ADDR_UNKNOWN);
}

static void test_typed(void **state)
{
    static const struct {
        const char *in, *out;
    } CASES[] = {
        {"B\xc3\xbc"
         "cher.example",
         "xn--bcher-kva.example"},
        {"fa\xc3\x9f.de", "xn--fa-hia.de"}, /* non-transitional */
        {"\xe4\xbe\x8b\xe3\x81\x88.\xe3\x83\x86\xe3\x82\xb9\xe3\x83\x88", "xn--r8jz45g.xn--zckzah"},
        {"ok\xe3\x80\x82test", "ok.test"}, /* the ideographic full stop */
        {"OK.test.", "ok.test"},
        {"a_b.test", "a_b.test"},
        {"::1", "::1"},
        {"[::1]", "::1"},
        {"10.0.0.1", "10.0.0.1"},
        {"a\xe2\x84\x80z.test", NULL}, /* U+2100 maps to a/c */
        {"\xff.test", NULL},
        {"https://ok.test", NULL},
        {"ok.test:443", NULL},
        {"0x7f.1", NULL},
        {"", NULL},
    };
    char out[HOST_MAX];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        enum host_kind kind = host_from_typed(CASES[i].in, out);
        if ((kind != HOST_BAD) != (CASES[i].out != NULL))
            fail_msg("\"%s\": kind %u", CASES[i].in, kind);
        if (kind != HOST_BAD)
            assert_string_equal(out, CASES[i].out);
    }
}

static void test_shown(void **state)
{
    static const struct {
        const char *in, *out;
    } CASES[] = {
        {"ok.test", "ok.test"},
        {"xn--bcher-kva.example", "b\xc3\xbc"
                                  "cher.example"},
        {"xn--pple-43d.com", "xn--pple-43d.com"},     /* Cyrillic a, Latin pple */
        {"xn--80ak6aa92e.com", "xn--80ak6aa92e.com"}, /* all Cyrillic, looks Latin */
        {"xn--80aswg.test", "\xd1\x81\xd0\xb0\xd0\xb9\xd1\x82.test"}, /* plainly Cyrillic */
        {"xn--r8jz45g.test", "\xe4\xbe\x8b\xe3\x81\x88.test"},
        {"xn--zz.test", "xn--zz.test"},
    };
    char out[512];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        host_to_unicode(CASES[i].in, out, sizeof out);
        assert_string_equal(out, CASES[i].out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),     cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_addresses), cmocka_unit_test(test_ports),
        cmocka_unit_test(test_classes),   cmocka_unit_test(test_typed),
        cmocka_unit_test(test_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
