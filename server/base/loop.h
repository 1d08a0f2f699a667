/* Helpers on libuv for objects that embed their handles.
 *
 * The rule of every step machine here: a callback records the result and calls obj_step(obj); only
 * obj_step has logic; obj_close() is idempotent, closes each live handle, and the last close
 * callback frees. struct closing counts the open handles.
 *
 *     struct conn { struct closing closing; uv_timer_t timer; ... };
 *     closing_init(&c->closing, conn_free);            // conn_free(struct closing *) frees
 *     uv_timer_init(loop, &c->timer); closing_add(&c->closing, (uv_handle_t *)&c->timer);
 *     ...
 *     closing_start(&c->closing);                      // closes all added; frees after the last */
#pragma once
#include <stdbool.h>
#include <uv.h>

#define CLOSING_MAX 8 /* handles one object may embed */

struct closing {
    uv_handle_t *handles[CLOSING_MAX];
    unsigned n, n_open;
    bool started;
    void (*freed)(struct closing *c);
};
void closing_init(struct closing *c, void (*freed)(struct closing *c));
/* H was initialised on the loop; its data becomes C. */
void closing_add(struct closing *c, uv_handle_t *h);
/* Closes one handle early and forgets it; no effect when it is not among C's. */
void closing_drop(struct closing *c, uv_handle_t *h);
void closing_start(struct closing *c);

/* A timer as a deadline: one callback, restart with deadline_set, stop with deadline_clear. */
struct deadline {
    uv_timer_t timer;
    void (*passed)(struct deadline *d);
};
void deadline_init(uv_loop_t *loop, struct deadline *d, struct closing *owner,
                   void (*passed)(struct deadline *d));
void deadline_set(struct deadline *d, uint64_t ms);
void deadline_clear(struct deadline *d);
