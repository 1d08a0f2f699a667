/* The files of a spool: segments, each a header and frames. Only for store/spool*.c.
 *
 * A segment is named by the number of its first frame, 16 hex digits. All numbers little-endian.
 *   header   "CRDNSPL1", first_seq, off[3] (bytes of each stream before it), check (4), 0 (4)
 *   frame    head_check (4), body_check (4), len (4), kind (1), stream (1), 0 (2), seq, t_ms, off,
 *            LEN bytes
 * Within a segment numbers grow by one. Between two segments frames may be missing: dropped past
 * the cap, or not written because the disk was full. A reader ends at the first frame that is not
 * whole: header check wrong, or fewer bytes than LEN behind it. */
#pragma once
#include "store/spool.h"

#define SEGMENT_HEAD 48
#define FRAME_HEAD   40
#define SEGMENT_NAME 17 /* with NUL */

struct segment_head {
    uint64_t first_seq, off[SPOOL_STREAMS];
};
struct frame_head {
    uint32_t len, body_check;
    enum spool_kind kind;
    enum spool_stream stream;
    uint64_t seq, t_ms, off;
};
void segment_name(uint64_t first_seq, char ret[static SEGMENT_NAME]);
int segment_name_parse(const char *name, uint64_t *ret_first_seq); /* -EINVAL */
void segment_head_put(const struct segment_head *h, unsigned char ret[static SEGMENT_HEAD]);
int segment_head_get(const unsigned char *bytes, size_t n, struct segment_head *ret); /* -EBADMSG */
void frame_head_put(const struct frame_head *h, unsigned char ret[static FRAME_HEAD]);
int frame_head_get(const unsigned char *bytes, size_t n, struct frame_head *ret); /* -EBADMSG */
/* The first numbers of all segments in that folder, growing; *ret is malloc'ed. */
int segments_list(int dir_fd, uint64_t **ret, size_t *ret_n);
int segments_last(int dir_fd, uint64_t *ret_first_seq); /* -ENOENT: there is none */
/* Finds torn and garbled bytes, not forged ones. */
uint32_t segment_check(const void *bytes, size_t n);

/* Goes over the frames of a spool from one segment to the next. */
#define CURSOR_CHUNK 4096
struct cursor {
    int fd; /* -1 = stands nowhere */
    uint64_t first_seq, pos;
    uint64_t last_seq, t_ms, off[SPOOL_STREAMS]; /* as they are before POS */
    bool is_ended;                               /* END was passed */
    uint64_t chunk_at;
    size_t chunk_len;
    unsigned char chunk[CURSOR_CHUNK];
};
void cursor_init(struct cursor *c);
void cursor_done(struct cursor *c);
/* To the start of that segment. -ENOENT; -EBADMSG: its header is not whole (yet). */
int cursor_open(struct cursor *c, int dir_fd, uint64_t first_seq);
/* The frame at POS: 1, or 0 when no whole one is there, or negative errno. */
int cursor_peek(struct cursor *c, struct frame_head *ret);
void cursor_pass(struct cursor *c, const struct frame_head *h);
