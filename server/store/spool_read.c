/* Runs in: daemon. Reads: its own files, as a crash or a bad disk left them. May block: on files.
 *
 * A reader has three cursors: one for frames in order, one for the bytes of a stream, one that
 * looks where the end is. They see what is on the disk at that moment; the writer knows no reader.
 */
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "store/segment.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREAD_WALK_MAX ((uint64_t)2 << 20) /* farther ahead it is looked for by halving */
#define LIST_SETTLE_MS 50                  /* a folder's mtime is no finer than the kernel's tick */

struct segment_list {
    uint64_t *first_seqs;
    size_t n;
    struct timespec mtime; /* of the folder when it was read */
    bool is_settled;       /* no change can hide behind the same mtime */
};

struct spool_reader {
    int dir_fd;
    struct segment_list list;
    struct cursor frames, bytes, end;
    uint64_t at; /* the number handed out last, or asked for */
    struct spool_frame gaps[SPOOL_STREAMS];
    size_t n_gaps, i_gap;
    char *body; /* SPOOL_FRAME_BYTES, made with the first frame */
};

int spool_reader_new(const char *dir, const char *id, struct spool_reader **ret)
{
    if (id[0] == '\0' || id[0] == '.' || strchr(id, '/'))
        return -ENOENT;
    CLEANUP(fd_done) int parent = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0)
        return -errno;
    CLEANUP(fd_done)
    int fd = openat(parent, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    struct spool_reader *r = calloc(1, sizeof *r);
    if (!r)
        return -ENOMEM;
    r->dir_fd = fd;
    fd = -1;
    cursor_init(&r->frames);
    cursor_init(&r->bytes);
    cursor_init(&r->end);
    *ret = r;
    return 0;
}

void spool_reader_free(struct spool_reader *r)
{
    if (!r)
        return;
    cursor_done(&r->frames);
    cursor_done(&r->bytes);
    cursor_done(&r->end);
    fd_close(r->dir_fd);
    free(r->list.first_seqs);
    free(r->body);
    free(r);
}

/* ---- From segment to segment --------------------------------------------------------------------
 */

static bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static int64_t ms_of(struct timespec t)
{
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* The list is read again only when the folder has changed. */
static int list_renew(struct spool_reader *r)
{
    struct segment_list *list = &r->list;
    struct stat sb;
    if (fstat(r->dir_fd, &sb) < 0)
        return -errno;
    if (list->is_settled && same_time(list->mtime, sb.st_mtim))
        return 0;
    uint64_t *first_seqs = NULL;
    size_t n = 0;
    int ret = segments_list(r->dir_fd, &first_seqs, &n);
    if (ret < 0)
        return ret;
    free(list->first_seqs);
    list->first_seqs = first_seqs;
    list->n = n;
    list->mtime = sb.st_mtim;
    int64_t age = clock_wall_ms() - ms_of(sb.st_mtim);
    list->is_settled = age > LIST_SETTLE_MS;
    return 0;
}

/* From the end of its segment to the start of the next: 1; 0 when there is none (yet). What is
 * missing between shows in last_seq and off. */
static int cursor_turn(struct spool_reader *r, struct cursor *c)
{
    if (c->is_ended)
        return 0;
    /* A segment of which no frame is whole is not its own successor. */
    uint64_t above = c->fd >= 0 && c->first_seq > c->last_seq ? c->first_seq : c->last_seq;
    int ret = above == c->last_seq ? cursor_open(c, r->dir_fd, above + 1) : -ENOENT;
    if (ret == 0)
        return 1;
    if (ret != -ENOENT && ret != -EBADMSG)
        return ret;
    ret = list_renew(r);
    if (ret < 0)
        return ret;
    for (size_t i = 0; i < r->list.n; i++) {
        if (r->list.first_seqs[i] <= above)
            continue;
        ret = cursor_open(c, r->dir_fd, r->list.first_seqs[i]);
        if (ret == 0)
            return 1;
        if (ret != -ENOENT) /* dropped a moment ago: the one behind it */
            return ret == -EBADMSG ? 0 : ret;
    }
    return 0;
}

/* ---- Frames ------------------------------------------------------------------------------------
 */

/* To where the frames above AFTER begin, or a little before. */
static int frames_seek(struct spool_reader *r, uint64_t after)
{
    r->n_gaps = r->i_gap = 0;
    r->at = after;
    cursor_done(&r->frames);
    cursor_init(&r->frames);
    int ret = list_renew(r);
    if (ret < 0)
        return ret;
    size_t i = r->list.n;
    while (i > 0 && r->list.first_seqs[i - 1] > after + 1)
        i--;
    if (i == 0)
        return 0;
    ret = cursor_open(&r->frames, r->dir_fd, r->list.first_seqs[i - 1]);
    return ret == -ENOENT || ret == -EBADMSG ? 0 : ret;
}

/* A segment begins: what is missing before it, as one frame a stream. They have the last of the
 * missing numbers; at least one frame is missing for each stream that lost bytes. */
static void gaps_note(struct spool_reader *r, const uint64_t before[SPOOL_STREAMS])
{
    const struct cursor *c = &r->frames;
    r->n_gaps = r->i_gap = 0;
    for (unsigned s = 0; s < SPOOL_STREAMS; s++)
        if (c->off[s] > before[s])
            r->gaps[r->n_gaps++] = (struct spool_frame){.kind = SPOOL_GAP,
                                                        .stream = (enum spool_stream)s,
                                                        .t_ms = c->t_ms,
                                                        .off = before[s],
                                                        .to = c->off[s]};
    for (size_t i = 0; i < r->n_gaps; i++) { /* 0 is never handed out: the header says nonsense */
        uint64_t back = r->n_gaps - i;
        r->gaps[i].seq = c->first_seq > back ? c->first_seq - back : 0;
    }
}

static int frames_turn(struct spool_reader *r)
{
    uint64_t before[SPOOL_STREAMS];
    memcpy(before, r->frames.off, sizeof before);
    int ret = cursor_turn(r, &r->frames);
    if (ret > 0)
        gaps_note(r, before);
    return ret;
}

static bool gap_next(struct spool_reader *r, uint64_t after, struct spool_frame *ret)
{
    while (r->i_gap < r->n_gaps) {
        *ret = r->gaps[r->i_gap++];
        if (ret->seq > after)
            return true;
    }
    return false;
}

/* Fills RET from the frame H at the cursor. Bytes that are not those that were written become a
 * gap. */
static int frame_take(struct spool_reader *r, const struct frame_head *h, struct spool_frame *ret)
{
    if (!r->body && !(r->body = malloc(SPOOL_FRAME_BYTES)))
        return -ENOMEM;
    ssize_t n = pread(r->frames.fd, r->body, h->len, (off_t)(r->frames.pos + FRAME_HEAD));
    if (n < 0)
        return -errno;
    bool good = n == (ssize_t)h->len && segment_check(r->body, h->len) == h->body_check;
    *ret = (struct spool_frame){.seq = h->seq,
                                .t_ms = h->t_ms,
                                .kind = h->kind,
                                .stream = h->stream,
                                .off = h->off,
                                .to = h->off + h->len,
                                .bytes = r->body,
                                .len = h->len};
    if (!good) {
        ret->kind = h->kind == SPOOL_DATA ? SPOOL_GAP : h->kind;
        ret->len = 0;
    }
    return 1;
}

int spool_next(struct spool_reader *r, uint64_t after, struct spool_frame *ret)
{
    int found;
    if (after != r->at) {
        found = frames_seek(r, after);
        if (found < 0)
            return found;
    }
    for (;;) {
        struct frame_head h;
        if (gap_next(r, after, ret)) {
            r->at = ret->seq;
            return 1;
        }
        found = cursor_peek(&r->frames, &h);
        if (found > 0 && h.seq <= after) {
            cursor_pass(&r->frames, &h);
            continue;
        }
        if (found > 0)
            found = frame_take(r, &h, ret);
        if (found > 0) {
            cursor_pass(&r->frames, &h);
            r->at = ret->seq;
        }
        if (found == 0)
            found = frames_turn(r);
        else
            return found;
        if (found <= 0)
            return found;
    }
}

/* ---- Bytes of one stream ------------------------------------------------------------------------
 */

/* To the last segment that begins at or before OFF of STREAM. */
static int bytes_seek(struct spool_reader *r, enum spool_stream stream, uint64_t off)
{
    struct cursor *c = &r->bytes;
    cursor_done(c);
    cursor_init(c);
    int ret = list_renew(r);
    if (ret < 0)
        return ret;
    size_t low = 0, high = r->list.n; /* segments before LOW begin at or before OFF */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        ret = cursor_open(c, r->dir_fd, r->list.first_seqs[middle]);
        if (ret < 0 && ret != -ENOENT && ret != -EBADMSG)
            return ret;
        /* One that was dropped since lies at the old end, one that is torn at the new one. */
        bool begins_before = ret == -ENOENT || (ret == 0 && c->off[stream] <= off);
        if (begins_before)
            low = middle + 1;
        else
            high = middle;
    }
    cursor_done(c);
    cursor_init(c);
    while (low > 0) {
        ret = cursor_open(c, r->dir_fd, r->list.first_seqs[--low]);
        if (ret != -ENOENT)
            return ret == -EBADMSG ? 0 : ret;
    }
    return 0;
}

