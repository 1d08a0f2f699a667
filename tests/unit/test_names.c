/* egress/names: each name its own two addresses for good, both lead back, a full table refuses. */
#include "unit.h"

#include "base/mem.h"
#include "egress/names.h"
#include <arpa/inet.h>
#include <errno.h>

static unsigned char memory[NAMES_BYTES];

static int memory_clear(void **state)
{
    (void)state;
    memset(memory, 0, sizeof memory);
    return 0;
}

static const char *host_of4(const struct names *n, struct in_addr a)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(443), .sin_addr = a};
    return names_host(n, (const struct sockaddr *)&sa);
}

static const char *host_of6(const struct names *n, struct in6_addr a)
{
    struct sockaddr_in6 sa = {.sin6_family = AF_INET6, .sin6_addr = a};
    return names_host(n, (const struct sockaddr *)&sa);
}

static void each_its_own(void **state)
{
    struct names *n;
    struct in_addr a, b, again;
    struct in6_addr a6, b6, again6;
    char text[INET6_ADDRSTRLEN];
    (void)state;
    assert_int_equal(names_new(7, memory, &n), 0);
    assert_int_equal(names_address(n, "ok.test", &a, &a6), 0);
    assert_int_equal(names_address(n, "no.test", &b, &b6), 0);
    assert_int_equal(names_address(n, "ok.test", &again, &again6), 0);
    assert_int_equal(a.s_addr, again.s_addr);
    assert_memory_equal(&a6, &again6, sizeof a6);
    assert_string_equal(inet_ntop(AF_INET, &a, text, sizeof text), "198.18.1.0");
    assert_string_equal(inet_ntop(AF_INET, &b, text, sizeof text), "198.18.1.1");
    assert_string_equal(inet_ntop(AF_INET6, &b6, text, sizeof text),
                        "fd63:6f72:646f:6e00::c612:101");
    assert_string_equal(host_of4(n, a), "ok.test");
    assert_string_equal(host_of4(n, b), "no.test");
    assert_string_equal(host_of6(n, a6), "ok.test");
    assert_string_equal(host_of6(n, b6), "no.test");
    names_free(n);
    names_free(NULL);
}

static void what_stands_for_nobody(void **state)
{
    static const char *const OTHERS[] = {"198.18.0.1",     "198.18.0.255", "198.18.1.1",
                                         "198.19.255.255", "203.0.113.10", "0.0.0.0",
                                         "255.255.255.255"};
    static const char *const OTHERS6[] = {"::1",
                                          "fd63:6f72:646f:6e00::1",
                                          "fd63:6f72:646f:6e00:1::c612:100",
                                          "fd63:6f72:646f:6e01::c612:100",
                                          "::ffff:198.18.1.0",
                                          "fd63:6f72:646f:6e00::c612:101"};
    struct names *n;
    struct in_addr a;
    struct in6_addr a6;
    struct sockaddr other = {.sa_family = AF_UNIX};
    (void)state;
    assert_int_equal(names_new(7, memory, &n), 0);
    assert_int_equal(names_address(n, "ok.test", &a, &a6), 0);
    for (size_t i = 0; i < sizeof OTHERS / sizeof *OTHERS; i++) {
        assert_int_equal(inet_pton(AF_INET, OTHERS[i], &a), 1);
        assert_null(host_of4(n, a));
    }
    for (size_t i = 0; i < sizeof OTHERS6 / sizeof *OTHERS6; i++) {
        assert_int_equal(inet_pton(AF_INET6, OTHERS6[i], &a6), 1);
        assert_null(host_of6(n, a6));
    }
    assert_null(names_host(n, &other));
    names_free(n);
}

static void settles(const struct names *n, const char *host, const char *becomes)
{
    char text[HOST_MAX];
    snprintf(text, sizeof text, "%s", host);
    assert_int_equal(names_settle(n, text), becomes ? 0 : -ENOENT);
    assert_string_equal(text, becomes ? becomes : host);
}

/* What a client of the proxy asks for that looked the name up by itself. */
static void an_address_becomes_its_name(void **state)
{
    (void)state;
    struct names *n;
    struct in_addr v4;
    struct in6_addr v6;
    char text[INET6_ADDRSTRLEN];
    assert_int_equal(names_new(7, memory, &n), 0);
    assert_int_equal(names_address(n, "ok.test", &v4, &v6), 0);
    settles(n, inet_ntop(AF_INET, &v4, text, sizeof text), "ok.test");
    settles(n, inet_ntop(AF_INET6, &v6, text, sizeof text), "ok.test");
    settles(n, "198.18.1.200", NULL);
    settles(n, "198.18.0.1", NULL);
    settles(n, "fd63:6f72:646f:6e00::1", NULL);
    settles(n, "203.0.113.10", "203.0.113.10");
    settles(n, "2001:db8::10", "2001:db8::10");
    settles(n, "ok.test", "ok.test");
    settles(n, "198.18.1.0.ok.test", "198.18.1.0.ok.test");
    names_free(n);
}

