/* One command: a small supervisor of its own starts it, reports its end on the command's channel,
 * and stays while anything the command started lives, so that all of that can be listed and killed
 * whatever session or group it moved to (PR_SET_CHILD_SUBREAPER, prctl(2)). */
#pragma once
#include "wire/pack.h"
#include <sys/types.h>

enum { START_STDIN, START_STDOUT, START_STDERR, START_CHANNEL, START_FDS };
struct start {
    uint32_t id, flags;
    struct strv argv, env;
    char *cwd;
    mode_t umask;
};
int start_get(struct unpack *u, struct start *ret); /* -EBADMSG; done in any case */
void start_done(struct start *st);

/* Forks the supervisor of ST with FDS (borrowed). Its pid, or a negative errno. */
pid_t command_start(const struct start *st, const int fds[static START_FDS]);
