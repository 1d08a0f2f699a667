/* Runs in: egress. Reads: trusted (the kernel). May block: no. */
#include "egress/route.h"
#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct question {
    struct nlmsghdr head;
    struct rtmsg route;
    struct rtattr attr;
    uint8_t address[16];
};

int route_open(void)
{
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
    if (fd < 0)
        return -errno;
    /* Connected to the kernel: nobody else's message is taken for an answer. */
    if (connect(fd, (struct sockaddr *)&kernel, sizeof kernel) < 0)
        return -errno;
    return fd;
}

static bool question_make(struct question *q, const struct sockaddr *sa)
{
    static uint32_t sequence;
    size_t n = sa->sa_family == AF_INET ? 4 : 16;
    memset(q, 0, sizeof *q);
    if (sa->sa_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, sa, sizeof v4);
        memcpy(q->address, &v4.sin_addr, n);
    } else if (sa->sa_family == AF_INET6) {
        struct sockaddr_in6 v6;
        memcpy(&v6, sa, sizeof v6);
        memcpy(q->address, &v6.sin6_addr, n);
    } else {
        return false;
    }
    q->head = (struct nlmsghdr){.nlmsg_len = (uint32_t)(offsetof(struct question, address) + n),
                                .nlmsg_type = RTM_GETROUTE,
                                .nlmsg_flags = NLM_F_REQUEST,
                                .nlmsg_seq = ++sequence};
    q->route.rtm_family = (unsigned char)sa->sa_family;
    q->route.rtm_dst_len = (unsigned char)(n * 8);
    q->attr.rta_len = (unsigned short)RTA_LENGTH(n);
    q->attr.rta_type = RTA_DST;
    return true;
}

/* No route is an answer too: the dial will fail by itself. */
static int error_judge(int error)
{
    switch (-error) {
    case ENETUNREACH:
    case EHOSTUNREACH:
    case EACCES: /* a prohibit route */
    case EINVAL: /* a blackhole route */
        return 0;
    default:
        return error < 0 ? error : -EPROTO;
    }
}

static int answer_judge(const char *bytes, size_t n, uint32_t sequence)
{
    struct nlmsghdr head;
    struct nlmsgerr error;
    struct rtmsg route;
    if (n < sizeof head)
        return -EPROTO;
    memcpy(&head, bytes, sizeof head);
    if (head.nlmsg_seq != sequence)
        return -EAGAIN; /* of an earlier question */
    if (head.nlmsg_type == NLMSG_ERROR && n >= NLMSG_HDRLEN + sizeof error) {
        memcpy(&error, bytes + NLMSG_HDRLEN, sizeof error);
        return error_judge(error.error);
    }
    if (head.nlmsg_type != RTM_NEWROUTE || n < NLMSG_HDRLEN + sizeof route)
        return -EPROTO;
    memcpy(&route, bytes + NLMSG_HDRLEN, sizeof route);
    return route.rtm_type != RTN_UNICAST && route.rtm_type != RTN_UNREACHABLE &&
           route.rtm_type != RTN_BLACKHOLE && route.rtm_type != RTN_PROHIBIT;
}

int route_is_own(int route_fd, const struct sockaddr *sa)
{
    struct question q;
    char answer[2048];
    if (!question_make(&q, sa))
        return -EAFNOSUPPORT;
    if (send(route_fd, &q, q.head.nlmsg_len, 0) < 0)
        return errno == EAFNOSUPPORT || errno == EOPNOTSUPP ? 0 : -errno;
    for (;;) { /* the answer is there when send comes back; else EAGAIN ends this */
        ssize_t n = recv(route_fd, answer, sizeof answer, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        int r = answer_judge(answer, (size_t)n, q.head.nlmsg_seq);
        if (r != -EAGAIN)
            return r;
    }
}
