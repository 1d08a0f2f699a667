/* Length-prefixed frames on a stream socket: u32 length of what follows (little-endian), u8 kind,
 * payload. Pure: bytes in, frames out; descriptors are matched to frames by the owner of the socket
 * (wire/msg says how many come with each kind; they travel with a frame's first byte). */
#pragma once
#include "base/str.h"
#include <stdint.h>

#define FRAME_HEAD 5
#define FRAME_MAX  ((size_t)(1 << 21)) /* payload; argv and environment of 1 MiB fit */

struct frame {
    uint8_t kind;
    const uint8_t *payload; /* borrowed until the next frame_next or frame_feed */
    size_t len;
};
struct frame_reader {
    struct str in;
    size_t used; /* bytes of IN that the last frame took */
};
int frame_feed(struct frame_reader *fr, const void *bytes, size_t n); /* -EMSGSIZE, -ENOMEM */
/* 1 and a frame, 0 when more bytes are needed, -EBADMSG for a length of 0 or beyond FRAME_MAX. */
int frame_next(struct frame_reader *fr, struct frame *ret);
void frame_reader_done(struct frame_reader *fr);
/* Head and payload appended to OUT. */
int frame_put(struct str *out, uint8_t kind, const void *payload, size_t n);
