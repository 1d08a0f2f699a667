/* `cordon status` and `cordon machine sandbox status`. */
#pragma once
#include "cli/cli.h"

extern const struct option STATUS_OPTIONS[];
int status_command(struct cli *cli, struct args *a);
