/* Runs in: egress. Reads: hostile (copied, not looked at but for chunk sizes). May block: no. */
#include "egress/flow.h"
#include "base/mem.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define LARGE      ((size_t)256 << 10)
#define LARGE_MAX  32 /* lent at once; whoever comes then gets a small one */
#define SMALL      ((size_t)16 << 10)
#define KEPT_MAX   4    /* large ones kept for the next flow … */
#define KEPT_MS    2000 /* … and given back after so long */
#define TURN_READS 4    /* so that one busy flow does not starve the others */

/* ---- Buffers -------------------------------------------------------------------------------- */

struct pool {
    struct closing closing;
    struct deadline trim;
    void *kept[KEPT_MAX];
    size_t n_kept, n_large;
};

static void pool_trim(struct deadline *d)
{
    struct pool *pool = container_of(d, struct pool, trim);
    while (pool->n_kept > 0)
        (void)munmap(pool->kept[--pool->n_kept], LARGE);
}

static void pool_freed(struct closing *closing)
{
    free(container_of(closing, struct pool, closing));
}

int pool_new(uv_loop_t *loop, struct pool **ret)
{
    struct pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL)
        return -ENOMEM;
    closing_init(&pool->closing, pool_freed);
    deadline_init(loop, &pool->trim, &pool->closing, pool_trim);
    *ret = pool;
    return 0;
}

/* Mapped, not malloc'ed: it goes back to the machine as soon as it is let go. */
static void *large_lend(struct pool *pool)
{
    void *at;
    if (pool->n_large == LARGE_MAX)
        return NULL;
    if (pool->n_kept > 0)
        at = pool->kept[--pool->n_kept];
    else
        at = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    pool->n_large++;
    return at;
}

static void large_back(struct pool *pool, void *at)
{
    pool->n_large--;
    if (pool->n_kept == KEPT_MAX) {
        (void)munmap(at, LARGE);
        return;
    }
    pool->kept[pool->n_kept++] = at;
    if (!uv_is_active((uv_handle_t *)&pool->trim.timer))
        deadline_set(&pool->trim, KEPT_MS);
}

static int buf_lend(struct flow *f)
{
    if (f->buf != NULL)
        return 0;
    /* What is behind a chunked body is kept apart in full, so less is read at once. */
    f->buf = f->kind == BODY_CHUNKED ? NULL : large_lend(f->pool);
    f->size = f->buf != NULL ? LARGE : SMALL;
    if (f->buf == NULL)
        f->buf = malloc(SMALL);
    return f->buf != NULL ? 0 : -ENOMEM;
}

static void buf_back(struct flow *f)
{
    if (f->buf != NULL && f->size == LARGE)
        large_back(f->pool, f->buf);
    else
        free(f->buf);
    f->buf = NULL;
    f->at = f->len = 0;
}

/* ---- Flows ---------------------------------------------------------------------------------- */

void flow_init(struct flow *f, struct pool *pool, enum body_kind kind, uint64_t length)
{
    *f = (struct flow){.pool = pool, .kind = kind, .left = length};
    chunks_init(&f->chunks);
    f->ended = kind == BODY_NONE || (kind == BODY_LENGTH && length == 0);
    f->wants_read = !f->ended;
}

void flow_done(struct flow *f)
{
    if (f->pool != NULL)
        buf_back(f);
    str_done(&f->first);
    str_done(&f->rest);
    f->wants_read = f->wants_write = false;
}

int flow_put(struct flow *f, const void *bytes, size_t n)
{
    f->wants_write = true;
    return n > 0 ? str_add(&f->first, bytes, n) : 0;
}

