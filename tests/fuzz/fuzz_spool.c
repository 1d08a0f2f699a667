/* The spool's reader on files that somebody tore, garbled or forged: it ends, its numbers grow, two
 * readings give the same, and what a dead writer left gets its end. The first byte of an input says
 * how the rest is taken: as the bytes of segments, or as fields of frames that are given right
 * checks, so that what lies behind the checks is reached. */
#include "base/fd.h"
#include "base/path.h"
#include "store/segment.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEGMENTS   4
#define FRAMES_MAX 10000 /* of one reading: an input is far smaller */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char dir[64];

static void remove_all(void)
{
    (void)path_remove_tree(AT_FDCWD, dir);
}

struct input {
    const uint8_t *bytes;
    size_t n;
};

static uint64_t take(struct input *in, size_t n)
{
    uint64_t value = 0;
    for (size_t i = 0; i < n && in->n > 0; i++, in->bytes++, in->n--)
        value |= (uint64_t)*in->bytes << (8 * i);
    return value;
}

/* *ret_last: the number of the last frame; no writer begins a segment at or below it. */
static size_t put_forged(struct input *in, unsigned char *out, size_t max, uint64_t first_seq,
                         uint64_t *ret_last)
{
    struct segment_head head = {.first_seq = first_seq};
    uint64_t flags = take(in, 1), seq = first_seq;
    for (size_t i = 0; i < SPOOL_STREAMS; i++)
        head.off[i] = take(in, flags & 1 ? 8 : 1);
    segment_head_put(&head, out);
    size_t at = SEGMENT_HEAD;
    for (size_t frames = take(in, 1) % 16; frames > 0 && in->n > 0; frames--) {
        uint64_t how = take(in, 1);
        struct frame_head h = {.len = (uint32_t)take(in, how & 1 ? 4 : 1),
                               .kind = (enum spool_kind)(take(in, 1) % 5),
                               .stream = (enum spool_stream)(take(in, 1) % 4),
                               .seq = how & 2 ? take(in, 8) : seq++,
                               .t_ms = take(in, how & 4 ? 8 : 1),
                               .off = take(in, how & 8 ? 8 : 1)};
        size_t body = h.len < in->n ? h.len : in->n;
        if (at + FRAME_HEAD + body > max)
            break;
        h.body_check = segment_check(in->bytes, how & 16 ? 0 : body);
        frame_head_put(&h, out + at);
        memcpy(out + at + FRAME_HEAD, in->bytes, body);
        at += FRAME_HEAD + body;
        in->bytes += body;
        in->n -= body;
    }
    *ret_last = seq - 1;
    return at;
}

static void put_segment(const char *id, uint64_t first_seq, const void *bytes, size_t n)
{
    char name[SEGMENT_NAME], path[160];
    segment_name(first_seq, name);
    (void)snprintf(path, sizeof path, "%s/%s/%s", dir, id, name);
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    assert(fd >= 0 && fd_write_all(fd, bytes, n) == 0);
    (void)close(fd);
}

static void make_spool(const char *id, struct input in)
{
    static unsigned char bytes[1 << 17];
    char path[160];
    (void)snprintf(path, sizeof path, "%s/%s", dir, id);
    (void)path_remove_tree(AT_FDCWD, path);
    assert(mkdir(path, 0700) == 0);
    uint64_t how = take(&in, 1), first_seq = 1, last = 0;
    for (size_t i = 0; i < SEGMENTS && (in.n > 0 || i == 0); i++) {
        size_t n;
        if (how & 1) {
            n = put_forged(&in, bytes, sizeof bytes, first_seq, &last);
        } else {
            n = take(&in, 2);
            n = n < in.n ? n : in.n;
            memcpy(bytes, in.bytes, n < sizeof bytes ? n : sizeof bytes);
            in.bytes += n;
            in.n -= n;
        }
        put_segment(id, first_seq, bytes, n);
        first_seq = last > first_seq ? last : first_seq;
        first_seq += 1 + take(&in, how & 2 ? 4 : 1) % (how & 2 ? UINT32_MAX : 8);
    }
}

struct reading {
    uint64_t digest;
    int end; /* what the last call gave */
    unsigned frames, ends;
};

static struct reading read_frames(const char *id)
{
    struct reading got = {.digest = 14695981039346656037U};
    struct spool_reader *r = NULL;
    struct spool_frame f;
    uint64_t after = 0;
    got.end = spool_reader_new(dir, id, &r);
    if (got.end < 0)
        return got;
    while ((got.end = spool_next(r, after, &f)) > 0) {
        assert(f.seq > after && got.ends == 0);
        assert(f.kind == SPOOL_GAP ? f.to >= f.off : f.len <= SPOOL_FRAME_BYTES);
        after = f.seq;
        got.digest = (got.digest ^ f.seq ^ f.off << 8 ^ (uint64_t)f.kind << 56) * 1099511628211U;
        for (size_t i = 0; f.kind != SPOOL_GAP && i < f.len; i++)
            got.digest = (got.digest ^ (unsigned char)f.bytes[i]) * 1099511628211U;
        got.ends += f.kind == SPOOL_END;
        assert(++got.frames < FRAMES_MAX);
    }
    spool_reader_free(r);
    return got;
}

static void read_bytes(const char *id)
{
    struct spool_reader *r = NULL;
    char bytes[512];
    if (spool_reader_new(dir, id, &r) < 0)
        return;
    for (int stream = 0; stream < SPOOL_STREAMS; stream++) {
        uint64_t off = 0, resume = 0;
        for (unsigned calls = 0; calls < FRAMES_MAX; calls++) {
            ssize_t n =
                spool_pread(r, (enum spool_stream)stream, off, bytes, sizeof bytes, &resume);
            assert(n <= (ssize_t)sizeof bytes);
            if (n > 0)
                off += (uint64_t)n;
            else if (n == -ENODATA && resume > off)
                off = resume;
            else
                break;
        }
        (void)spool_stream_size(r, (enum spool_stream)stream);
    }
    (void)spool_ended(r);
    spool_reader_free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char ID[] = "cmd_x";
    if (!dir[0]) {
        (void)snprintf(dir, sizeof dir, "/tmp/tests-of-cordon-spool-XXXXXX");
        assert(mkdtemp(dir));
        (void)atexit(remove_all);
    }
    if (size > 1 << 16)
        return 0;
    make_spool(ID, (struct input){data, size});
    struct reading first = read_frames(ID), again = read_frames(ID);
    assert(first.digest == again.digest && first.end == again.end && first.frames == again.frames);
    read_bytes(ID);
    int r = spool_finish(dir, ID, "{\"state\":\"lost\"}");
    if (r == 0) {
        struct reading ended = read_frames(ID);
        assert(ended.ends == 1);
        assert(spool_finish(dir, ID, "{}") == -EALREADY);
    }
    read_bytes(ID);
    return 0;
}
