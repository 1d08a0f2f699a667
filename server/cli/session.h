/* `cordon session …` and `cordon policy`. */
#pragma once
#include "cli/cli.h"

extern const struct option SESSION_LIST_OPTIONS[], SESSION_STOP_OPTIONS[], POLICY_OPTIONS[];
int session_new_command(struct cli *cli, struct args *a);
int session_list_command(struct cli *cli, struct args *a);
int session_show_command(struct cli *cli, struct args *a);
int session_stop_command(struct cli *cli, struct args *a);
int policy_command(struct cli *cli, struct args *a);
