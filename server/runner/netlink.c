/* Runs in: runner (stage). Reads: trusted. May block: yes, on the kernel only. */
#include "runner/netlink.h"
#include "base/fd.h"
#include "base/mem.h"
#include <arpa/inet.h>
#include <errno.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

/* ---- Messages -------------------------------------------------------------------------------- */

/* N bytes at the end, or NULL: the buffer is full, which netlink_send() tells. */
static void *room(struct netlink *n, size_t len)
{
    size_t at = n->len;
    if (n->r < 0 || len > NETLINK_MAX - at || NLMSG_ALIGN(len) > NETLINK_MAX - at) {
        n->r = n->r < 0 ? n->r : -EMSGSIZE;
        return NULL;
    }
    n->len += NLMSG_ALIGN(len);
    return n->bytes + at;
}

static void put_at(struct netlink *n, size_t at, const void *data, size_t len)
{
    memcpy(n->bytes + at, data, len);
}

/* Every byte that was added since belongs to the last message. */
static void message_grow(struct netlink *n)
{
    uint32_t len = (uint32_t)(n->len - n->message);
    put_at(n, n->message + offsetof(struct nlmsghdr, nlmsg_len), &len, sizeof len);
}

static void begin(struct netlink *n, uint16_t type, uint16_t flags, const void *head, size_t len)
{
    struct nlmsghdr h = {.nlmsg_type = type, .nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags)};
    size_t at = n->len;
    void *to = n->n_nests == 0 ? room(n, sizeof h + len) : NULL;
    if (!to) {
        n->r = n->r < 0 ? n->r : -EINVAL;
        return;
    }
    n->message = at;
    put_at(n, at, &h, sizeof h);
    put_at(n, at + sizeof h, head, len);
    message_grow(n);
}

void netlink_begin(struct netlink *n, uint16_t type, uint16_t flags, const void *head, size_t len)
{
    begin(n, type, (uint16_t)(NLM_F_ACK | flags), head, len);
    n->n_answers++;
}

void netlink_begin_silent(struct netlink *n, uint16_t type, const void *head, size_t len)
{
    begin(n, type, 0, head, len);
}

void netlink_put(struct netlink *n, uint16_t type, const void *data, size_t len)
{
    struct nlattr a = {.nla_type = type, .nla_len = (uint16_t)(NLA_HDRLEN + len)};
    size_t at = n->len;
    if (!room(n, NLA_HDRLEN + len))
        return;
    put_at(n, at, &a, sizeof a);
    if (len > 0)
        put_at(n, at + NLA_HDRLEN, data, len);
    message_grow(n);
}

void netlink_put_text(struct netlink *n, uint16_t type, const char *text)
{
    netlink_put(n, type, text, strlen(text) + 1);
}

void netlink_put_be32(struct netlink *n, uint16_t type, uint32_t value)
{
    value = htonl(value);
    netlink_put(n, type, &value, sizeof value);
}

void netlink_nest(struct netlink *n, uint16_t type)
{
    size_t at = n->len;
    if (n->n_nests == NETLINK_NESTING) {
        n->r = -EMSGSIZE;
        return;
    }
    netlink_put(n, type | NLA_F_NESTED, NULL, 0);
    n->nests[n->n_nests++] = at;
}

void netlink_unnest(struct netlink *n, size_t levels)
{
    while (levels-- > 0 && n->n_nests > 0) {
        size_t at = n->nests[--n->n_nests];
        uint16_t len = (uint16_t)(n->len - at);
        if (n->r == 0)
            put_at(n, at + offsetof(struct nlattr, nla_len), &len, sizeof len);
    }
}

/* ---- The kernel's answers -------------------------------------------------------------------- */

/* Takes the acknowledgements in the N bytes at IN; the first error among them, or 0. */
static int answers_take(const uint8_t *in, size_t n, size_t *left)
{
    struct nlmsghdr h;
    struct nlmsgerr e;
    for (size_t at = 0; n - at >= sizeof h; at += NLMSG_ALIGN(h.nlmsg_len)) {
        memcpy(&h, in + at, sizeof h);
        if (h.nlmsg_len < sizeof h || NLMSG_ALIGN(h.nlmsg_len) > n - at)
            return -EBADMSG;
        if (h.nlmsg_type != NLMSG_ERROR)
            continue;
        if (h.nlmsg_len < NLMSG_HDRLEN + sizeof e)
            return -EBADMSG;
        memcpy(&e, in + at + NLMSG_HDRLEN, sizeof e);
        if (e.error != 0) /* 0 is an acknowledgement */
            return e.error;
        *left -= *left > 0;
        if (NLMSG_ALIGN(h.nlmsg_len) == n - at)
            break;
    }
    return 0;
}

int netlink_send(const struct netlink *n, int protocol)
{
    _Alignas(8) uint8_t in[8192];
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    size_t left = n->n_answers;
    if (n->r < 0)
        return n->r;
    CLEANUP(fd_done) int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&kernel, sizeof kernel) < 0)
        return -errno;
    if (send(fd, n->bytes, n->len, 0) < 0)
        return -errno;
    while (left > 0) { /* they are there when send comes back: none is waited for */
        ssize_t got = recv(fd, in, sizeof in, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 && errno != EAGAIN ? -errno : -EPROTO;
        int r = answers_take(in, (size_t)got, &left);
        if (r < 0)
            return r;
    }
    return 0;
}

int netlink_loopback_up(void)
{
    struct netlink n = {.r = 0};
    const struct ifinfomsg link = {
        .ifi_index = NETLINK_LO, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};
    netlink_begin(&n, RTM_NEWLINK, 0, &link, sizeof link);
    return netlink_send(&n, NETLINK_ROUTE);
}
