/* `cordon serve`, `stop` and `open`. */
#pragma once
#include "cli/cli.h"

extern const struct option SERVE_OPTIONS[], STOP_OPTIONS[];
int serve_command(struct cli *cli, struct args *a);
int stop_command(struct cli *cli, struct args *a);
int open_command(struct cli *cli, struct args *a);
