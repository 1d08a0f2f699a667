/* Runs in: egress. Reads: hostile (names from inside). May block: no. */
#include "egress/names.h"
#include "wire/host.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS (2 * NAMES_MAX) /* a power of two, never more than half full */

/* The memory is a list of records, the first with length 0 ends it: one byte, the length of the
 * name; the name; a NUL. */
struct names {
    uint64_t seed;
    uint8_t *memory;
    size_t at; /* where the next record will be */
    size_t n;
    const char *hosts[NAMES_MAX]; /* by number: the address is NAMES_V4_FIRST and it */
    uint16_t slots[SLOTS];        /* a number and one; 0 = empty */
};
_Static_assert(NAMES_MAX < UINT16_MAX, "a slot holds a number and one");
_Static_assert(NAMES_V4_FIRST + NAMES_MAX <= (SYNTHETIC_V4_NET | ~SYNTHETIC_V4_MASK),
               "within 198.18.0.0/15");
_Static_assert(NAMES_BYTES >= NAMES_MAX * (size_t)HOST_MAX + 1, "a record each, and the end");

static const uint8_t PREFIX[8] = {SYNTHETIC_V6_BYTES};

/* FNV-1a from a start that only we know, mixed once more (the finalizer of MurmurHash3). */
static size_t slot_of(const struct names *n, const char *host)
{
    uint64_t h = n->seed ^ 0xcbf29ce484222325u;
    for (const char *c = host; *c; c++)
        h = (h ^ (uint8_t)*c) * 0x100000001b3u;
    h = (h ^ h >> 33) * 0xff51afd7ed558ccdu;
    return (size_t)(h ^ h >> 33) % SLOTS;
}

/* The slot that holds HOST, or the empty one where it belongs. */
static size_t slot_find(const struct names *n, const char *host)
{
    size_t slot = slot_of(n, host);
    while (n->slots[slot] != 0 && strcmp(n->hosts[n->slots[slot] - 1u], host) != 0)
        slot = (slot + 1) % SLOTS;
    return slot;
}

static void record_take(struct names *n, size_t slot, size_t len)
{
    n->hosts[n->n] = (const char *)n->memory + n->at + 1;
    n->slots[slot] = (uint16_t)++n->n;
    n->at += len + 2;
}

/* What a table before us left; a record that it cannot have written ends the list. */
static void records_read(struct names *n)
{
    char canonical[HOST_MAX];
    while (n->n < NAMES_MAX && n->memory[n->at] != 0) {
        size_t len = n->memory[n->at];
        const char *host = (const char *)n->memory + n->at + 1;
        if (host[len] != '\0' || host_canonical(host, len, false, canonical) != HOST_NAME ||
            strcmp(host, canonical) != 0)
            return;
        size_t slot = slot_find(n, host);
        if (n->slots[slot] != 0)
            return;
        record_take(n, slot, len);
    }
}

int names_new(uint64_t seed, void *memory, struct names **ret)
{
    struct names *n = calloc(1, sizeof *n);
    if (n == NULL)
        return -ENOMEM;
    n->seed = seed;
    n->memory = memory;
    records_read(n);
    *ret = n;
    return 0;
}

void names_free(struct names *n)
{
    free(n);
}

static void addresses(size_t number, struct in_addr *ret4, struct in6_addr *ret6)
{
    ret4->s_addr = htonl(NAMES_V4_FIRST + (uint32_t)number);
    memset(ret6, 0, sizeof *ret6);
    memcpy(ret6->s6_addr, PREFIX, sizeof PREFIX);
    memcpy(ret6->s6_addr + 12, &ret4->s_addr, 4);
}

/* Whole before it counts: we may be killed between any two bytes. */
static void record_write(struct names *n, const char *host, size_t len)
{
    uint8_t *at = n->memory + n->at;
    memcpy(at + 1, host, len + 1);
    at[len + 2] = 0; /* what may follow is not ours */
    __atomic_store_n(at, (uint8_t)len, __ATOMIC_RELEASE);
}

int names_address(struct names *n, const char *host, struct in_addr *ret4, struct in6_addr *ret6)
{
    size_t len = strlen(host), slot = slot_find(n, host);
    if (n->slots[slot] != 0) {
        addresses(n->slots[slot] - 1u, ret4, ret6);
        return 0;
    }
    if (n->n == NAMES_MAX || len == 0 || len >= HOST_MAX - 1)
        return -ENOSPC;
    record_write(n, host, len);
    record_take(n, slot, len);
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

int names_settle(const struct names *n, char host[static HOST_MAX])
{
    struct sockaddr_storage sa = {0};
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, host, &v4.sin_addr) == 1)
        memcpy(&sa, &v4, sizeof v4);
    else if (inet_pton(AF_INET6, host, &v6.sin6_addr) == 1)
        memcpy(&sa, &v6, sizeof v6);
    else
        return 0;
    if (!synthetic_is((const struct sockaddr *)&sa))
        return 0;
    const char *name = names_host(n, (const struct sockaddr *)&sa);
    if (name == NULL)
        return -ENOENT;
    snprintf(host, HOST_MAX, "%s", name);
    return 0;
}
