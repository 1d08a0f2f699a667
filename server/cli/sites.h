/* `cordon sites …`. */
#pragma once
#include "cli/cli.h"

extern const struct option SITES_LIST_OPTIONS[], SITES_ADD_OPTIONS[], SITES_REMOVE_OPTIONS[],
    SITES_CHECK_OPTIONS[];
int sites_list_command(struct cli *cli, struct args *a);
int sites_add_command(struct cli *cli, struct args *a);
int sites_remove_command(struct cli *cli, struct args *a);
int sites_check_command(struct cli *cli, struct args *a);
/* HOST[:PORT] as typed -> {host, port?}; names are judged by the daemon. NULL with ERR. */
json_t *site_json(const char *typed, struct err *err);
