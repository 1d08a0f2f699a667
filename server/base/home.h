/* Where this person's things lie, as the daemon and the command line both find them (README,
 * man cordond). XDG variables are honoured when they are absolute. Under sudo HOME and they may
 * still be the caller's: no file of root's may land there, so such a one counts as not set. */
#pragma once
#include <stddef.h>

/* HOME, else the account's own; NULL when neither is known. */
char *home_find(void);
/* $VARIABLE/cordon, else HOME/FALLBACK/cordon; canonical. NULL when out of memory or too long. */
char *home_folder(const char *variable, const char *home, const char *fallback);

/* Where the socket of a daemon of the state folder STATE may lie, the first choice first:
 * $XDG_RUNTIME_DIR/cordon when that folder is ours, STATE/run, /tmp/cordon-UID. */
enum home_run { HOME_RUN_XDG, HOME_RUN_STATE, HOME_RUN_TMP, HOME_RUNS };
/* -ENOENT when there is no such choice. */
int home_run_folder(const char *state, enum home_run which, char **ret);

/* DIR is a folder, no link, of ours, and nobody else may write to it: 0, or -EPERM, -ENOENT … */
int home_is_ours(const char *dir);
