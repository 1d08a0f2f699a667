/* Runs in: egress. Reads: trusted (the kernel). May block: no. */
#include "egress/redirect.h"
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include <linux/netfilter_ipv4.h> /* wants <netinet/in.h> before it */

bool is_redirected(int fd)
{
    struct sockaddr_storage own = {0}, wanted = {0};
    socklen_t n = sizeof own, n_wanted = sizeof wanted;
    if (getsockname(fd, (struct sockaddr *)&own, &n) < 0)
        return true;
    bool v6 = own.ss_family == AF_INET6;
    if (getsockopt(fd, v6 ? SOL_IPV6 : SOL_IP, SO_ORIGINAL_DST, &wanted, &n_wanted) < 0)
        return false; /* nothing is redirected here */
    if (v6) {
        struct sockaddr_in6 a, b;
        memcpy(&a, &own, sizeof a);
        memcpy(&b, &wanted, sizeof b);
        return a.sin6_port != b.sin6_port ||
               memcmp(&a.sin6_addr, &b.sin6_addr, sizeof a.sin6_addr) != 0;
    }
    struct sockaddr_in a, b;
    memcpy(&a, &own, sizeof a);
    memcpy(&b, &wanted, sizeof b);
    return a.sin_port != b.sin_port || a.sin_addr.s_addr != b.sin_addr.s_addr;
}
