/* Runs in: egress. Reads: hostile (names from inside). May block: no. */
#include "egress/names.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS (2 * NAMES_MAX) /* a power of two, never more than half full */

struct names {
    uint64_t seed;
    size_t n;
    char *hosts[NAMES_MAX]; /* by number: the address is NAMES_V4_FIRST and it */
    uint16_t slots[SLOTS];  /* a number and one; 0 = empty */
};
_Static_assert(NAMES_MAX < UINT16_MAX, "a slot holds a number and one");
_Static_assert(NAMES_V4_FIRST + NAMES_MAX <= (SYNTHETIC_V4_NET | ~SYNTHETIC_V4_MASK),
               "within 198.18.0.0/15");

static const uint8_t PREFIX[8] = {SYNTHETIC_V6_BYTES};

int names_new(uint64_t seed, struct names **ret)
{
    struct names *n = calloc(1, sizeof *n);
    if (n == NULL)
        return -ENOMEM;
    n->seed = seed;
    *ret = n;
    return 0;
}

void names_free(struct names *n)
{
    for (size_t i = 0; n != NULL && i < n->n; i++)
        free(n->hosts[i]);
    free(n);
}

/* FNV-1a from a start that only we know, mixed once more (the finalizer of MurmurHash3). */
static size_t slot_of(const struct names *n, const char *host)
{
    uint64_t h = n->seed ^ 0xcbf29ce484222325u;
    for (const char *c = host; *c; c++)
        h = (h ^ (uint8_t)*c) * 0x100000001b3u;
    h = (h ^ h >> 33) * 0xff51afd7ed558ccdu;
    return (size_t)(h ^ h >> 33) % SLOTS;
}

static void addresses(size_t number, struct in_addr *ret4, struct in6_addr *ret6)
{
    ret4->s_addr = htonl(NAMES_V4_FIRST + (uint32_t)number);
    memset(ret6, 0, sizeof *ret6);
    memcpy(ret6->s6_addr, PREFIX, sizeof PREFIX);
    memcpy(ret6->s6_addr + 12, &ret4->s_addr, 4);
}

int names_address(struct names *n, const char *host, struct in_addr *ret4, struct in6_addr *ret6)
{
    size_t slot = slot_of(n, host);
    for (; n->slots[slot] != 0; slot = (slot + 1) % SLOTS) {
        size_t number = n->slots[slot] - 1u;
        if (strcmp(n->hosts[number], host) == 0) {
            addresses(number, ret4, ret6);
            return 0;
        }
    }
    if (n->n == NAMES_MAX)
        return -ENOSPC;
    char *copy = strdup(host);
    if (copy == NULL)
        return -ENOMEM;
    n->hosts[n->n] = copy;
    n->slots[slot] = (uint16_t)++n->n;
    addresses(n->n - 1, ret4, ret6);
    return 0;
}

const char *names_host(const struct names *n, const struct sockaddr *sa)
{
    uint32_t v4;
    if (sa->sa_family == AF_INET) {
        v4 = ntohl(((const struct sockaddr_in *)(const void *)sa)->sin_addr.s_addr);
    } else if (sa->sa_family == AF_INET6) {
        const uint8_t *in = ((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr.s6_addr;
        if (memcmp(in, PREFIX, sizeof PREFIX) != 0 || memcmp(in + 8, "\0\0\0\0", 4) != 0)
            return NULL;
        v4 = (uint32_t)in[12] << 24 | (uint32_t)in[13] << 16 | (uint32_t)in[14] << 8 | in[15];
    } else {
        return NULL;
    }
    return v4 >= NAMES_V4_FIRST && v4 - NAMES_V4_FIRST < n->n ? n->hosts[v4 - NAMES_V4_FIRST]
                                                              : NULL;
}
