/* api/target and api/ranges: what stands in a request's target and its Range field. What is taken
 * apart holds no NUL, is UTF-8 and within bounds. */
#include "api/ranges.h"
#include "api/target.h"
#include "base/str.h"
#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct segments s = {0};
    uint64_t from = 0, to = 0;
    if (size < 2)
        return 0;
    uint64_t bytes = (uint64_t)data[0] << (data[1] % 56);
    char *text = strndup((const char *)data + 2, size - 2);
    if (!text)
        return 0;
    if (target_segments(text, &s) == 0) {
        assert(s.n <= TARGET_SEGMENTS);
        for (unsigned i = 0; i < s.n; i++)
            assert(utf8_is_valid(s.items[i], strlen(s.items[i])));
        (void)target_matches("/v1/sessions/{id}/files", &s);
        segments_done(&s);
    }
    if (range_parse(text, bytes, &from, &to) == 1)
        assert(from <= to && to < bytes);
    free(text);
    return 0;
}
