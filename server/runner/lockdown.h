/* What the runner forbids itself, and so everything it starts, before the first call. */
#pragma once
#include "wire/rules.h"

/* In this order: stray descriptors close at exec, no core or ptrace by others, limits, Landlock,
 * the filter (if the order has one; bubblewrap sets the wall's own before). Returns the
 * Landlock ABI entered (0 = none was ordered), or a negative errno with *ret_code (enum child_exit)
 * and *ret_what: the process must end then. */
int lockdown_enter(const struct rules *rules, int *ret_code, const char **ret_what);
