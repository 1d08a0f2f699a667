/* Netlink messages without any program or library (netlink(7)): several in one buffer, each
 * acknowledged by the kernel before netlink_send() comes back.
 *
 *     struct netlink n = {.r = 0};
 *     netlink_begin(&n, RTM_NEWADDR, NLM_F_CREATE, &head, sizeof head);
 *     netlink_put(&n, IFA_LOCAL, address, 4);
 *     netlink_nest(&n, SOME_LIST); … netlink_unnest(&n, 1);
 *     r = netlink_send(&n, NETLINK_ROUTE);
 *
 * The first error of the calls before is kept and told by netlink_send(). */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* Index of "lo": the first interface of every network namespace (net/core/dev.c). */
#define NETLINK_LO      1
#define NETLINK_MAX     4096
#define NETLINK_NESTING 8

struct netlink {
    _Alignas(8) uint8_t bytes[NETLINK_MAX]; /* zero where nothing was put: padding is */
    size_t len, message;                    /* where the last message begins */
    size_t nests[NETLINK_NESTING];          /* where the open attributes begin, outermost first */
    size_t n_nests, n_answers;
    int r;
};
/* A further message; HEAD is what follows the header. Without an acknowledgement asked for
 * (netlink_begin_silent) none is waited for. */
void netlink_begin(struct netlink *n, uint16_t type, uint16_t flags, const void *head, size_t len);
void netlink_begin_silent(struct netlink *n, uint16_t type, const void *head, size_t len);
/* An attribute of the last message, in the innermost one that is open. */
void netlink_put(struct netlink *n, uint16_t type, const void *data, size_t len);
void netlink_put_text(struct netlink *n, uint16_t type, const char *text); /* with its NUL */
void netlink_put_be32(struct netlink *n, uint16_t type, uint32_t value);
void netlink_nest(struct netlink *n, uint16_t type);
void netlink_unnest(struct netlink *n, size_t levels);
/* 0 when all were acknowledged, else a negative errno: what the kernel said to the first. */
int netlink_send(const struct netlink *n, int protocol);

int netlink_loopback_up(void); /* 0 or a negative errno; the addresses of lo are usable at once */
