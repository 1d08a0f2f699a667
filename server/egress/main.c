/* Runs in: egress. Reads: trusted. May block: no.
 *
 * cordon-egress: one per session, outside the wall, started by the daemon with one channel
 * (FD_EGRESS) and nothing else. See egress/egress.h. */
#include "base/fd.h"
#include "base/log.h"
#include "egress/egress.h"
#include "wire/msg.h"
#include <linux/close_range.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* Whatever came along by mistake is not ours. */
static void descriptors_close(void)
{
    (void)close_range(FD_EGRESS + 1, ~0U, 0);
    (void)fd_cloexec(FD_EGRESS, true);
}

static void limits_raise(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
}

/* Small and single-threaded: freed memory goes back, and no second arena is made. */
static void memory_tune(void)
{
    (void)mallopt(M_ARENA_MAX, 1);
    (void)mallopt(M_TRIM_THRESHOLD, 64 << 10);
    (void)mallopt(M_TOP_PAD, 16 << 10);
}

static int is_channel(int fd)
{
    int type = 0;
    socklen_t n = sizeof type;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) == 0 && type == SOCK_STREAM;
}

int main(int argc, char **argv)
{
    static struct egress egress;
    static uv_loop_t loop;
    (void)argv;
    if (argc != 1 || !is_channel(FD_EGRESS)) {
        fputs("cordon-egress is started by cordond, one for each session\n", stderr);
        return 125;
    }
    descriptors_close();
    limits_raise();
    memory_tune();
    log_open("cordon-egress");
    (void)signal(SIGPIPE, SIG_IGN);
    /* Locked down it may write no file: a line for a log that is one is lost, but no reason to die.
     */
    (void)signal(SIGXFSZ, SIG_IGN);
    int r = uv_loop_init(&loop);
    if (r == 0)
        r = egress_init(&egress, &loop, FD_EGRESS);
    if (r < 0) {
        log_error("egress.ends", "why=%s", strerror(-r));
        return 1;
    }
    (void)uv_run(&loop, UV_RUN_DEFAULT); /* ends by link_lost() */
    return 1;
}
