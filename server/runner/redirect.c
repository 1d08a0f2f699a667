/* Runs in: runner (stage). Reads: trusted. May block: yes, on the kernel only. */
#include "runner/redirect.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/stop.h"
#include "runner/netlink.h"
#include "wire/synthetic.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define TABLE             "cordon"
#define CHAIN_REDIRECT    "redirect"
#define CHAIN_UNTRACKED   "untracked"
#define PRIORITY_RAW      (-300) /* NF_IP_PRI_RAW: before connections are tracked; of IPv6 the same */
#define PRIORITY_REDIRECT (-100) /* NF_IP_PRI_NAT_DST */

struct family {
    uint8_t nf, af, bits; /* NFPROTO_*, AF_*, of an address */
    uint32_t daddr;       /* the destination's offset in the IP header */
    uint8_t loopback[16]; /* its first N_LOOPBACK bytes are the destination's: not redirected */
    uint32_t n_loopback;
    uint8_t own[16]; /* the namespace's own address */
};

static void families_make(struct family ret[static 2])
{
    static const uint8_t v6_own[16] = SYNTHETIC_V6_OWN;
    uint32_t v4_own = htonl(SYNTHETIC_V4_OWN);
    ret[0] = (struct family){.nf = NFPROTO_IPV4,
                             .af = AF_INET,
                             .bits = 32,
                             .daddr = offsetof(struct iphdr, daddr),
                             .loopback = {127},
                             .n_loopback = 1};
    ret[1] = (struct family){.nf = NFPROTO_IPV6,
                             .af = AF_INET6,
                             .bits = 128,
                             .daddr = offsetof(struct ip6_hdr, ip6_dst),
                             .n_loopback = 16};
    memcpy(ret[0].own, &v4_own, sizeof v4_own);
    memcpy(ret[1].own, v6_own, sizeof v6_own);
    memcpy(ret[1].loopback, &in6addr_loopback, sizeof in6addr_loopback);
}

/* ---- The rules: TCP that is not for loopback goes to the door -------------------------------- */

static void nft_begin(struct netlink *n, unsigned type, uint8_t family)
{
    const struct nfgenmsg head = {.nfgen_family = family, .version = NFNETLINK_V0};
    netlink_begin(n, (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | type), NLM_F_CREATE, &head,
                  sizeof head);
}

/* All between the two comes into force at once, or nothing does. */
static void nft_edge(struct netlink *n, uint16_t type)
{
    const struct nfgenmsg head = {
        .nfgen_family = AF_UNSPEC, .version = NFNETLINK_V0, .res_id = htons(NFNL_SUBSYS_NFTABLES)};
    netlink_begin_silent(n, type, &head, sizeof head);
}

/* The expression NAME, whose attributes follow; expression_end() closes it. */
static void expression(struct netlink *n, const char *name)
{
    netlink_nest(n, NFTA_LIST_ELEM);
    netlink_put_text(n, NFTA_EXPR_NAME, name);
    netlink_nest(n, NFTA_EXPR_DATA);
}

static void expression_end(struct netlink *n)
{
    netlink_unnest(n, 2);
}

/* Goes on when register 1 OPERATOR the LEN bytes of VALUE. */
static void compare(struct netlink *n, enum nft_cmp_ops operator, const void * value, size_t len)
{
    expression(n, "cmp");
    netlink_put_be32(n, NFTA_CMP_SREG, NFT_REG_1);
    netlink_put_be32(n, NFTA_CMP_OP, operator);
    netlink_nest(n, NFTA_CMP_DATA);
    netlink_put(n, NFTA_DATA_VALUE, value, len);
    netlink_unnest(n, 1);
    expression_end(n);
}

static void match_tcp(struct netlink *n)
{
    const uint8_t tcp = IPPROTO_TCP;
    expression(n, "meta");
    netlink_put_be32(n, NFTA_META_KEY, NFT_META_L4PROTO);
    netlink_put_be32(n, NFTA_META_DREG, NFT_REG_1);
    expression_end(n);
    compare(n, NFT_CMP_EQ, &tcp, sizeof tcp);
}

static void match_loopback(struct netlink *n, const struct family *f, enum nft_cmp_ops operator)
{
    expression(n, "payload");
    netlink_put_be32(n, NFTA_PAYLOAD_DREG, NFT_REG_1);
    netlink_put_be32(n, NFTA_PAYLOAD_BASE, NFT_PAYLOAD_NETWORK_HEADER);
    netlink_put_be32(n, NFTA_PAYLOAD_OFFSET, f->daddr);
    netlink_put_be32(n, NFTA_PAYLOAD_LEN, f->n_loopback);
    expression_end(n);
    compare(n, operator, f->loopback, f->n_loopback);
}

static void redirect_to(struct netlink *n, uint16_t port)
{
    port = htons(port);
    expression(n, "immediate");
    netlink_put_be32(n, NFTA_IMMEDIATE_DREG, NFT_REG_1);
    netlink_nest(n, NFTA_IMMEDIATE_DATA);
    netlink_put(n, NFTA_DATA_VALUE, &port, sizeof port);
    netlink_unnest(n, 1);
    expression_end(n);
    expression(n, "redir");
    netlink_put_be32(n, NFTA_REDIR_REG_PROTO_MIN, NFT_REG_1);
    expression_end(n);
}

static void table_begin(struct netlink *n, const struct family *f)
{
    nft_begin(n, NFT_MSG_NEWTABLE, f->nf);
    netlink_put_text(n, NFTA_TABLE_NAME, TABLE);
}

