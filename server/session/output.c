/* Runs in: daemon. Reads: hostile (a command's output, never looked into). May block: no. */
#include "session/output.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

#define READS_A_CALL 16 /* of 64 KiB; then the loop sees to others */

struct end {
    struct output *o;
    int fd;
    uv_poll_t poll;
    enum spool_stream stream;
};
struct output {
    struct closing closing;
    struct end ends[2];
    struct deadline drain;
    struct spool *spool; /* NULL = a sink */
    uint64_t start_ms;
    struct output_events events;
    void *arg;
    void (*gone)(struct output *o, void *arg);
    void *gone_arg;
    struct output *next;
    bool is_finishing, is_closed, has_failed;
};

static void output_free(struct closing *closing)
{
    struct output *o = container_of(closing, struct output, closing);
    fd_close(o->ends[0].fd);
    fd_close(o->ends[1].fd);
    free(o);
}

bool output_is_over(const struct output *o)
{
    return o->ends[0].fd < 0 && o->ends[1].fd < 0;
}

static void end_close(struct end *e)
{
    closing_drop(&e->o->closing, (uv_handle_t *)&e->poll);
    fd_done(&e->fd);
}

static void keep(struct end *e, const char *bytes, size_t n)
{
    struct output *o = e->o;
    if (!o->spool || o->has_failed)
        return;
    int r = spool_add(o->spool, e->stream, clock_now_ms() - o->start_ms, bytes, n);
    if (r < 0 && r != -ENOSPC) { /* that one is shown as a gap, and the command goes on */
        o->has_failed = true;
        o->events.failed(r, o->arg);
    }
}

/* Reads what is there. Returns whether anything came. */
static bool end_read(struct end *e, unsigned reads)
{
    static char buf[SPOOL_FRAME_BYTES];
    bool any = false;
    for (unsigned i = 0; i < reads && e->fd >= 0; i++) {
        ssize_t n = read(e->fd, buf, sizeof buf);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n <= 0) {
            end_close(e);
            break;
        }
        any = true;
        keep(e, buf, (size_t)n);
    }
    return any;
}

static void finish(struct output *o)
{
    if (!o->is_finishing)
        return;
    o->is_finishing = false;
    deadline_clear(&o->drain);
    o->events.finished(o->arg);
}

static void sink_over(struct output *o)
{
    if (o->gone)
        o->gone(o, o->gone_arg);
    output_close(o);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct end *e = container_of(poll, struct end, poll);
    struct output *o = e->o;
    (void)events;
    if (status < 0)
        end_close(e);
    bool any = end_read(e, READS_A_CALL);
    if (!o->spool) {
        if (output_is_over(o))
            sink_over(o);
        return;
    }
    if (any)
        o->events.wrote(o->arg);
    if (output_is_over(o))
        finish(o);
}

static void drained(struct deadline *d)
{
    struct output *o = container_of(d, struct output, drain);
    finish(o);
}

static int end_open(uv_loop_t *loop, struct output *o, struct end *e)
{
    int r = fd_nonblock(e->fd, true);
    if (r == 0)
        r = uv_poll_init(loop, &e->poll, e->fd);
    if (r < 0)
        return r;
    closing_add(&o->closing, (uv_handle_t *)&e->poll);
    return uv_poll_start(&e->poll, UV_READABLE, on_poll);
}

int output_new(uv_loop_t *loop, struct spool *spool, uint64_t start_ms, const int take_fds[2],
               const struct output_events *events, void *arg, struct output **ret)
{
    struct output *o = calloc(1, sizeof *o);
    if (!o) {
        fd_close(take_fds[0]);
        fd_close(take_fds[1]);
        return -ENOMEM;
    }
    closing_init(&o->closing, output_free);
    o->spool = spool;
    o->start_ms = start_ms;
    o->events = *events;
    o->arg = arg;
    o->ends[0] = (struct end){.o = o, .fd = take_fds[0], .stream = SPOOL_STDOUT};
    o->ends[1] = (struct end){.o = o, .fd = take_fds[1], .stream = SPOOL_STDERR};
    deadline_init(loop, &o->drain, &o->closing, drained);
    int r = end_open(loop, o, &o->ends[0]);
    if (r == 0)
        r = end_open(loop, o, &o->ends[1]);
    if (r < 0) {
        closing_start(&o->closing);
        return r;
    }
    *ret = o;
    return 0;
}

void output_finish(struct output *o)
{
    if (o->is_finishing)
        return;
    o->is_finishing = true;
    /* All that the process itself wrote is in the pipes by now: at most their size each. */
    bool any = end_read(&o->ends[0], READS_A_CALL);
    any = end_read(&o->ends[1], READS_A_CALL) || any;
    if (any)
        o->events.wrote(o->arg);
    if (output_is_over(o))
        finish(o);
    else
        deadline_set(&o->drain, OUTPUT_DRAIN_MS);
}

void output_to_sink(struct output *o, void (*gone)(struct output *o, void *arg), void *arg)
{
    o->spool = NULL;
    o->is_finishing = false;
    o->gone = gone;
    o->gone_arg = arg;
}

void output_close(struct output *o)
{
    if (!o || o->is_closed)
        return;
    o->is_closed = true;
    o->gone = NULL;
    closing_start(&o->closing);
}

struct output **output_next(struct output *o)
{
    return &o->next;
}
