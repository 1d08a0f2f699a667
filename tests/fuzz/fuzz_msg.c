/* One frame of any kind: the number of descriptors never passes the rule or what is queued; then
 * its payload through the loose readers of wire/pack. */
#include "wire/frame.h"
#include "wire/msg.h"
#include "wire/pack.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void unpack_by_recipe(const uint8_t *data, size_t size)
{
    struct unpack u = unpack_from(data, size);
    size_t n;
    for (unsigned i = 0; i < 64 && u.r == 0; i++) {
        struct strv v = {0};
        char *s = NULL;
        switch (unpack_u8(&u) % 6) {
        case 0:
            (void)unpack_u16(&u);
            break;
        case 1:
            (void)unpack_u32(&u);
            break;
        case 2:
            (void)unpack_u64(&u);
            break;
        case 3:
            (void)unpack_bytes(&u, 100, &n);
            break;
        case 4:
            s = unpack_str(&u, 100);
            if (s && strlen(s) > 100)
                abort();
            break;
        default:
            (void)unpack_strv(&u, 10, 100, &v);
            break;
        }
        free(s);
        strv_done(&v);
    }
    if (u.at > u.end)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    struct frame f = {.kind = data[0], .payload = data + 2, .len = size - 2};
    size_t queued = data[1] % 10;
    int n = msg_fds(&f, queued);
    const struct msg_rule *rule = msg_rule(f.kind);
    if (n >= 0 && (!rule || (size_t)n > queued || n < rule->fds_min || n > rule->fds_max))
        abort();
    unpack_by_recipe(data + 2, size - 2);
    return 0;
}
