/* runner/netlink: how messages and nested attributes lie in the buffer, and that what does not fit
 * or is refused is told, never sent in part. */
#include "unit.h"

#include "runner/netlink.h"
#include "wire/synthetic.h"
#include <arpa/inet.h>
#include <errno.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <stdlib.h>

static struct netlink *fresh(void)
{
    struct netlink *n = calloc(1, sizeof *n);
    assert_non_null(n);
    return n;
}

static void messages_and_nests(void **state)
{
    static const uint8_t head[3] = {1, 2, 3}; /* padded to 4 */
    struct netlink *n = fresh();
    struct nlmsghdr h;
    struct nlattr a;
    (void)state;
    netlink_begin_silent(n, 16, head, sizeof head);
    netlink_begin(n, 17, NLM_F_CREATE, head, sizeof head);
    netlink_nest(n, 5);
    netlink_put_text(n, 6, "four");
    netlink_nest(n, 7);
    netlink_put_be32(n, 8, 0x01020304);
    netlink_unnest(n, 2);
    netlink_put(n, 9, NULL, 0);
    assert_int_equal(n->r, 0);
    assert_int_equal(n->n_answers, 1);
    memcpy(&h, n->bytes, sizeof h);
    assert_int_equal(h.nlmsg_len, 20);
    assert_int_equal(h.nlmsg_flags, NLM_F_REQUEST);
    memcpy(&h, n->bytes + 20, sizeof h);
    assert_int_equal(h.nlmsg_type, 17);
    assert_int_equal(h.nlmsg_flags, NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE);
    /* head 4 · nest 4 { text 4 + 5 padded to 12 · nest 4 { 8 } } · empty 4 */
    assert_int_equal(h.nlmsg_len, 16 + 4 + 4 + 12 + 4 + 8 + 4);
    assert_int_equal(n->len, 20 + h.nlmsg_len);
    memcpy(&a, n->bytes + 40, sizeof a);
    assert_int_equal(a.nla_type, 5 | NLA_F_NESTED);
    assert_int_equal(a.nla_len, 4 + 12 + 4 + 8);
    memcpy(&a, n->bytes + 44, sizeof a);
    assert_int_equal(a.nla_len, 9);
    assert_memory_equal(n->bytes + 48, "four\0\0\0", 8);
    memcpy(&a, n->bytes + 56, sizeof a);
    assert_int_equal(a.nla_len, 12);
    assert_memory_equal(n->bytes + 64, "\1\2\3\4", 4);
    free(n);
}

static void what_does_not_fit_is_told(void **state)
{
    static const uint8_t large[NETLINK_MAX];
    struct netlink *n = fresh();
    (void)state;
    netlink_begin(n, 16, 0, large, 4);
    netlink_put(n, 1, large, NETLINK_MAX - 64);
    assert_int_equal(n->r, 0);
    netlink_put(n, 1, large, 64);
    netlink_put(n, 1, large, 1); /* would fit */
    assert_int_equal(netlink_send(n, NETLINK_ROUTE), -EMSGSIZE);
    memset(n, 0, sizeof *n);
    netlink_begin(n, 16, 0, large, 4);
    for (int i = 0; i <= NETLINK_NESTING; i++)
        netlink_nest(n, 1);
    assert_int_equal(netlink_send(n, NETLINK_ROUTE), -EMSGSIZE);
    memset(n, 0, sizeof *n);
    netlink_begin(n, 16, 0, large, 4);
    netlink_nest(n, 1);
    netlink_begin(n, 16, 0, large, 4); /* within an attribute */
    assert_int_equal(netlink_send(n, NETLINK_ROUTE), -EINVAL);
    free(n);
}

/* Asked about a device that is not there: the kernel's own words come back. */
static void the_kernel_refuses(void **state)
{
    const struct ifinfomsg none = {.ifi_index = 0x7ffffff0};
    struct netlink *n = fresh();
    (void)state;
    netlink_begin(n, RTM_GETLINK, 0, &none, sizeof none);
    assert_int_equal(netlink_send(n, NETLINK_ROUTE), -ENODEV);
    free(n);
}

static bool is_synthetic(int family, const char *text)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    if (family == AF_INET) {
        assert_int_equal(inet_pton(AF_INET, text, &v4.sin_addr), 1);
        return synthetic_is((const struct sockaddr *)&v4);
    }
    assert_int_equal(inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
    return synthetic_is((const struct sockaddr *)&v6);
}

static void addresses_of_ours(void **state)
{
    (void)state;
    assert_true(is_synthetic(AF_INET, "198.18.0.0") && is_synthetic(AF_INET, "198.19.255.255"));
    assert_false(is_synthetic(AF_INET, "198.17.255.255") || is_synthetic(AF_INET, "198.20.0.0"));
    assert_true(is_synthetic(AF_INET6, "fd63:6f72:646f:6e00::1") &&
                is_synthetic(AF_INET6, "fd63:6f72:646f:6e00:ffff::"));
    assert_false(is_synthetic(AF_INET6, "fd63:6f72:646f:6e01::1") ||
                 is_synthetic(AF_INET6, "::ffff:198.18.0.1"));
    assert_false(synthetic_is(&(struct sockaddr){.sa_family = AF_UNIX}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_and_nests),
        cmocka_unit_test(what_does_not_fit_is_told),
        cmocka_unit_test(the_kernel_refuses),
        cmocka_unit_test(addresses_of_ours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
