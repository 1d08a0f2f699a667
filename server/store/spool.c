/* Runs in: daemon. Reads: output of commands, as bytes. May block: on writes into the page cache.
 *
 * The writer. Reading is in spool_read.c, deleting in spool_retain.c. */
#include "store/spool.h"
#include "base/fd.h"
#include "base/mem.h"
#include "store/segment.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* The parts of the cap in which old output is dropped. */
#define TAIL_PARTS       16
#define TAIL_SEGMENT_MIN ((uint64_t)16 << 10)
#define TAIL_SEGMENT_MAX ((uint64_t)1 << 20)

const char *const SPOOL_STREAM_NAMES[] = {"stdout", "stderr", "pty", NULL};

struct tail_segment {
    uint64_t first_seq, bytes /* of output */, disk;
};

struct spool {
    int dir_fd, fd;
    uint64_t next_seq, off[SPOOL_STREAMS], dropped;
    uint64_t pos;       /* in the segment at hand; 0 = its header is not written */
    uint64_t seg_bytes; /* of output in it */
    uint64_t head_max, tail_max, segment_max;
    uint64_t tail_bytes, tail_disk;
    struct tail_segment *tail; /* oldest first, the one at hand last; none while in the head */
    size_t n_tail, cap_tail;
    bool is_in_head, is_ended;
    bool must_turn; /* frames are missing: the next one begins a segment */
};

static int dir_open(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        if (mkdir(dir, 0700) < 0 && errno != EEXIST)
            return -errno;
        if (chmod(dir, 0700) < 0)
            return -errno;
        fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    return fd < 0 ? -errno : fd;
}

static bool id_is_name(const char *id)
{
    return id[0] != '\0' && id[0] != '.' && !strchr(id, '/') && strlen(id) < 64;
}

