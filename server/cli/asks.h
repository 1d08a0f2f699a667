/* `cordon asks …`: questions to a person, and their answers. */
#pragma once
#include "cli/cli.h"

extern const struct option ASKS_LIST_OPTIONS[], ASKS_ALLOW_OPTIONS[], ASKS_DENY_OPTIONS[];
int asks_list_command(struct cli *cli, struct args *a);
int asks_allow_command(struct cli *cli, struct args *a);
int asks_deny_command(struct cli *cli, struct args *a);
