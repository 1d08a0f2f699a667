/* The read ends of one command's pipes -> its spool. Reads as fast as the command writes and never
 * waits for a reader of the spool. After the command's end a background process may still hold a
 * write end: what comes then is read and dropped, so that a server left behind lives on.
 *
 *     output_new(&o, loop, spool, start_ms, take_fds, wrote, arg);
 *     output_finish(o, finished);     // the process ended: the rest is read, to a short deadline
 *     output_to_sink(o);              // from now on dropped; frees itself at the end of file
 *     output_close(o);                // at once */
#pragma once
#include "base/loop.h"
#include "store/spool.h"

#define OUTPUT_DRAIN_MS 50 /* after the end, while a write end is still open somewhere */

struct output;
struct output_events {
    void (*wrote)(void *arg);         /* new frames are in the spool */
    void (*failed)(int r, void *arg); /* the spool took no more (disk full); once */
    void (*finished)(void *arg);      /* after output_finish; once */
};
/* FDS: stdout, stderr; taken, also on failure. SPOOL is borrowed until output_to_sink or _close. */
int output_new(uv_loop_t *loop, struct spool *spool, uint64_t start_ms, const int take_fds[2],
               const struct output_events *events, void *arg, struct output **ret);
void output_finish(struct output *o);
bool output_is_over(const struct output *o); /* both ends are closed */
/* GONE is called when it frees itself. */
void output_to_sink(struct output *o, void (*gone)(struct output *o, void *arg), void *arg);
void output_close(struct output *o);
struct output **output_next(struct output *o); /* a link for its owner's list */
