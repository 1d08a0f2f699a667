/* The private folder of a session: /tmp/cordon-<random>/, mode 0700, with home/ tmp/ cache/ view/.
 * Held by a flock(2) on the folder itself, which is what tmp cleaners look at too; the sweep at
 * start removes only what is ours by owner and mode and what nobody holds.
 *
 *     CHECK(private_new(&path, &lock_fd, &err));
 *     … close(lock_fd) and private_remove(path) when the session is gone
 */
#pragma once
#include "base/err.h"

#define PRIVATE_PREFIX "cordon-"

/* *ret_path is malloc'ed; *ret_lock_fd holds the lock, close-on-exec. Negative errno with ERR. */
int private_new(char **ret_path, int *ret_lock_fd, struct err *err);
/* Removes PATH with all in it. Any thread; no link is followed, no mount crossed. */
int private_remove(const char *path);
/* Removes what dead daemons of this user left; the number of folders, or a negative errno. */
int private_sweep(void);
