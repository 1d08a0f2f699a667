/* Runs in: daemon. Reads: its own files, as a crash or a bad disk left them. May block: on files.
 */
#include "store/segment.h"
#include "base/fd.h"
#include "base/mem.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char MAGIC[8] = {'C', 'R', 'D', 'N', 'S', 'P', 'L', '1'};

static void put32(unsigned char *p, uint32_t n)
{
    for (int i = 0; i < 4; i++)
        p[i] = (unsigned char)(n >> (8 * i));
}

static void put64(unsigned char *p, uint64_t n)
{
    for (int i = 0; i < 8; i++)
        p[i] = (unsigned char)(n >> (8 * i));
}

static uint32_t get32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t get64(const unsigned char *p)
{
    return get32(p) | (uint64_t)get32(p + 4) << 32;
}

/* Four lanes of 8 bytes, so that it keeps up with copying. */
uint32_t segment_check(const void *bytes, size_t n)
{
    static const uint64_t PRIME = 0x9e3779b97f4a7c15;
    const unsigned char *p = bytes;
    uint64_t lane[4] = {PRIME ^ n, 1, 2, 3}, word;
    size_t i = 0;
    for (; i + 32 <= n; i += 32)
        for (size_t k = 0; k < 4; k++) {
            memcpy(&word, p + i + 8 * k, 8);
            lane[k] = (lane[k] ^ word) * PRIME;
            lane[k] ^= lane[k] >> 29;
        }
    for (; i < n; i++)
        lane[i & 3] = (lane[i & 3] ^ p[i]) * PRIME;
    uint64_t sum = PRIME;
    for (size_t k = 0; k < 4; k++)
        sum = ((sum << 7 | sum >> 57) ^ lane[k] ^ lane[k] >> 31) * PRIME;
    return (uint32_t)(sum >> 32);
}

void segment_name(uint64_t first_seq, char ret[static SEGMENT_NAME])
{
    (void)snprintf(ret, SEGMENT_NAME, "%016llx", (unsigned long long)first_seq);
}

int segment_name_parse(const char *name, uint64_t *ret_first_seq)
{
    uint64_t n = 0;
    if (strlen(name) != SEGMENT_NAME - 1)
        return -EINVAL;
    for (const char *c = name; *c; c++) {
        static const char DIGITS[] = "0123456789abcdef";
        const char *digit = strchr(DIGITS, *c);
        if (!digit)
            return -EINVAL;
        n = n << 4 | (uint64_t)(digit - DIGITS);
    }
    if (n == 0)
        return -EINVAL;
    *ret_first_seq = n;
    return 0;
}

void segment_head_put(const struct segment_head *h, unsigned char ret[static SEGMENT_HEAD])
{
    memset(ret, 0, SEGMENT_HEAD);
    memcpy(ret, MAGIC, sizeof MAGIC);
    put64(ret + 8, h->first_seq);
    for (size_t i = 0; i < SPOOL_STREAMS; i++)
        put64(ret + 16 + 8 * i, h->off[i]);
    put32(ret + 40, segment_check(ret, 40));
}

int segment_head_get(const unsigned char *bytes, size_t n, struct segment_head *ret)
{
    if (n < SEGMENT_HEAD || memcmp(bytes, MAGIC, sizeof MAGIC) != 0 ||
        get32(bytes + 40) != segment_check(bytes, 40))
        return -EBADMSG;
    ret->first_seq = get64(bytes + 8);
    for (size_t i = 0; i < SPOOL_STREAMS; i++)
        ret->off[i] = get64(bytes + 16 + 8 * i);
    return 0;
}

void frame_head_put(const struct frame_head *h, unsigned char ret[static FRAME_HEAD])
{
    memset(ret, 0, FRAME_HEAD);
    put32(ret + 4, h->body_check);
    put32(ret + 8, h->len);
    ret[12] = (unsigned char)h->kind;
    ret[13] = (unsigned char)h->stream;
    put64(ret + 16, h->seq);
    put64(ret + 24, h->t_ms);
    put64(ret + 32, h->off);
    put32(ret, segment_check(ret + 4, FRAME_HEAD - 4));
}

