/* Runs in: runner (a command's own helper). Reads: hostile (passed on unread). May block: yes. */
#include "runner/relay.h"
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

struct way {
    int from, to;
    bool ended; /* its end was passed on */
    size_t at, n;
    char bytes[65536];
};

static bool is_passing_error(void)
{
    return errno == EINTR || errno == EAGAIN;
}

/* The end of what comes, to where it goes. */
static void end_pass(struct way *w)
{
    if (shutdown(w->to, SHUT_WR) < 0 && errno == ENOTSOCK)
        (void)close(w->to);
    w->ended = true;
}

static int way_read(struct way *w)
{
    ssize_t n = read(w->from, w->bytes, sizeof w->bytes);
    if (n < 0)
        return is_passing_error() ? 0 : -errno;
    if (n == 0)
        end_pass(w);
    w->at = 0;
    w->n = (size_t)n;
    return 0;
}

/* No more than a pipe that poll(2) calls writable takes without blocking, so that neither direction
 * waits for the other. */
static int way_write(struct way *w)
{
    size_t most = w->n - w->at < PIPE_BUF ? w->n - w->at : PIPE_BUF;
    ssize_t n = write(w->to, w->bytes + w->at, most);
    if (n < 0)
        return is_passing_error() ? 0 : -errno;
    w->at += (size_t)n;
    if (w->at == w->n)
        w->at = w->n = 0;
    return 0;
}

static int turn(struct way *ways)
{
    struct pollfd p[2];
    for (int i = 0; i < 2; i++) {
        const struct way *w = &ways[i];
        p[i] = (struct pollfd){.fd = w->ended ? -1
                                     : w->n   ? w->to
                                              : w->from,
                               .events = w->n ? POLLOUT : POLLIN};
    }
    if (poll(p, 2, -1) < 0)
        return is_passing_error() ? 0 : -errno;
    for (int i = 0; i < 2; i++) {
        if (!p[i].revents)
            continue;
        int r = ways[i].n ? way_write(&ways[i]) : way_read(&ways[i]);
        if (r < 0)
            return r;
    }
    return 0;
}

int relay(int socket, int in, int out)
{
    static struct way ways[2]; /* one relay a process */
    ways[0] = (struct way){.from = in, .to = socket};
    ways[1] = (struct way){.from = socket, .to = out};
    (void)signal(SIGPIPE, SIG_IGN);
    int r = 0;
    while (r == 0 && !(ways[0].ended && ways[1].ended))
        r = turn(ways);
    return r == -EPIPE ? 0 : r;
}
