/* Runs in: runner. Reads: trusted. May block: yes. */
#include "base/err.h"
#include "runner/connect.h"
#include "runner/runner.h"
#include "runner/stage.h"
#include "wire/msg.h"
#include <stdio.h>
#include <string.h>

static int usage(void)
{
    (void)fputs("cordon-runner is started by cordond: stage | inside | plain\n"
                "inside a session: cordon-runner connect HOST PORT, a ProxyCommand for ssh\n",
                stderr);
    return CHILD_USAGE;
}

int main(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "connect") == 0) {
        int code = connect_main(argc - 2, argv + 2);
        return code == CHILD_USAGE ? usage() : code;
    }
    if (argc != 2)
        return usage();
    if (strcmp(argv[1], "stage") == 0)
        stage_main(FD_CONTROL);
    if (strcmp(argv[1], "inside") == 0)
        return runner_main(FD_CONTROL);
    if (strcmp(argv[1], "plain") == 0)
        return runner_main(FD_CONTROL);
    return usage();
}
