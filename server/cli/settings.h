/* `cordon settings …`. */
#pragma once
#include "cli/cli.h"

extern const struct option SETTINGS_GET_OPTIONS[];
int settings_get_command(struct cli *cli, struct args *a);
int settings_set_command(struct cli *cli, struct args *a);
int settings_unset_command(struct cli *cli, struct args *a);
