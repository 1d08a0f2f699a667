/* wire/egress: what is taken packs to the same bytes again. */
#include "wire/egress.h"
#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct egress_start s = {0};
    struct unpack u = unpack_from(data, size);
    if (egress_start_get(&u, &s) < 0)
        return 0;
    struct pack p = {0};
    egress_start_put(&p, &s);
    assert(p.r == 0 && p.out.len == size && memcmp(p.out.data, data, size) == 0);
    pack_done(&p);
    egress_start_done(&s);
    return 0;
}
