/* `cordon run` and `cordon exec`: one command of a session, as if it ran here: its bytes, its
 * signals, its exit code. */
#pragma once
#include "cli/cli.h"

extern const struct option RUN_OPTIONS[], EXEC_OPTIONS[], SESSION_OPTIONS[];
int run_command(struct cli *cli, struct args *a);
int exec_command(struct cli *cli, struct args *a);

/* Body of POST /sessions of the session options in A (run, session new, policy). A new reference;
 * NULL with ERR. */
json_t *session_body(const struct args *a, struct err *err);
