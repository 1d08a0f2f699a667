/* egress/names: whatever memory an egress before left, each name in it has an address of its own
 * that leads back to it, and new ones go on behind. */
#include "egress/names.h"
#include "wire/host.h"
#include <arpa/inet.h>
#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The number of names that are there. */
static uint32_t names_check(const struct names *n)
{
    char canonical[HOST_MAX];
    uint32_t count = 0;
    for (;; count++) {
        const struct sockaddr_in sa = {.sin_family = AF_INET,
                                       .sin_addr.s_addr = htonl(NAMES_V4_FIRST + count)};
        const char *host = names_host(n, (const struct sockaddr *)&sa);
        if (host == NULL)
            return count;
        assert(host_canonical(host, strlen(host), false, canonical) == HOST_NAME);
        assert(strcmp(host, canonical) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t memory[NAMES_BYTES];
    struct names *n, *next;
    struct in_addr v4, again;
    struct in6_addr v6;
    size_t used = size < sizeof memory ? size : sizeof memory;
    memcpy(memory, data, used);
    if (names_new(size, memory, &n) < 0)
        return 0;
    uint32_t count = names_check(n);
    assert(names_address(n, "fuzz.test", &v4, &v6) == 0);
    assert(ntohl(v4.s_addr) - NAMES_V4_FIRST <= count);
    assert(names_new(~size, memory, &next) == 0); /* another one reads the same */
    assert(names_address(next, "fuzz.test", &again, &v6) == 0 && again.s_addr == v4.s_addr);
    assert(names_check(next) == names_check(n));
    names_free(n);
    names_free(next);
    memset(memory, 0, used + HOST_MAX + 2);
    return 0;
}
