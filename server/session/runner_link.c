/* Runs in: daemon. Reads: hostile (frames of the runner). May block: no. */
#include "session/runner_link.h"
#include "base/clock.h"
#include "base/mem.h"
#include "wire/msg.h"
#include <errno.h>

struct call {
    struct call *next;
    uint32_t id;
    uint8_t answer; /* the kind that answers it */
    uint64_t deadline;
    runner_answer_fn *done; /* NULL once its deadline passed */
    void *arg;
};

struct runner_link {
    struct closing closing;
    struct channel ch;
    struct deadline deadline;
    struct runner_events events;
    void *arg;
    struct call *calls,
        **end; /* in the order of sending, as answers mostly come; END: the last link */
    size_t n_calls;
    uint64_t earliest; /* no deadline is before this; 0 = none is set */
    uint32_t last_id;
    bool is_closed;
};

static const uint8_t KINDS[] = {M_PROBED, M_START_FAILED, M_TOOLED, M_LISTENING, M_CONNECTED, 0};

static void link_free(struct closing *closing)
{
    struct runner_link *l = container_of(closing, struct runner_link, closing);
    channel_done(&l->ch);
    free(l);
}

static void answer_all(struct runner_link *l, int r)
{
    struct call *c = TAKE(l->calls);
    l->n_calls = 0;
    l->end = &l->calls;
    while (c) {
        struct call *next = c->next;
        if (c->done)
            (void)c->done(r, NULL, c->arg);
        free(c);
        c = next;
    }
}

static void link_ended(struct channel *ch, int r)
{
    struct runner_link *l = container_of(ch, struct runner_link, ch);
    deadline_clear(&l->deadline);
    answer_all(l, r < 0 ? r : -ECONNRESET);
    if (!l->is_closed)
        l->events.ended(r, l->arg);
}

static int take_answer(struct runner_link *l, const struct frame *f)
{
    struct unpack u = unpack_from(f->payload, f->len), head = u;
    uint32_t id = unpack_u32(&head);
    for (struct call **at = &l->calls; *at; at = &(*at)->next) {
        struct call *c = *at;
        if (c->id != id || c->answer != f->kind)
            continue;
        *at = c->next;
        if (!c->next)
            l->end = at;
        l->n_calls--;
        int r = c->done ? c->done(0, &u, c->arg) : 0;
        free(c);
        return r;
    }
    return -EBADMSG;
}

static int take_start_failed(struct runner_link *l, const struct frame *f)
{
    struct unpack u = unpack_from(f->payload, f->len);
    uint32_t id = unpack_u32(&u), stage = unpack_u8(&u), error = unpack_u32(&u);
    int r = unpack_end(&u);
    if (r == 0 && stage > START_AT_LIMIT)
        r = -EBADMSG;
    return r < 0 ? r : l->events.start_failed(id, (enum start_stage)stage, error, l->arg);
}

static int link_got(struct channel *ch, const struct frame *f)
{
    struct runner_link *l = container_of(ch, struct runner_link, ch);
    return f->kind == M_START_FAILED ? take_start_failed(l, f) : take_answer(l, f);
}

/* Never later than the first deadline; one that was answered makes it fire for nothing, once. */
static void set_deadline(struct runner_link *l)
{
    uint64_t first = UINT64_MAX, now = clock_now_ms();
    for (const struct call *c = l->calls; c; c = c->next)
        if (c->done && c->deadline < first)
            first = c->deadline;
    l->earliest = first == UINT64_MAX ? 0 : first;
    if (l->earliest)
        deadline_set(&l->deadline, first > now ? first - now : 0);
    else
        deadline_clear(&l->deadline);
}

static void calls_late(struct deadline *d)
{
    struct runner_link *l = container_of(d, struct runner_link, deadline);
    uint64_t now = clock_now_ms();
    for (struct call *c = l->calls; c; c = c->next) {
        if (!c->done || c->deadline > now)
            continue;
        runner_answer_fn *done = TAKE(c->done);
        (void)done(-ETIMEDOUT, NULL, c->arg);
        if (l->is_closed || !l->calls)
            return;
        c = l->calls; /* the callback may have changed the list */
    }
    set_deadline(l);
}

int runner_link_new(uv_loop_t *loop, int take_fd, const struct runner_events *events, void *arg,
                    struct runner_link **ret)
{
    struct runner_link *l = calloc(1, sizeof *l);
    if (!l) {
        fd_close(take_fd);
        return -ENOMEM;
    }
    closing_init(&l->closing, link_free);
    channel_init(&l->ch);
    l->events = *events;
    l->arg = arg;
    l->end = &l->calls;
    deadline_init(loop, &l->deadline, &l->closing, calls_late);
    int r = channel_open(&l->ch, loop, &l->closing, take_fd, KINDS, link_got, link_ended);
    if (r < 0) {
        closing_start(&l->closing);
        return r;
    }
    *ret = l;
    return 0;
}

