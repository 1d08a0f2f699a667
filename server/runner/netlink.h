/* The network of a session's namespace over rtnetlink(7), without any program. Today: loopback up,
 * and nothing else in it. The addresses, local routes and the redirect of all other TCP (nf_tables)
 * belong here too, behind order_head.redirect. */
#pragma once

/* Index of "lo": the first interface of every network namespace (net/core/dev.c). */
#define NETLINK_LO 1

int netlink_loopback_up(void); /* 0 or a negative errno; the addresses of lo are usable at once */
