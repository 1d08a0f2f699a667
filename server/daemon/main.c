/* Runs in: daemon. Reads: trusted. May block: yes (at start).
 *
 * cordond: one per state folder. Makes its parts in order, says that it is ready, runs the loop. */
#include "base/fd.h"
#include "base/log.h"
#include "daemon/daemon.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

/* 0, 1 and 2 stand for what they are, whoever started us: no socket of ours may land there. */
static void hold_standard(void)
{
    for (int fd = 0; (fd = open("/dev/null", O_RDWR | O_CLOEXEC)) >= 0;) {
        if (fd > STDERR_FILENO) {
            fd_close(fd);
            return;
        }
        (void)fd_cloexec(fd, false);
    }
}

/* A session holds about ten descriptors and a command eight; commands get their own limit. */
static void raise_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

static int start(struct daemon *d, struct err *err)
{
    int r = places_open(&d->places, err);
    if (r == 0)
        r = daemon_open_store(d, err);
    if (r == 0)
        r = daemon_open_sessions(d, err);
    if (r == 0)
        r = daemon_open_api(d, err);
    if (r == 0)
        r = daemon_announce(d, err);
    return r;
}

int main(int argc, char **argv)
{
    struct daemon d = {.places = {.lock = -1, .run_lock = -1}};
    struct err err = {0};
    if (options_parse(argc, argv, &d.options) < 0)
        return 2;
    if (d.options.help || d.options.version) {
        if (d.options.version)
            puts("cordond " CORDON_VERSION);
        else
            options_help();
        return 0;
    }
    hold_standard();
    raise_descriptors();
    log_open("cordond");
    id_new("srv", d.instance_id);
    clock_text(clock_wall_ms(), d.start_time);
    d.loop = uv_default_loop();
    daemon_watch_signals(&d);
    int r = start(&d, &err);
    daemon_tell(&d, r, &err);
    if (r == 0)
        (void)uv_run(d.loop, UV_RUN_DEFAULT);
    daemon_done(&d);
    return r == 0 ? 0 : 1;
}
