/* Runs in: daemon, egress. Reads: trusted. May block: no. */
#include "base/loop.h"
#include "base/mem.h"
#include <assert.h>
#include <string.h>

void closing_init(struct closing *c, void (*freed)(struct closing *c))
{
    memset(c, 0, sizeof(*c));
    c->freed = freed;
}

void closing_add(struct closing *c, uv_handle_t *h)
{
    assert(c->n < CLOSING_MAX && !c->started);
    h->data = c;
    c->handles[c->n++] = h;
    c->n_open++;
}

static void closing_closed(uv_handle_t *h)
{
    struct closing *c = h->data;
    if (--c->n_open == 0 && c->started)
        c->freed(c);
}

void closing_drop(struct closing *c, uv_handle_t *h)
{
    for (unsigned i = 0; i < c->n; i++) {
        if (c->handles[i] != h)
            continue;
        c->handles[i] = c->handles[--c->n];
        uv_close(h, closing_closed);
        return;
    }
}

void closing_start(struct closing *c)
{
    if (c->started)
        return;
    c->started = true;
    if (c->n_open == 0) { /* nothing to wait for */
        c->freed(c);
        return;
    }
    for (unsigned i = 0; i < c->n; i++)
        uv_close(c->handles[i], closing_closed);
    c->n = 0;
}

static void deadline_fired(uv_timer_t *timer)
{
    struct deadline *d = container_of(timer, struct deadline, timer);
    d->passed(d);
}

void deadline_init(uv_loop_t *loop, struct deadline *d, struct closing *owner,
                   void (*passed)(struct deadline *d))
{
    (void)uv_timer_init(loop, &d->timer); /* cannot fail */
    closing_add(owner, (uv_handle_t *)&d->timer);
    d->passed = passed;
}

void deadline_set(struct deadline *d, uint64_t ms)
{
    if (!uv_is_closing((uv_handle_t *)&d->timer))
        (void)uv_timer_start(&d->timer, deadline_fired, ms, 0);
}

void deadline_clear(struct deadline *d)
{
    (void)uv_timer_stop(&d->timer);
}
