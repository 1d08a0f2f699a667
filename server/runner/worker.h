/* A file tool at work in a process of its own, so that a search or a slow disk never holds a
 * command back. Its answer, one M_TOOLED frame with at most one descriptor, comes over a socketpair
 * and is passed on whole; a worker that ends without one is answered for with EIO. */
#pragma once
#include "base/str.h"
#include "wire/frame.h"
#include <stdbool.h>
#include <sys/types.h>

#define WORKERS_MAX 64

struct worker {
    pid_t pid;
    int socket;
    int fd; /* that came with the answer, or -1 */
    uint32_t id;
    struct str answer;
};
struct workers {
    struct worker rows[WORKERS_MAX];
    size_t n;
};
/* F is an M_TOOL frame, TAKE_FD its descriptor or -1. Answers itself when no worker can be made. */
void workers_start(struct workers *ws, const struct frame *f, int take_fd, int control);
/* The socket of row I is readable: takes what there is; at its end passes the answer on to CONTROL
 * and drops the row. False when CONTROL failed. */
bool workers_take(struct workers *ws, size_t i, int control);
