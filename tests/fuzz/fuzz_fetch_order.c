/* wire/fetch: what is taken packs to the same bytes again. */
#include "wire/fetch.h"
#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fetch_order o = {0};
    struct unpack u = unpack_from(data, size);
    if (fetch_order_get(&u, &o) < 0)
        return 0;
    struct pack p = {0};
    fetch_order_put(&p, &o);
    assert(p.r == 0 && p.out.len == size && memcmp(p.out.data, data, size) == 0);
    pack_done(&p);
    fetch_order_done(&o);
    return 0;
}
