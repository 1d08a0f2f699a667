/* store/segment: heads of a spool's files, as a torn or garbled disk gives them back. What is taken
 * is what was written: put again it is the same bytes. */
#include "store/segment.h"
#include <assert.h>
#include <string.h>

#define CHECKED 44 /* of a segment head: behind its check nothing counts */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct segment_head segment = {0};
    struct frame_head frame = {0};
    unsigned char again[SEGMENT_HEAD > FRAME_HEAD ? SEGMENT_HEAD : FRAME_HEAD];
    uint64_t seq;
    char name[SEGMENT_NAME], text[SEGMENT_NAME + 3] = "";
    if (segment_head_get(data, size, &segment) == 0) {
        segment_head_put(&segment, again);
        assert(size >= SEGMENT_HEAD && memcmp(again, data, CHECKED) == 0);
    }
    if (frame_head_get(data, size, &frame) == 0) {
        frame_head_put(&frame, again);
        assert(size >= FRAME_HEAD && memcmp(again, data, FRAME_HEAD) == 0);
    }
    memcpy(text, data, size < sizeof text - 1 ? size : sizeof text - 1);
    if (segment_name_parse(text, &seq) == 0) {
        segment_name(seq, name);
        assert(strcmp(name, text) == 0);
    }
    return 0;
}
