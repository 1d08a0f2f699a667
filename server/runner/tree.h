/* A process and everything below it, whatever session or group it is in, by
 * /proc/PID/task/TID/children (proc(5)). */
#pragma once
#include <stddef.h>
#include <sys/types.h>

#define TREE_MAX 65536

/* SIGNO to every process below the CALLER (not to itself). SIGKILL: all are stopped first, in
 * rounds until no new one appears, so that none is born meanwhile. Returns how many were signalled.
 */
size_t tree_signal_below(int signo);
/* The same below PID, which is a child of the caller and gets no signal itself. */
size_t tree_signal_below_of(pid_t pid, int signo);
/* PID and all below it. */
size_t tree_signal(pid_t pid, int signo);
/* The direct children of the caller, at most MAX of them. */
size_t tree_children(pid_t *ret, size_t max);
