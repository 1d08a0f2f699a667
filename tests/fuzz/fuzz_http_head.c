/* api/http_head: what is said of a head stays said, whatever comes behind it, and is no worse for
 * having come in pieces. */
#include "api/http_head.h"
#include <assert.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *in = (const char *)data, *code = NULL, *why = NULL, *code_part = NULL,
               *why_part = NULL;
    enum head_state all = head_judge(in, size, &code, &why);
    assert(all != HEAD_REFUSED || (code && why));
    for (size_t n = 0; n < size && n < 400; n++) {
        enum head_state part = head_judge(in, n, &code_part, &why_part);
        if (part == HEAD_REFUSED)
            assert(all == HEAD_REFUSED);
        if (part == HEAD_WHOLE)
            assert(all == HEAD_WHOLE);
    }
    return 0;
}
