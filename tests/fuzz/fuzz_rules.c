/* Lock-down orders: what is read and written again is the same bytes. */
#include "wire/rules.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct unpack u = unpack_from(data, size);
    struct rules r;
    if (rules_get(&u, &r) < 0)
        return 0;
    struct pack p = {0};
    rules_put(&p, &r);
    size_t used = (size_t)(u.at - data);
    if (p.r < 0 || p.out.len != used || memcmp(p.out.data, data, used) != 0)
        abort();
    pack_done(&p);
    rules_done(&r);
    return 0;
}
