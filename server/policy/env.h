/* The environment of commands: a list of NAME=VALUE in which a name stands once. Used by
 * policy_compile alone; what passes and what is set is told in policy/policy.h. */
#pragma once
#include "policy/policy.h"

/* Fills P->env (and P->config_files, config_dirs, and their entries in P->paths); the paths, home
 * and tier of P are there already. -EINVAL with ERR (pointer /env/NAME). */
int env_compile(const struct policy_input *in, const struct machine *m, struct policy *p,
                struct err *err);