static bool bytes_must_seek(const struct cursor *c, enum spool_stream stream, uint64_t off)
{
    return c->fd < 0 || c->off[stream] > off || off - c->off[stream] > PREAD_WALK_MAX;
}

/* From the frame H at the cursor: bytes copied, 0 = OFF is not in it, -ENODATA = it begins later.
 */
static ssize_t bytes_take(const struct cursor *c, const struct frame_head *h, uint64_t off,
                          void *buf, size_t n, uint64_t *ret_resume)
{
    if (h->off > off) {
        *ret_resume = h->off;
        return -ENODATA;
    }
    uint64_t skip = off - h->off;
    if (skip >= h->len)
        return 0;
    if (n > h->len - skip)
        n = (size_t)(h->len - skip);
    ssize_t got = pread(c->fd, buf, n, (off_t)(c->pos + FRAME_HEAD + skip));
    return got < 0 ? -errno : got;
}

/* One piece at OFF, at most N; the cursor passes a frame that was read to its end. */
static ssize_t bytes_piece(struct spool_reader *r, enum spool_stream stream, uint64_t off,
                           void *buf, size_t n, uint64_t *ret_resume)
{
    struct cursor *c = &r->bytes;
    for (;;) {
        struct frame_head h;
        int found = cursor_peek(c, &h);
        if (found < 0)
            return found;
        if (found == 0) {
            found = cursor_turn(r, c);
            if (found <= 0)
                return found;
            if (c->off[stream] > off) {
                *ret_resume = c->off[stream];
                return -ENODATA;
            }
            continue;
        }
        ssize_t got = 0;
        if (h.kind == SPOOL_DATA && h.stream == stream)
            got = bytes_take(c, &h, off, buf, n, ret_resume);
        if (got < 0)
            return got;
        if (got == 0 || off + (uint64_t)got == h.off + h.len)
            cursor_pass(c, &h);
        if (got > 0)
            return got;
    }
}

ssize_t spool_pread(struct spool_reader *r, enum spool_stream stream, uint64_t off, void *buf,
                    size_t n, uint64_t *ret_resume)
{
    if (bytes_must_seek(&r->bytes, stream, off)) {
        int ret = bytes_seek(r, stream, off);
        if (ret < 0)
            return ret;
    }
    size_t done = 0;
    uint64_t resume = 0;
    while (done < n) {
        ssize_t got = bytes_piece(r, stream, off + done, (char *)buf + done, n - done, &resume);
        if (got > 0)
            done += (size_t)got;
        else if (done > 0 || got == 0)
            break;
        else {
            if (got == -ENODATA && ret_resume)
                *ret_resume = resume;
            return got;
        }
    }
    return (ssize_t)done;
}

/* ---- The end -----------------------------------------------------------------------------------
 */

/* To the end of the last segment: whatever came between is no matter. */
static int end_seek(struct spool_reader *r)
{
    struct cursor *c = &r->end;
    struct frame_head h;
    int ret = c->is_ended ? 0 : list_renew(r);
    if (ret < 0 || c->is_ended)
        return ret;
    /* The last one may be torn: then the one before it is the last. */
    for (size_t i = r->list.n; i > 0 && r->list.first_seqs[i - 1] > c->first_seq; i--) {
        ret = cursor_open(c, r->dir_fd, r->list.first_seqs[i - 1]);
        if (ret != -EBADMSG)
            break;
    }
    while ((ret = cursor_peek(c, &h)) > 0)
        cursor_pass(c, &h);
    return ret;
}

uint64_t spool_stream_size(struct spool_reader *r, enum spool_stream stream)
{
    (void)end_seek(r);
    return r->end.off[stream];
}

bool spool_ended(struct spool_reader *r)
{
    (void)end_seek(r);
    return r->end.is_ended;
}
