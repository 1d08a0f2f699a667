/* One end of a framed socket to a child program, on the loop: frames come in with their
 * descriptors, frames go out. Everything that comes in is hostile: each kind must be one the owner
 * named, its length and its descriptors must fit wire/msg's row, else the channel ends with
 * -EBADMSG and the owner kills the child.
 *
 * Embedded in its owner (runner_link, egress_link, command), whose struct closing closes the poll
 * handle; the owner calls channel_done in its freed().
 *
 *     channel_open(&l->ch, loop, &l->closing, take_fd, KINDS, got, ended);
 *     channel_send(&l->ch, M_PROBE, &pack, NULL, 0);
 *
 * GOT returns negative when the content is nonsense. It takes the descriptors of its frame with
 * channel_take_fd; those that no frame asked for are nonsense too. ENDED comes once:
 * 0 for an orderly end of file, else a negative errno; nothing comes after it. */
#pragma once
#include "base/fd.h"
#include "base/loop.h"
#include "wire/frame.h"
#include "wire/pack.h"

#define CHANNEL_FDS_MAX   32                /* received and not yet taken */
#define CHANNEL_QUEUE_MAX ((size_t)8 << 20) /* bytes waiting to be sent to a child that stalls */

struct channel_out;
struct channel {
    int fd;
    uv_poll_t poll;
    struct closing *owner;
    const uint8_t *kinds; /* those that may come, ended by 0 */
    struct frame_reader in;
    int fds[CHANNEL_FDS_MAX];
    size_t n_fds;
    struct channel_out *first, *last;
    size_t queued;
    bool is_ended, is_corked;
    struct str corked;
    int (*got)(struct channel *c, const struct frame *f);
    void (*ended)(struct channel *c, int r);
};
void channel_init(struct channel *c);
int channel_open(struct channel *c, uv_loop_t *loop, struct closing *owner, int take_fd,
                 const uint8_t *kinds, int (*got)(struct channel *c, const struct frame *f),
                 void (*ended)(struct channel *c, int r));
/* One frame; P's bytes are the payload (NULL = empty). FDS are borrowed (duplicated when they must
 * wait). -EPIPE once ended, -ENOBUFS when the child does not read. */
int channel_send(struct channel *c, uint8_t kind, const struct pack *p, const int *fds,
                 size_t n_fds);
/* Until uncorked, frames without descriptors are gathered and leave together. */
void channel_cork(struct channel *c);
int channel_uncork(struct channel *c);
int channel_take_fd(struct channel *c, int *ret_fd); /* in order of arrival; -EBADMSG for none */
void channel_stop(struct channel *c);                /* no callback any more */
void channel_done(struct channel *c);
