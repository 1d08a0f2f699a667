/* Runs in: egress. Reads: trusted (the kernel). May block: no. */
#include "egress/redirect.h"
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>

#include <linux/netfilter_ipv4.h> /* wants <netinet/in.h> before it */

static bool is_same_v4(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    struct sockaddr_in x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x.sin_port == y.sin_port && x.sin_addr.s_addr == y.sin_addr.s_addr;
}

static bool is_same_v6(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    struct sockaddr_in6 x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x.sin6_port == y.sin6_port &&
           memcmp(&x.sin6_addr, &y.sin6_addr, sizeof x.sin6_addr) == 0;
}

enum redirected redirected_from(int fd, struct sockaddr_storage *ret_wanted)
{
    struct sockaddr_storage own = {0}, wanted = {0};
    socklen_t n = sizeof own, n_wanted = sizeof wanted;
    if (getsockname(fd, (struct sockaddr *)&own, &n) < 0)
        return REDIRECTED_UNKNOWN;
    bool v6 = own.ss_family == AF_INET6;
    if (getsockopt(fd, v6 ? SOL_IPV6 : SOL_IP, SO_ORIGINAL_DST, &wanted, &n_wanted) < 0)
        return REDIRECTED_NO; /* nothing is redirected here */
    if (v6 ? is_same_v6(&own, &wanted) : is_same_v4(&own, &wanted))
        return REDIRECTED_NO;
    *ret_wanted = wanted;
    return REDIRECTED_YES;
}
