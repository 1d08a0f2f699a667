/* `cordon token …`. */
#pragma once
#include "cli/cli.h"

extern const struct option TOKEN_NEW_OPTIONS[], TOKEN_LIST_OPTIONS[];
int token_new_command(struct cli *cli, struct args *a);
int token_list_command(struct cli *cli, struct args *a);
int token_revoke_command(struct cli *cli, struct args *a);
