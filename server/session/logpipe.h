/* What a child program says on its standard error, line by line into the daemon's log. The child
 * may be taken over by what it reads: its lines are escaped, cut at LOGPIPE_LINE and counted, and
 * it never waits for us (lines it writes while the pipe is full are lost).
 *
 * Embedded in the child's owner, whose struct closing closes the poll handle.
 *
 *     logpipe_open(&l->said, loop, &l->closing, "egress.said", session_id, &child_end);
 *     logpipe_read(&l->said);      // when the child has ended: its last words
 *     logpipe_done(&l->said);      // in the owner's freed() */
#pragma once
#include "base/loop.h"
#include "base/str.h"

#define LOGPIPE_LINE  1024 /* bytes of one line; the rest of it is left out */
#define LOGPIPE_LINES 200  /* of one child; then one line says that no more are kept */

struct logpipe {
    int fd; /* -1 = none */
    uv_poll_t poll;
    const char *event, *session; /* borrowed */
    struct str line;
    unsigned n_lines;
};
void logpipe_init(struct logpipe *p);
/* *ret_child_end is the caller's, for the child's descriptor 2. */
int logpipe_open(struct logpipe *p, uv_loop_t *loop, struct closing *owner, const char *event,
                 const char *session, int *ret_child_end);
void logpipe_read(struct logpipe *p); /* what is there now */
void logpipe_done(struct logpipe *p);
