/* cordond's command line. */
#pragma once
#include <stdbool.h>

struct options {
    bool help, version;
    int port;     /* 0 = the setting's, and the next free ones */
    int ready_fd; /* one line goes there when the daemon is up or has failed; -1 = none */
};
/* -EINVAL after a line on standard error. */
int options_parse(int argc, char **argv, struct options *ret);
void options_help(void);
