/* Calls to the runner behind the wall, and their answers: each has an id and a deadline. The runner
 * is untrusted: an answer to a call that was never made, of another kind, or that does not unpack,
 * ends the link; the session then kills the wall. A call whose deadline passes is answered with
 * -ETIMEDOUT; what comes for it later is dropped.
 *
 *     runner_link_new(loop, take_fd, &events, arg, &l);
 *     runner_link_probe(l, &proof.probes[i], answered, p);
 *     ...
 *     runner_link_close(l);      // no callback after this; every call was answered -ECANCELED */
#pragma once
#include "sandbox/proof.h"
#include "session/channel.h"

#define RUNNER_CALLS_MAX (PROOF_PROBES_MAX + 128)

struct runner_link;
struct runner_events {
    void (*ended)(int r, void *arg); /* once; 0 = it closed its end, -EBADMSG = nonsense */
    /* A start that the runner refused; < 0 when ID is none of ours. */
    int (*start_failed)(uint32_t id, enum start_stage stage, uint32_t errno_inside, void *arg);
};
/* R is 0 and U holds the whole payload, the id first; else R is -ETIMEDOUT, -ECANCELED or the
 * link's error. A descriptor of the answer is taken with runner_link_take_fd. Negative = nonsense.
 */
typedef int runner_answer_fn(int r, struct unpack *u, void *arg);

int runner_link_new(uv_loop_t *loop, int take_fd, const struct runner_events *events, void *arg,
                    struct runner_link **ret);
void runner_link_close(struct runner_link *l);

int runner_link_probe(struct runner_link *l, const struct proof_probe *probe, uint64_t deadline_ms,
                      runner_answer_fn *done, void *arg);
/* Probes sent in between leave together. */
void runner_link_cork(struct runner_link *l);
int runner_link_uncork(struct runner_link *l);
/* P begins with the id (wire/tool.h); FD is borrowed, -1 = none. */
uint32_t runner_link_new_id(struct runner_link *l);
int runner_link_tool(struct runner_link *l, uint32_t id, const struct pack *p, int fd,
                     uint64_t deadline_ms, runner_answer_fn *done, void *arg);
int runner_link_take_fd(struct runner_link *l, int *ret_fd);

/* KIND is M_LISTEN or M_CONNECT, PORT inside; the payload: id, u32 errno, u8 count, and COUNT
 * descriptors. */
int runner_link_port(struct runner_link *l, uint8_t kind, uint16_t port, uint64_t deadline_ms,
                     runner_answer_fn *done, void *arg);

struct runner_start {
    uint32_t id, flags;
    const struct strv *argv, *env;
    const char *cwd;
    uint32_t umask;
    int fds[4]; /* stdin, stdout, stderr, the supervisor's end of its channel; borrowed */
};
int runner_link_start(struct runner_link *l, const struct runner_start *st);
int runner_link_term_all(struct runner_link *l);
