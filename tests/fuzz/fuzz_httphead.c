/* wire/httphead: the first byte says request or response, the second how the rest is split. Whole
 * and split must agree; what is behind a chunked head is fed to the chunk reader. */
#include "wire/httphead.h"
#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void head_check(const struct httphead *h)
{
    const char *end = h->raw.data + h->raw.len;
    assert(h->raw.len <= h->max && memchr(h->raw.data, '\0', h->raw.len) == NULL);
    for (size_t i = 0; i < h->n_fields; i++) {
        const struct head_field *f = &h->fields[i];
        assert(f->name_len > 0 && f->name >= h->raw.data && f->value + f->value_len < end);
        assert(memchr(f->value, '\r', f->value_len) == NULL);
        assert(memchr(f->value, '\n', f->value_len) == NULL);
    }
    assert(httphead_count(h, "content-length") + httphead_count(h, "transfer-encoding") <= 1);
    if (!h->is_response)
        assert(h->target_kind != TARGET_BAD && h->body != BODY_UNTIL_CLOSE &&
               httphead_count(h, "host") <= 1);
}

static void chunks_check(const char *in, size_t n, size_t step)
{
    struct chunks whole, split;
    size_t used_whole = 0, at = 0;
    enum head_result r = HEAD_MORE;
    chunks_init(&whole);
    chunks_init(&split);
    enum head_result expected = chunks_feed(&whole, in, n, &used_whole);
    while (r == HEAD_MORE && at < n) {
        size_t used = 0;
        r = chunks_feed(&split, in + at, step < n - at ? step : n - at, &used);
        at += used;
    }
    assert(r == expected && (r != HEAD_DONE || at == used_whole));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct httphead whole, split;
    size_t used_whole = 0, at = 0;
    if (size < 2)
        return 0;
    const char *in = (const char *)data + 2;
    size_t n = size - 2, step = (size_t)data[1] % 64 + 1;
    bool is_response = data[0] & 1;
    httphead_init(&whole, 4096, is_response);
    httphead_init(&split, 4096, is_response);
    enum head_result expected = httphead_feed(&whole, in, n, &used_whole), r = HEAD_MORE;
    while (r == HEAD_MORE && at < n) {
        size_t used = 0;
        r = httphead_feed(&split, in + at, step < n - at ? step : n - at, &used);
        at += used;
    }
    assert(r == expected);
    if (r == HEAD_DONE) {
        assert(at == used_whole && whole.n_fields == split.n_fields);
        head_check(&whole);
        head_check(&split);
        if (whole.body == BODY_CHUNKED)
            chunks_check(in + at, n - at, step);
    }
    if (r == HEAD_BAD)
        assert(whole.why != NULL && split.why != NULL);
    httphead_done(&whole);
    httphead_done(&split);
    return 0;
}
