/* egress/names: each name its own two addresses for good, both lead back, a full table refuses. */
#include "unit.h"

#include "egress/names.h"
#include <arpa/inet.h>
#include <errno.h>

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
    assert_int_equal(names_new(7, &n), 0);
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
    assert_int_equal(names_new(7, &n), 0);
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

static void a_full_table(void **state)
{
    struct names *n;
    struct in_addr a;
    struct in6_addr a6;
    char name[32];
    (void)state;
    assert_int_equal(names_new(0x123456789abcdef, &n), 0);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_its_own),
        cmocka_unit_test(what_stands_for_nobody),
        cmocka_unit_test(a_full_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
