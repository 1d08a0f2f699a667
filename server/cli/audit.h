/* `cordon audit`. */
#pragma once
#include "cli/cli.h"

extern const struct option AUDIT_OPTIONS[];
int audit_command(struct cli *cli, struct args *a);
int audit_verify_command(struct cli *cli, struct args *a);