void runner_link_close(struct runner_link *l)
{
    if (!l || l->is_closed)
        return;
    l->is_closed = true;
    channel_stop(&l->ch);
    answer_all(l, -ECANCELED);
    closing_start(&l->closing);
}

uint32_t runner_link_new_id(struct runner_link *l)
{
    return ++l->last_id;
}

static int call_add(struct runner_link *l, uint32_t id, uint8_t answer, uint64_t deadline_ms,
                    runner_answer_fn *done, void *arg)
{
    if (l->n_calls >= RUNNER_CALLS_MAX)
        return -E2BIG;
    struct call *c = malloc(sizeof *c);
    if (!c)
        return -ENOMEM;
    *c = (struct call){NULL, id, answer, clock_now_ms() + deadline_ms, done, arg};
    *l->end = c;
    l->end = &c->next;
    l->n_calls++;
    if (!l->earliest || c->deadline < l->earliest) {
        l->earliest = c->deadline;
        deadline_set(&l->deadline, deadline_ms);
    }
    return 0;
}

static void call_drop(struct runner_link *l, uint32_t id)
{
    for (struct call **at = &l->calls; *at; at = &(*at)->next) {
        struct call *c = *at;
        if (c->id != id)
            continue;
        *at = c->next;
        if (!c->next)
            l->end = at;
        l->n_calls--;
        free(c);
        return;
    }
}

static int send_call(struct runner_link *l, uint32_t id, uint8_t kind, const struct pack *p, int fd)
{
    int r = channel_send(&l->ch, kind, p, &fd, fd >= 0 ? 1 : 0);
    if (r < 0)
        call_drop(l, id);
    return r;
}

int runner_link_probe(struct runner_link *l, const struct proof_probe *probe, uint64_t deadline_ms,
                      runner_answer_fn *done, void *arg)
{
    CLEANUP(pack_done) struct pack p = {0};
    uint32_t id = runner_link_new_id(l);
    pack_u32(&p, id);
    pack_u8(&p, (uint8_t)probe->kind);
    pack_str(&p, probe->path);
    pack_u32(&p, probe->port);
    pack_str(&p, probe->text);
    int r = call_add(l, id, M_PROBED, deadline_ms, done, arg);
    return r < 0 ? r : send_call(l, id, M_PROBE, &p, -1);
}

void runner_link_cork(struct runner_link *l)
{
    channel_cork(&l->ch);
}

int runner_link_uncork(struct runner_link *l)
{
    return channel_uncork(&l->ch);
}

int runner_link_tool(struct runner_link *l, uint32_t id, const struct pack *p, int fd,
                     uint64_t deadline_ms, runner_answer_fn *done, void *arg)
{
    int r = call_add(l, id, M_TOOLED, deadline_ms, done, arg);
    return r < 0 ? r : send_call(l, id, M_TOOL, p, fd);
}

int runner_link_port(struct runner_link *l, uint8_t kind, uint16_t port, uint64_t deadline_ms,
                     runner_answer_fn *done, void *arg)
{
    CLEANUP(pack_done) struct pack p = {0};
    uint32_t id = runner_link_new_id(l);
    pack_u32(&p, id);
    pack_u16(&p, port);
    int r = call_add(l, id, kind == M_LISTEN ? M_LISTENING : M_CONNECTED, deadline_ms, done, arg);
    return r < 0 ? r : send_call(l, id, kind, &p, -1);
}

int runner_link_take_fd(struct runner_link *l, int *ret_fd)
{
    return channel_take_fd(&l->ch, ret_fd);
}

int runner_link_start(struct runner_link *l, const struct runner_start *st)
{
    CLEANUP(pack_done) struct pack p = {0};
    pack_u32(&p, st->id);
    pack_u32(&p, st->flags);
    pack_strv(&p, st->argv->items, st->argv->n);
    pack_strv(&p, st->env->items, st->env->n);
    pack_str(&p, st->cwd);
    pack_u64(&p, st->umask);
    return channel_send(&l->ch, M_START, &p, st->fds, ARRAY_LEN(st->fds));
}

int runner_link_term_all(struct runner_link *l)
{
    return channel_send(&l->ch, M_TERM_ALL, NULL, NULL, 0);
}
