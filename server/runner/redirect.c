/* Runs in: runner (stage). Reads: trusted. May block: yes, on the kernel only. */
#include "runner/redirect.h"
#include "base/mem.h"
#include "base/stop.h"
#include "runner/netlink.h"
#include "wire/synthetic.h"
#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <stddef.h>
#include <string.h>

#define TABLE        "cordon"
#define CHAIN        "redirect"
#define PRIORITY_NAT (-100) /* NF_IP_PRI_NAT_DST; of IPv6 the same */

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

/* ---- The rule: TCP that is not for loopback goes to the door --------------------------------- */

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

static void match_not_loopback(struct netlink *n, const struct family *f)
{
    expression(n, "payload");
    netlink_put_be32(n, NFTA_PAYLOAD_DREG, NFT_REG_1);
    netlink_put_be32(n, NFTA_PAYLOAD_BASE, NFT_PAYLOAD_NETWORK_HEADER);
    netlink_put_be32(n, NFTA_PAYLOAD_OFFSET, f->daddr);
    netlink_put_be32(n, NFTA_PAYLOAD_LEN, f->n_loopback);
    expression_end(n);
    compare(n, NFT_CMP_NEQ, f->loopback, f->n_loopback);
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

static void family_redirect(struct netlink *n, const struct family *f, uint16_t port)
{
    nft_begin(n, NFT_MSG_NEWTABLE, f->nf);
    netlink_put_text(n, NFTA_TABLE_NAME, TABLE);
    nft_begin(n, NFT_MSG_NEWCHAIN, f->nf);
    netlink_put_text(n, NFTA_CHAIN_TABLE, TABLE);
    netlink_put_text(n, NFTA_CHAIN_NAME, CHAIN);
    netlink_put_text(n, NFTA_CHAIN_TYPE, "nat");
    netlink_nest(n, NFTA_CHAIN_HOOK);
    netlink_put_be32(n, NFTA_HOOK_HOOKNUM, NF_INET_LOCAL_OUT);
    netlink_put_be32(n, NFTA_HOOK_PRIORITY, (uint32_t)PRIORITY_NAT);
    netlink_unnest(n, 1);
    nft_begin(n, NFT_MSG_NEWRULE, f->nf);
    netlink_put_text(n, NFTA_RULE_TABLE, TABLE);
    netlink_put_text(n, NFTA_RULE_CHAIN, CHAIN);
    netlink_nest(n, NFTA_RULE_EXPRESSIONS);
    match_tcp(n);
    match_not_loopback(n, f);
    redirect_to(n, port);
    netlink_unnest(n, 1);
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

int redirect_set_up(uint16_t port, bool ipv6, const char **ret_what)
{
    struct netlink rules = {.r = 0}, routes = {.r = 0};
    struct family families[2];
    size_t n = ipv6 ? 2 : 1;
    families_make(families);
    nft_edge(&rules, NFNL_MSG_BATCH_BEGIN);
    for (size_t i = 0; i < n; i++)
        family_redirect(&rules, &families[i], port);
    nft_edge(&rules, NFNL_MSG_BATCH_END);
    for (size_t i = 0; i < n; i++)
        family_route(&routes, &families[i]);
    /* Rules first: without a route nothing is sent that could miss them. */
    *ret_what = "the rule that redirects TCP";
    int r = stop_without("redirect-rule") ? 0 : netlink_send(&rules, NETLINK_NETFILTER);
    if (r < 0)
        return r;
    *ret_what = "addresses and routes";
    return netlink_send(&routes, NETLINK_ROUTE);
}