int frame_head_get(const unsigned char *bytes, size_t n, struct frame_head *ret)
{
    if (n < FRAME_HEAD || get32(bytes) != segment_check(bytes + 4, FRAME_HEAD - 4))
        return -EBADMSG;
    struct frame_head h = {
        .body_check = get32(bytes + 4),
        .len = get32(bytes + 8),
        .seq = get64(bytes + 16),
        .t_ms = get64(bytes + 24),
        .off = get64(bytes + 32),
    };
    bool known = bytes[12] <= SPOOL_END && bytes[12] != SPOOL_GAP && bytes[13] < SPOOL_STREAMS;
    if (!known || h.len > SPOOL_FRAME_BYTES || h.off > UINT64_MAX - h.len)
        return -EBADMSG;
    h.kind = (enum spool_kind)bytes[12];
    h.stream = (enum spool_stream)bytes[13];
    *ret = h;
    return 0;
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void closedirp(DIR **dir)
{
    if (*dir)
        (void)closedir(*dir);
}

int segments_list(int dir_fd, uint64_t **ret, size_t *ret_n)
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CLEANUP(closedirp) DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        int r = -errno;
        fd_close(fd);
        return r;
    }
    CLEANUP(freep) uint64_t *list = NULL;
    size_t n = 0, cap = 0;
    const struct dirent *e;
    while ((e = readdir(dir))) {
        uint64_t first_seq;
        if (segment_name_parse(e->d_name, &first_seq) < 0)
            continue;
        if (n == cap) {
            cap = cap ? 2 * cap : 32;
            uint64_t *more = realloc(list, cap * sizeof *more);
            if (!more)
                return -ENOMEM;
            list = more;
        }
        list[n++] = first_seq;
    }
    if (n > 1)
        qsort(list, n, sizeof *list, by_number);
    *ret = TAKE(list);
    *ret_n = n;
    return 0;
}

int segments_last(int dir_fd, uint64_t *ret_first_seq)
{
    CLEANUP(freep) uint64_t *list = NULL;
    size_t n = 0;
    int r = segments_list(dir_fd, &list, &n);
    if (r == 0 && n == 0)
        r = -ENOENT;
    if (r == 0)
        *ret_first_seq = list[n - 1];
    return r;
}

/* ---- Cursor ------------------------------------------------------------------------------------
 */

void cursor_init(struct cursor *c)
{
    memset(c, 0, sizeof *c);
    c->fd = -1;
}

void cursor_done(struct cursor *c)
{
    fd_done(&c->fd);
}

int cursor_open(struct cursor *c, int dir_fd, uint64_t first_seq)
{
    char name[SEGMENT_NAME];
    unsigned char bytes[SEGMENT_HEAD];
    struct segment_head h;
    segment_name(first_seq, name);
    CLEANUP(fd_done)
    int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t n = pread(fd, bytes, sizeof bytes, 0);
    if (n < 0)
        return -errno;
    if (segment_head_get(bytes, (size_t)n, &h) < 0 || h.first_seq != first_seq)
        return -EBADMSG;
    fd_done(&c->fd);
    c->fd = fd;
    fd = -1;
    c->first_seq = first_seq;
    c->pos = SEGMENT_HEAD;
    c->last_seq = first_seq - 1;
    memcpy(c->off, h.off, sizeof c->off);
    c->chunk_len = 0;
    return 0;
}

/* The bytes at POS, N of them if the file has so many; how many, and where. */
static ssize_t cursor_bytes(struct cursor *c, size_t n, const unsigned char **ret)
{
    bool inside = c->pos >= c->chunk_at && c->pos + n <= c->chunk_at + c->chunk_len;
    if (!inside) {
        ssize_t got = pread(c->fd, c->chunk, sizeof c->chunk, (off_t)c->pos);
        if (got < 0)
            return -errno;
        c->chunk_at = c->pos;
        c->chunk_len = (size_t)got;
    }
    size_t at = (size_t)(c->pos - c->chunk_at);
    *ret = c->chunk + at;
    return (ssize_t)(c->chunk_len - at);
}

static bool is_whole(const struct cursor *c, const struct frame_head *h)
{
    uint64_t end = c->pos + FRAME_HEAD + h->len;
    struct stat sb;
    if (end <= c->chunk_at + c->chunk_len)
        return true;
    return fstat(c->fd, &sb) == 0 && (uint64_t)sb.st_size >= end;
}

int cursor_peek(struct cursor *c, struct frame_head *ret)
{
    const unsigned char *bytes;
    struct frame_head h;
    if (c->fd < 0 || c->is_ended)
        return 0;
    ssize_t n = cursor_bytes(c, FRAME_HEAD, &bytes);
    if (n < 0)
        return (int)n;
    if (frame_head_get(bytes, (size_t)n, &h) < 0 || h.seq != c->last_seq + 1 || !is_whole(c, &h))
        return 0;
    *ret = h;
    return 1;
}

void cursor_pass(struct cursor *c, const struct frame_head *h)
{
    c->pos += FRAME_HEAD + h->len;
    c->last_seq = h->seq;
    c->t_ms = h->t_ms;
    if (h->kind == SPOOL_DATA)
        c->off[h->stream] = h->off + h->len;
    if (h->kind == SPOOL_END)
        c->is_ended = true;
}
