/* The bytes of one direction: from one peer to the other, counted and measured.
 *
 * A flow reads only what it can hand on: nothing is read while the last piece is not written, so
 * the slower side sets the pace. Its buffer is lent from a pool while bytes are under way, so an
 * idle tunnel holds none. The kind says where the bytes end (RFC 9112, 6.3); BODY_UNTIL_CLOSE is a
 * tunnel's direction or a body without a length.
 *
 *     flow_init(&f, pool, kind, length);
 *     flow_put(&f, head, n);              // goes out before anything is read
 *     n = flow_take(&f, early, n);        // bytes that were read before, measured
 *     switch (flow_pump(&f, from, to)) …  // when FROM is readable or TO is writable; then wait for
 *                                         // what f.wants_read and f.wants_write say */
#pragma once
#include "egress/peer.h"
#include "wire/httphead.h"
#include <sys/types.h>

struct pool; /* buffers: a few large ones, small ones when many flows are busy */
int pool_new(uv_loop_t *loop, struct pool **ret); /* one, for as long as the egress lives */

enum flow_state {
    FLOW_OPEN = 0,
    FLOW_DONE,        /* all there was is written */
    FLOW_BROKEN_FROM, /* the sender's side failed, or ended too early */
    FLOW_BROKEN_TO,   /* the receiver's side failed */
    FLOW_BAD          /* chunking that is not to be passed on */
};

struct flow {
    struct pool *pool;
    enum flow_state state;
    bool wants_read, wants_write;
    enum body_kind kind;
    uint64_t left; /* of BODY_LENGTH */
    struct chunks chunks;
    bool ended;       /* nothing more is to be read */
    uint64_t bytes;   /* written to the receiver */
    struct str first; /* written before the buffer */
    size_t first_at;
    struct str rest; /* read, but behind the end of a chunked body */
    char *buf;       /* lent, or NULL */
    size_t size, at, len;
};
void flow_init(struct flow *f, struct pool *pool, enum body_kind kind, uint64_t length);
int flow_put(struct flow *f, const void *bytes, size_t n); /* not measured: a head */
/* Takes those of N bytes that belong to this flow; how many, or -ENOMEM, or -EBADMSG (chunking). */
ssize_t flow_take(struct flow *f, const char *bytes, size_t n);
enum flow_state flow_pump(struct flow *f, struct peer *from, struct peer *to);
void flow_done(struct flow *f);