/* What is sent from here passes the chain NAME. */
static void chain_put(struct netlink *n, const struct family *f, const char *name, const char *type,
                      int priority)
{
    nft_begin(n, NFT_MSG_NEWCHAIN, f->nf);
    netlink_put_text(n, NFTA_CHAIN_TABLE, TABLE);
    netlink_put_text(n, NFTA_CHAIN_NAME, name);
    netlink_put_text(n, NFTA_CHAIN_TYPE, type);
    netlink_nest(n, NFTA_CHAIN_HOOK);
    netlink_put_be32(n, NFTA_HOOK_HOOKNUM, NF_INET_LOCAL_OUT);
    netlink_put_be32(n, NFTA_HOOK_PRIORITY, (uint32_t)priority);
    netlink_unnest(n, 1);
}

/* A rule of the chain NAME, whose expressions follow; netlink_unnest(n, 1) closes it. */
static void rule_begin(struct netlink *n, const struct family *f, const char *name)
{
    nft_begin(n, NFT_MSG_NEWRULE, f->nf);
    netlink_put_text(n, NFTA_RULE_TABLE, TABLE);
    netlink_put_text(n, NFTA_RULE_CHAIN, name);
    netlink_nest(n, NFTA_RULE_EXPRESSIONS);
}

static void family_redirect(struct netlink *n, const struct family *f, uint16_t port)
{
    table_begin(n, f);
    chain_put(n, f, CHAIN_REDIRECT, "nat", PRIORITY_REDIRECT);
    rule_begin(n, f, CHAIN_REDIRECT);
    match_tcp(n);
    match_loopback(n, f, NFT_CMP_NEQ);
    redirect_to(n, port);
    netlink_unnest(n, 1);
}

/* What stays on loopback is not tracked: the kernel remembers a tracked connection for minutes, and
 * its table for that is bounded: programs that connect to each other inside would fill it. */
static void family_untracked(struct netlink *n, const struct family *f)
{
    chain_put(n, f, CHAIN_UNTRACKED, "filter", PRIORITY_RAW);
    rule_begin(n, f, CHAIN_UNTRACKED);
    match_loopback(n, f, NFT_CMP_EQ);
    netlink_nest(n, NFTA_LIST_ELEM);
    netlink_put_text(n, NFTA_EXPR_NAME, "notrack");
    netlink_unnest(n, 2);
}

/* All of it or nothing. */
static int rules_set(const struct family *families, size_t n_families, uint16_t port,
                     bool untracked)
{
    struct netlink n = {.r = 0};
    nft_edge(&n, NFNL_MSG_BATCH_BEGIN);
    for (size_t i = 0; i < n_families; i++) {
        family_redirect(&n, &families[i], port);
        if (untracked)
            family_untracked(&n, &families[i]);
    }
    nft_edge(&n, NFNL_MSG_BATCH_END);
    return netlink_send(&n, NETLINK_NETFILTER);
}

/* ---- Addresses and routes: everything is here ------------------------------------------------ */

static void family_route(struct netlink *n, const struct family *f)
{
    const uint32_t lo = NETLINK_LO;
    /* No duplicate detection: a tentative address is no preferred source. */
    const struct ifaddrmsg address = {.ifa_family = f->af,
                                      .ifa_prefixlen = f->bits,
                                      .ifa_flags = IFA_F_NODAD,
                                      .ifa_index = NETLINK_LO};
    const struct rtmsg route = {.rtm_family = f->af,
                                .rtm_table = RT_TABLE_LOCAL,
                                .rtm_protocol = RTPROT_STATIC,
                                .rtm_scope = RT_SCOPE_HOST,
                                .rtm_type = RTN_LOCAL};
    netlink_begin(n, RTM_NEWADDR, NLM_F_CREATE, &address, sizeof address);
    netlink_put(n, IFA_LOCAL, f->own, f->bits / 8);
    netlink_put(n, IFA_ADDRESS, f->own, f->bits / 8);
    netlink_begin(n, RTM_NEWROUTE, NLM_F_CREATE, &route, sizeof route);
    netlink_put(n, RTA_OIF, &lo, sizeof lo);
    /* Else a connection has its own target as its source. */
    netlink_put(n, RTA_PREFSRC, f->own, f->bits / 8);
}

/* A connection of which one side is closed lives as long as any other; one that is over is soon
 * forgotten, as its memory is needed for others. A container that does not let us keeps the
 * kernel's own: then TCP's keep-alive alone holds the first. */
static void timeouts_set(void)
{
    static const struct {
        const char *name, *seconds;
    } TIMEOUTS[] = {
        {"fin_wait", "432000"}, {"close_wait", "432000"}, {"time_wait", "5"}, {"close", "5"}};
    for (size_t i = 0; i < ARRAY_LEN(TIMEOUTS); i++) {
        char path[96];
        snprintf(path, sizeof path, "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_%s",
                 TIMEOUTS[i].name);
        CLEANUP(fd_done) int fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd >= 0)
            (void)fd_write_all(fd, TIMEOUTS[i].seconds, strlen(TIMEOUTS[i].seconds));
    }
}

int redirect_set_up(uint16_t port, bool ipv6, const char **ret_what)
{
    struct netlink routes = {.r = 0};
    struct family families[2];
    size_t n = ipv6 ? 2 : 1;
    int r = 0;
    families_make(families);
    for (size_t i = 0; i < n; i++)
        family_route(&routes, &families[i]);
    /* Rules first: without a route nothing is sent that could miss them. */
    *ret_what = "the rule that redirects TCP";
    if (!stop_without("redirect-rule")) {
        r = rules_set(families, n, port, true);
        if (r < 0)
            r = rules_set(families, n, port, false);
    }
    if (r < 0)
        return r;
    timeouts_set();
    *ret_what = "addresses and routes";
    return netlink_send(&routes, NETLINK_ROUTE);
}