/* How many of N bytes belong to the flow; notes its end. -EBADMSG for bad chunking. */
static ssize_t measure(struct flow *f, const char *bytes, size_t n)
{
    size_t used = n;
    switch (f->kind) {
    case BODY_NONE:
        return 0;
    case BODY_LENGTH:
        used = n < f->left ? n : (size_t)f->left;
        f->left -= used;
        f->ended = f->left == 0;
        return (ssize_t)used;
    case BODY_CHUNKED:
        switch (chunks_feed(&f->chunks, bytes, n, &used)) {
        case HEAD_BAD:
            return -EBADMSG;
        case HEAD_DONE:
            f->ended = true;
            return (ssize_t)used;
        case HEAD_MORE:
            return (ssize_t)n;
        }
        return -EBADMSG;
    case BODY_UNTIL_CLOSE:
        return (ssize_t)n;
    }
    return -EBADMSG;
}

ssize_t flow_take(struct flow *f, const char *bytes, size_t n)
{
    ssize_t used = f->ended || n == 0 ? 0 : measure(f, bytes, n);
    if (used <= 0)
        return used;
    int r = flow_put(f, bytes, (size_t)used);
    return r < 0 ? r : used;
}

/* 1 when all was written, 0 when the receiver takes no more now. */
static int send_all(struct flow *f, int fd, const char *bytes, size_t n, size_t *at)
{
    while (*at < n) {
        ssize_t sent = send(fd, bytes + *at, n - *at, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return errno == EAGAIN ? 0 : -errno;
        *at += (size_t)sent;
        f->bytes += (uint64_t)sent;
    }
    return 1;
}

static int write_pending(struct flow *f, int fd)
{
    int r = f->first.len > 0 ? send_all(f, fd, f->first.data, f->first.len, &f->first_at) : 1;
    if (r == 1 && f->first.len > 0) {
        str_done(&f->first);
        f->first_at = 0;
    }
    if (r == 1 && f->at < f->len)
        r = send_all(f, fd, f->buf, f->len, &f->at);
    if (r == 1)
        f->at = f->len = 0;
    return r;
}

/* 1 with bytes in the buffer, and *ret_more when more may be there; 0 when there are none now, or
 * the flow ended. */
static int read_more(struct flow *f, int fd, bool *ret_more)
{
    size_t want = f->kind == BODY_LENGTH && f->left < f->size ? (size_t)f->left : f->size;
    ssize_t n = recv(fd, f->buf, want, 0);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    if (n == 0) {
        f->ended = true;
        return f->kind == BODY_UNTIL_CLOSE ? 0 : -ECONNRESET;
    }
    *ret_more = (size_t)n == want;
    ssize_t used = measure(f, f->buf, (size_t)n);
    if (used < 0)
        return (int)used;
    f->len = (size_t)used;
    if (used < n && str_add(&f->rest, f->buf + used, (size_t)(n - used)) < 0)
        return -ENOMEM;
    return 1;
}

static enum flow_state flow_ends(struct flow *f, enum flow_state state)
{
    f->wants_read = f->wants_write = false;
    buf_back(f);
    f->state = state;
    return state;
}

enum flow_state flow_pump(struct flow *f, struct peer *from, struct peer *to)
{
    bool more = true;
    if (f->state != FLOW_OPEN)
        return f->state;
    for (int turn = 0;; turn++) {
        int r = write_pending(f, to->fd);
        if (r < 0)
            return flow_ends(f, FLOW_BROKEN_TO);
        f->wants_write = r == 0;
        f->wants_read = r == 1;
        if (r == 0)
            return FLOW_OPEN;
        if (f->ended)
            return flow_ends(f, FLOW_DONE);
        if (!more || turn == TURN_READS)
            break;
        if (buf_lend(f) < 0)
            return flow_ends(f, FLOW_BROKEN_FROM);
        r = read_more(f, from->fd, &more);
        if (r < 0)
            return flow_ends(f, r == -EBADMSG ? FLOW_BAD : FLOW_BROKEN_FROM);
        if (r == 0 && !f->ended)
            break;
    }
    buf_back(f); /* nothing is in it */
    return FLOW_OPEN;
}
