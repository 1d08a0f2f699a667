/* Runs in: fetch. Reads: trusted. May block: yes.
 *
 * cordon-fetch: one web call, started by the daemon with one channel (FD_FETCH) and nothing else.
 * See fetch/fetch.h. */
#include "base/fd.h"
#include "base/log.h"
#include "fetch/fetch.h"
#include "wire/msg.h"
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define CPU_SECONDS 60 /* reading one answer takes a fraction of one */

static bool is_channel(int fd)
{
    int type = 0;
    socklen_t n = sizeof type;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) == 0 && type == SOCK_STREAM;
}

/* What the daemon's order does not limit: whatever a server sends, this process ends. */
static void limits_set(void)
{
    const struct rlimit cpu = {CPU_SECONDS, CPU_SECONDS};
    (void)setrlimit(RLIMIT_CPU, &cpu);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc != 1 || !is_channel(FD_FETCH)) {
        fputs("cordon-fetch is started by cordond, one for each web call\n", stderr);
        return 125;
    }
    (void)close_range(FD_FETCH + 1, ~0U, 0);
    (void)fd_cloexec(FD_FETCH, true);
    limits_set();
    log_open("cordon-fetch");
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);
    fetch_run(FD_FETCH);
}
