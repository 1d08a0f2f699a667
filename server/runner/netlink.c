/* Runs in: runner (stage). Reads: trusted. May block: yes, on the kernel only. */
#include "runner/netlink.h"
#include "base/fd.h"
#include "base/mem.h"
#include <errno.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Sends one request that asks for an acknowledgement and returns what the kernel made of it. */
static int netlink_call(const struct nlmsghdr *request)
{
    _Alignas(struct nlmsghdr) char in[1024];
    CLEANUP(fd_done) int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0)
        return -errno;
    if (send(fd, request, request->nlmsg_len, 0) < 0)
        return -errno;
    ssize_t n = recv(fd, in, sizeof in, 0);
    if (n < 0)
        return -errno;
    const struct nlmsghdr *head = (const void *)in;
    if ((size_t)n < NLMSG_LENGTH(sizeof(struct nlmsgerr)) || head->nlmsg_type != NLMSG_ERROR)
        return -EBADMSG;
    struct nlmsgerr answer;
    memcpy(&answer, in + NLMSG_HDRLEN, sizeof answer);
    return answer.error; /* 0 is the acknowledgement */
}

int netlink_loopback_up(void)
{
    struct {
        struct nlmsghdr head;
        struct ifinfomsg link;
    } request = {
        .head = {.nlmsg_len = NLMSG_LENGTH(sizeof(struct ifinfomsg)),
                 .nlmsg_type = RTM_NEWLINK,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK},
        .link = {.ifi_index = NETLINK_LO, .ifi_flags = IFF_UP, .ifi_change = IFF_UP},
    };
    return netlink_call(&request.head);
}
