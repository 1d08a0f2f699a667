/* Runs in: any. Reads: hostile. May block: no. */
#include "wire/synthetic.h"
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>

bool synthetic_is(const struct sockaddr *sa)
{
    static const uint8_t prefix[] = {SYNTHETIC_V6_BYTES};
    if (sa->sa_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, sa, sizeof v4);
        return (ntohl(v4.sin_addr.s_addr) & SYNTHETIC_V4_MASK) == SYNTHETIC_V4_NET;
    }
    if (sa->sa_family == AF_INET6) {
        struct sockaddr_in6 v6;
        memcpy(&v6, sa, sizeof v6);
        return memcmp(&v6.sin6_addr, prefix, sizeof prefix) == 0;
    }
    return false;
}
