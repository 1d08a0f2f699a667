/* `cordon blocked` and `cordon why`: what was refused, by what, and what would lift it. */
#pragma once
#include "cli/cli.h"

extern const struct option BLOCKED_OPTIONS[], WHY_OPTIONS[];
int blocked_command(struct cli *cli, struct args *a);
int why_command(struct cli *cli, struct args *a);
