/* Stage orders: what is read and written again is the same bytes. */
#include "base/path.h"
#include "wire/order.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put_again(const uint8_t *data, size_t used, const struct pack *p)
{
    if (p->r < 0 || p->out.len != used || memcmp(p->out.data, data, used) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct unpack u = unpack_from(data, size);
    struct order_head h;
    struct pack p = {0};
    if (order_get_head(&u, &h) < 0)
        return 0;
    order_put_head(&p, &h);
    struct join j;
    for (uint32_t i = 0; i < h.n_joins && order_get_join(&u, &j) == 0; i++) {
        if (!path_is_canonical(j.target))
            abort();
        order_put_join(&p, &j);
        join_done(&j);
    }
    if (u.r == 0)
        put_again(data, (size_t)(u.at - data), &p);
    pack_done(&p);
    order_head_done(&h);
    return 0;
}
