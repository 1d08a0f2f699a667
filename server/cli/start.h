/* Starting and stopping the daemon. Of many at once one starts it: they queue at a lock beside the
 * state, and who gets it looks again first. */
#pragma once
#include "cli/client.h"

/* The daemon that runs, else one started now. */
int start_or_open(const struct places *places, struct client **ret, struct err *err);
/* The same with a fixed port (0 = any); *RET_STARTED tells which it was. Looks at this state folder
 * only: `cordon serve` in another home is another daemon. */
int start_daemon(const struct places *places, uint16_t port, struct client **ret, bool *ret_started,
                 struct err *err);
/* Becomes the daemon: exec, with its log on standard error. Returns only on failure. */
int start_foreground(const struct places *places, uint16_t port, struct err *err);
