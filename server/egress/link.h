/* The channel to the daemon: frames in, frames out, descriptors with them (wire/msg). Nonsense from
 * the daemon, its end of the channel closing, or lack of memory for a frame ends the process: there
 * is nobody to ask any more. */
#pragma once
#include "egress/peer.h"
#include "wire/frame.h"
#include "wire/msg.h"
#include "wire/pack.h"

#define LINK_FDS_MAX  8
#define LINK_OUT_BUSY ((size_t)64 << 10) /* more than this unsent: take no new connection */

struct link {
    struct peer *peer;
    struct frame_reader in;
    int fds[LINK_FDS_MAX]; /* came, and belong to the next frame that has any */
    size_t n_fds;
    struct str out;
    /* One frame; FDS are owned by the callee. A negative answer is nonsense. */
    int (*got)(struct link *l, const struct frame *f, const int *take_fds, size_t n_fds);
};
int link_open(struct link *l, uv_loop_t *loop, int take_fd,
              int (*got)(struct link *, const struct frame *, const int *, size_t));
bool link_is_busy(const struct link *l);
/* Sends what P holds and frees it. */
void link_send(struct link *l, enum msg_kind kind, struct pack *take_p);
_Noreturn void link_lost(const char *why);
