/* cordon-egress gives up, for good, what it will not need: the daemon's order (wire/rules), applied
 * before the first connection is accepted. */
#pragma once
#include "wire/rules.h"

/* 0, or a negative errno with *ret_what saying which step failed: the process must end then. */
int lockdown_apply(const struct rules *rules, const char **ret_what);
