/* wire/socks: the first byte says how the rest is split. Whole and split must agree; what is asked
 * for is a canonical host. */
#include "wire/socks.h"
#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static enum socks_result feed(struct socks *s, const uint8_t *in, size_t n, size_t step,
                              size_t *ret_at)
{
    enum socks_result r = SOCKS_MORE;
    size_t at = 0;
    socks_init(s);
    while (at < n && (r == SOCKS_MORE || r == SOCKS_GREETED)) {
        size_t used = 0;
        r = socks_feed(s, in + at, step < n - at ? step : n - at, &used);
        assert(used > 0);
        at += used;
    }
    *ret_at = at;
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct socks whole, split;
    size_t at_whole, at_split;
    char again[HOST_MAX];
    uint8_t said[SOCKS_REPLY_MAX];
    if (size < 2)
        return 0;
    enum socks_result r = feed(&whole, data + 1, size - 1, size, &at_whole);
    assert(feed(&split, data + 1, size - 1, (size_t)data[0] % 32 + 1, &at_split) == r);
    assert(at_whole == at_split && whole.port == split.port);
    if (r == SOCKS_ASKED) {
        assert(strcmp(whole.host, split.host) == 0 && whole.port != 0);
        assert(host_canonical(whole.host, strlen(whole.host), false, again) == whole.kind);
        assert(strcmp(whole.host, again) == 0);
        assert(socks_reply(&whole, SOCKS_REFUSED, said) == (whole.version == 5 ? 10 : 8));
    }
    if (r == SOCKS_BAD)
        assert(whole.why != NULL && socks_answer(&whole, said) <= SOCKS_REPLY_MAX);
    assert(at_whole <= SOCKS_REQUEST_MAX + 257);
    return 0;
}
