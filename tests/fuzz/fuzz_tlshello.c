/* wire/tlshello: the first byte says how the rest is split. Whole and split must agree; a name is
 * canonical, and none comes out of what is refused. */
#include "wire/tlshello.h"
#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static enum hello_result feed(struct tlshello *h, const uint8_t *in, size_t n, size_t step)
{
    enum hello_result r = HELLO_MORE;
    tlshello_init(h);
    for (size_t at = 0; at < n && r == HELLO_MORE; at += step)
        r = tlshello_feed(h, in + at, step < n - at ? step : n - at);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tlshello whole, split;
    char again[HOST_MAX];
    if (size < 2)
        return 0;
    enum hello_result r = feed(&whole, data + 1, size - 1, size);
    assert(feed(&split, data + 1, size - 1, (size_t)data[0] % 64 + 1) == r);
    assert(strcmp(whole.name, split.name) == 0);
    assert(r != HELLO_BAD || (whole.why != NULL && split.why != NULL));
    assert(r == HELLO_DONE || whole.name[0] == '\0');
    if (whole.name[0]) {
        assert(host_canonical(whole.name, strlen(whole.name), false, again) != HOST_BAD);
        assert(strcmp(whole.name, again) == 0);
    }
    tlshello_done(&whole);
    tlshello_done(&split);
    return 0;
}