/* A file for the frames from NEXT_SEQ on, still empty. */
static int segment_make(struct spool *s)
{
    char name[SEGMENT_NAME];
    segment_name(s->next_seq, name);
    int fd = openat(s->dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    if (fchmod(fd, 0600) < 0) {
        int r = -errno;
        fd_close(fd);
        return r;
    }
    fd_done(&s->fd);
    s->fd = fd;
    s->pos = s->seg_bytes = 0;
    s->must_turn = false;
    return 0;
}

static void set_limits(struct spool *s, uint64_t cap)
{
    if (cap == 0 || cap > SPOOL_CAP_MAX)
        cap = SPOOL_CAP_MAX;
    s->head_max = cap / 2 < SPOOL_HEAD_BYTES ? cap / 2 : SPOOL_HEAD_BYTES;
    s->tail_max = cap - s->head_max;
    s->segment_max = s->tail_max / TAIL_PARTS;
    if (s->segment_max < TAIL_SEGMENT_MIN)
        s->segment_max = TAIL_SEGMENT_MIN;
    if (s->segment_max > TAIL_SEGMENT_MAX)
        s->segment_max = TAIL_SEGMENT_MAX;
}

DEFINE_FREEP(struct spool *, spool_free)

static int new_in(const char *dir, const char *id, uint64_t cap, struct spool **ret)
{
    if (!id_is_name(id))
        return -EINVAL;
    CLEANUP(spool_freep) struct spool *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    s->dir_fd = s->fd = -1;
    s->next_seq = 1;
    s->is_in_head = true;
    set_limits(s, cap);
    CLEANUP(fd_done) int parent = dir_open(dir);
    if (parent < 0)
        return parent;
    /* fchmodat: the umask may have taken the owner's own bits. */
    if (mkdirat(parent, id, 0700) < 0 || fchmodat(parent, id, 0700, 0) < 0)
        return -errno;
    s->dir_fd = openat(parent, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int r = s->dir_fd < 0 ? -errno : segment_make(s);
    if (r < 0) {
        (void)unlinkat(parent, id, AT_REMOVEDIR);
        return r;
    }
    *ret = TAKE(s);
    return 0;
}

int spool_new(const char *dir, const char *id, uint64_t cap, struct spool **ret, struct err *err)
{
    int r = new_in(dir, id, cap, ret);
    bool is_full = r == -ENOSPC || r == -EDQUOT || r == -EROFS || r == -EIO;
    return r < 0 ? err_set(err, r, is_full ? "disk_full" : "internal",
                           is_full ? "Free some space in the state folder's file system." : NULL,
                           "no place for the output: %s", strerror(-r))
                 : 0;
}

void spool_free(struct spool *s)
{
    if (!s)
        return;
    fd_close(s->fd);
    fd_close(s->dir_fd);
    free(s->tail);
    free(s);
}

/* ---- Segments ----------------------------------------------------------------------------------
 */

static void tail_drop_oldest(struct spool *s)
{
    char name[SEGMENT_NAME];
    struct tail_segment *oldest = &s->tail[0];
    segment_name(oldest->first_seq, name);
    (void)unlinkat(s->dir_fd, name, 0);
    s->tail_bytes -= oldest->bytes;
    s->tail_disk -= oldest->disk;
    s->dropped += oldest->bytes;
    s->n_tail--;
    memmove(s->tail, s->tail + 1, s->n_tail * sizeof *s->tail);
}

/* The segment at hand never goes, so the newest output is always there. */
static void tail_trim(struct spool *s)
{
    while (s->n_tail > 1 &&
           (s->tail_bytes > s->tail_max || s->tail_disk > 2 * s->tail_max + SPOOL_FRAME_BYTES))
        tail_drop_oldest(s);
}

static int tail_begin(struct spool *s)
{
    if (s->n_tail == s->cap_tail) {
        size_t cap = s->cap_tail ? 2 * s->cap_tail : 16;
        struct tail_segment *tail = realloc(s->tail, cap * sizeof *tail);
        if (!tail)
            return -ENOMEM;
        s->tail = tail;
        s->cap_tail = cap;
    }
    int r = segment_make(s);
    if (r < 0)
        return r;
    s->is_in_head = false;
    s->tail[s->n_tail++] = (struct tail_segment){.first_seq = s->next_seq};
    return 0;
}

/* Output bytes that may still go into the segment at hand; 0 = turn to the next. */
static uint64_t room_here(const struct spool *s)
{
    uint64_t max = s->is_in_head ? s->head_max : s->segment_max;
    if (s->must_turn || s->seg_bytes >= max || s->pos >= 2 * max)
        return 0;
    return max - s->seg_bytes;
}

/* ---- Frames ------------------------------------------------------------------------------------
 */

static int write_whole(int fd, struct iovec *iov, int n_iov, uint64_t pos)
{
    size_t want = 0;
    for (int i = 0; i < n_iov; i++)
        want += iov[i].iov_len;
    ssize_t n = pwritev(fd, iov, n_iov, (off_t)pos);
    if (n >= 0 && (size_t)n == want)
        return 0;
    int r = n < 0 ? -errno : -ENOSPC;
    if (ftruncate(fd, (off_t)pos) < 0)
        r = -errno; /* readers pass over a torn frame all the same */
    return r;
}

static int frame_write(struct spool *s, struct frame_head *h, const void *bytes)
{
    unsigned char seg[SEGMENT_HEAD], head[FRAME_HEAD];
    struct iovec iov[3];
    int n = 0;
    h->seq = s->next_seq;
    h->body_check = segment_check(bytes, h->len);
    frame_head_put(h, head);
    if (s->pos == 0) {
        struct segment_head sh = {.first_seq = s->next_seq};
        memcpy(sh.off, s->off, sizeof sh.off);
        segment_head_put(&sh, seg);
        iov[n++] = (struct iovec){seg, sizeof seg};
    }
    iov[n++] = (struct iovec){head, sizeof head};
    iov[n++] = (struct iovec){(void *)(uintptr_t)bytes, h->len};
    uint64_t size = (s->pos == 0 ? SEGMENT_HEAD : 0) + FRAME_HEAD + h->len;
    int r = write_whole(s->fd, iov, n, s->pos);
    if (r < 0)
        return r;
    s->pos += size;
    if (s->is_in_head)
        return 0;
    s->tail[s->n_tail - 1].disk += size;
    s->tail_disk += size;
    return 0;
}

/* A segment without a frame goes again: its name would be that of frames it does not hold. */
static void segment_abandon(struct spool *s)
{
    char name[SEGMENT_NAME];
    segment_name(s->next_seq, name);
    (void)unlinkat(s->dir_fd, name, 0);
    fd_done(&s->fd);
    if (!s->is_in_head)
        s->n_tail--;
    s->must_turn = true;
}

/* One frame into the segment at hand, or a new one when it is full. While the disk is, the oldest
 * kept output makes room. */
static int frame_add(struct spool *s, struct frame_head *h, const void *bytes)
{
    for (;;) {
        int r = room_here(s) > 0 ? 0 : tail_begin(s);
        if (r == 0) {
            r = frame_write(s, h, bytes);
            if (r < 0 && s->pos == 0)
                segment_abandon(s);
        }
        bool may_help = r == -ENOSPC || r == -EDQUOT;
        size_t can_go = s->must_turn ? s->n_tail : s->n_tail > 0 ? s->n_tail - 1 : 0;
        if (r == 0 || !may_help || can_go == 0)
            return r;
        tail_drop_oldest(s);
    }
}

static int data_add(struct spool *s, enum spool_stream stream, uint64_t t_ms, const char *bytes,
                    size_t n)
{
    struct frame_head h = {.kind = SPOOL_DATA,
                           .stream = stream,
                           .t_ms = t_ms,
                           .off = s->off[stream],
                           .len = (uint32_t)n};
    int r = frame_add(s, &h, bytes);
    s->next_seq++;
    s->off[stream] += n;
    if (r < 0) {
        s->must_turn = true;
        s->dropped += n;
        return r;
    }
    s->seg_bytes += n;
    if (!s->is_in_head) {
        s->tail[s->n_tail - 1].bytes += n;
        s->tail_bytes += n;
        tail_trim(s);
    }
    return 0;
}

int spool_add(struct spool *s, enum spool_stream stream, uint64_t t_ms, const void *bytes, size_t n)
{
    int r = 0;
    if (s->is_ended)
        return -EALREADY;
    for (size_t at = 0; at < n;) {
        size_t part = n - at < SPOOL_FRAME_BYTES ? n - at : SPOOL_FRAME_BYTES;
        uint64_t room = room_here(s);
        if (room == 0)
            room = s->segment_max;
        if (part > room)
            part = (size_t)room;
        int one = data_add(s, stream, t_ms, (const char *)bytes + at, part);
        if (one < 0)
            r = one;
        at += part;
    }
    return r;
}

static int text_add(struct spool *s, enum spool_kind kind, uint64_t t_ms, const char *json)
{
    size_t n = strlen(json);
    if (s->is_ended)
        return -EALREADY;
    if (n > SPOOL_FRAME_BYTES)
        return -E2BIG;
    struct frame_head h = {.kind = kind, .t_ms = t_ms, .len = (uint32_t)n};
    int r = frame_add(s, &h, json);
    if (r < 0)
        return r;
    s->next_seq++;
    tail_trim(s);
    return 0;
}

int spool_note(struct spool *s, uint64_t t_ms, const char *json)
{
    return text_add(s, SPOOL_NOTE, t_ms, json);
}

int spool_end(struct spool *s, uint64_t t_ms, const char *json)
{
    int r = text_add(s, SPOOL_END, t_ms, json);
    if (r == 0)
        s->is_ended = true;
    return r;
}

uint64_t spool_next_seq(const struct spool *s)
{
    return s->next_seq;
}

uint64_t spool_bytes(const struct spool *s, enum spool_stream stream)
{
    return s->off[stream];
}

uint64_t spool_dropped(const struct spool *s)
{
    return s->dropped;
}

/* ---- What a dead writer left --------------------------------------------------------------------
 */

/* To the end of the last segment's whole frames. A segment whose header is not whole holds nothing:
 * it goes. -ENOENT when there is none. */
static int last_whole(int dir_fd, struct cursor *c)
{
    uint64_t last = 0;
    struct frame_head h;
    int r;
    while ((r = segments_last(dir_fd, &last)) == 0 &&
           (r = cursor_open(c, dir_fd, last)) == -EBADMSG) {
        char name[SEGMENT_NAME];
        segment_name(last, name);
        if (unlinkat(dir_fd, name, 0) < 0)
            return -errno;
    }
    if (r < 0)
        return r;
    while ((r = cursor_peek(c, &h)) > 0)
        cursor_pass(c, &h);
    return r;
}

static int append_end(struct spool *s, const struct cursor *c, const char *json)
{
    char name[SEGMENT_NAME];
    segment_name(c->first_seq, name);
    s->fd = openat(s->dir_fd, name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (s->fd < 0 || ftruncate(s->fd, (off_t)c->pos) < 0)
        return -errno;
    s->pos = c->pos;
    s->next_seq = c->last_seq + 1;
    memcpy(s->off, c->off, sizeof s->off);
    s->is_in_head = true; /* no more is dropped */
    s->head_max = UINT64_MAX / 4;
    return spool_end(s, c->t_ms, json);
}

/* Nothing whole is there: the end stands alone. */
static int end_alone(struct spool *s, const char *json)
{
    s->next_seq = 1;
    s->is_in_head = true;
    s->head_max = UINT64_MAX / 4;
    int r = segment_make(s);
    return r < 0 ? r : spool_end(s, 0, json);
}

int spool_finish(const char *dir, const char *id, const char *json)
{
    CLEANUP(fd_done) int parent = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0 || !id_is_name(id))
        return parent < 0 ? -errno : -EINVAL;
    CLEANUP(spool_freep) struct spool *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    s->fd = -1;
    s->dir_fd = openat(parent, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (s->dir_fd < 0)
        return -errno;
    CLEANUP(cursor_done) struct cursor c;
    cursor_init(&c);
    int r = last_whole(s->dir_fd, &c);
    if (r == -ENOENT)
        return end_alone(s, json);
    if (r < 0)
        return r;
    return c.is_ended ? -EALREADY : append_end(s, &c, json);
}
