/* Frames in any split: the same bytes give the same frames, whole or in pieces. */
#include "wire/frame.h"
#include "wire/msg.h"
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Digest of all frames, and how reading ended. */
static uint64_t read_in_steps(const uint8_t *data, size_t size, size_t step, int *ret_end)
{
    struct frame_reader fr = {0};
    struct frame f;
    uint64_t digest = 14695981039346656037U;
    int r = 0;
    for (size_t at = 0; at < size && r == 0; at += step) {
        r = frame_feed(&fr, data + at, size - at < step ? size - at : step);
        while (r == 0 && (r = frame_next(&fr, &f)) == 1) {
            (void)msg_fds(&f, 4);
            digest = (digest ^ f.kind) * 1099511628211U;
            for (size_t i = 0; i < f.len; i++)
                digest = (digest ^ f.payload[i]) * 1099511628211U;
            r = 0;
        }
    }
    frame_reader_done(&fr);
    *ret_end = r;
    return digest;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int end_whole = 0, end_split = 0;
    uint64_t whole = read_in_steps(data, size, size ? size : 1, &end_whole);
    for (size_t step = 1; step <= 7; step += 3)
        if (read_in_steps(data, size, step, &end_split) != whole || end_split != end_whole)
            abort();
    return 0;
}