static void a_full_table(void **state)
{
    struct names *n;
    struct in_addr a;
    struct in6_addr a6;
    char name[32];
    (void)state;
    assert_int_equal(names_new(0x123456789abcdef, memory, &n), 0);
    for (unsigned i = 0; i < NAMES_MAX; i++) {
        snprintf(name, sizeof name, "h%u.test", i);
        assert_int_equal(names_address(n, name, &a, &a6), 0);
        assert_int_equal(ntohl(a.s_addr), NAMES_V4_FIRST + i);
    }
    assert_int_equal(names_address(n, "one-more.test", &a, &a6), -ENOSPC);
    for (unsigned i = 0; i < NAMES_MAX; i += 97) { /* those it has it keeps */
        snprintf(name, sizeof name, "h%u.test", i);
        assert_int_equal(names_address(n, name, &a, &a6), 0);
        assert_string_equal(host_of4(n, a), name);
        assert_string_equal(host_of6(n, a6), name);
    }
    names_free(n);
}

/* An egress that died: the next one reads the same memory, and goes on behind it. */
static void another_one_goes_on(void **state)
{
    struct names *n;
    struct in_addr a, b;
    struct in6_addr a6;
    (void)state;
    assert_int_equal(names_new(1, memory, &n), 0);
    assert_int_equal(names_address(n, "a.test", &a, &a6), 0);
    assert_int_equal(names_address(n, "b.test", &b, &a6), 0);
    names_free(n);
    assert_int_equal(names_new(2, memory, &n), 0);
    assert_string_equal(host_of4(n, a), "a.test");
    assert_string_equal(host_of4(n, b), "b.test");
    assert_int_equal(names_address(n, "c.test", &b, &a6), 0);
    assert_int_equal(ntohl(b.s_addr), NAMES_V4_FIRST + 2);
    assert_int_equal(names_address(n, "a.test", &b, &a6), 0);
    assert_int_equal(a.s_addr, b.s_addr);
    names_free(n);
}

/* What no table wrote ends the list; what is put there then ends it too. */
static void memory_is_not_believed(void **state)
{
    static const char *const BAD[] = {"A.test", "a b", "198.18.1.1", "a.test.", "a\xff", "ok.test"};
    struct names *n;
    struct in_addr a;
    struct in6_addr a6;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
        size_t len = strlen(BAD[i]);
        memset(memory, 0xff, sizeof memory);
        memcpy(memory, "\7ok.test", 9);
        memory[9] = (unsigned char)len;
        memcpy(memory + 10, BAD[i], len + 1);
        assert_int_equal(names_new(i, memory, &n), 0);
        assert_int_equal(names_address(n, "new.test", &a, &a6), 0);
        assert_int_equal(ntohl(a.s_addr), NAMES_V4_FIRST + 1);
        names_free(n);
        assert_int_equal(names_new(i, memory, &n), 0);
        assert_int_equal(names_address(n, "ok.test", &a, &a6), 0);
        assert_int_equal(ntohl(a.s_addr), NAMES_V4_FIRST);
        assert_int_equal(names_address(n, "next.test", &a, &a6), 0);
        assert_int_equal(ntohl(a.s_addr), NAMES_V4_FIRST + 2);
        names_free(n);
    }
    memset(memory, 0xff, sizeof memory); /* no record ends */
    assert_int_equal(names_new(0, memory, &n), 0);
    assert_int_equal(names_address(n, "ok.test", &a, &a6), 0);
    assert_int_equal(ntohl(a.s_addr), NAMES_V4_FIRST);
    names_free(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(another_one_goes_on, memory_clear),
        cmocka_unit_test_setup(memory_is_not_believed, memory_clear),
        cmocka_unit_test_setup(each_its_own, memory_clear),
        cmocka_unit_test_setup(what_stands_for_nobody, memory_clear),
        cmocka_unit_test_setup(a_full_table, memory_clear),
        cmocka_unit_test_setup(an_address_becomes_its_name, memory_clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
