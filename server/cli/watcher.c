/* Runs in: cli. Reads: trusted. May block: the watcher, until we end. */
#include "cli/watcher.h"
#include "base/fd.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static void post_stop(struct client *c, const char *path)
{
    struct http h = {.fd = -1};
    struct http_request rq = {
        .method = "POST", .target = path, .type = "application/json", .if_match = -1};
    rq.body = "{\"grace_ms\":0}";
    rq.len = strlen(rq.body);
    if (client_connect(c, &h) < 0 || client_send(c, &h, &rq) < 0)
        return;
    (void)http_wait(&h, 10000);
    http_close(&h);
}

/* In the child: not in our group or session, so that no key and no kill of a group reaches it; none
 * of our descriptors, so that nobody who reads our output waits for it. */
static void watch(struct client *c, int fd)
{
    char text[512], *last = NULL;
    size_t n = 0;
    (void)setsid();
    for (int s = 1; s < 32; s++)
        (void)signal(s, SIG_IGN);
    http_close(&c->main);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < 3; i++)
        (void)dup2(null, i);
    for (;;) {
        ssize_t got = read(fd, text + n, sizeof text - 1 - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        n += (size_t)got;
        if (memchr(text, '.', n) || n == sizeof text - 1)
            _exit(0); /* farewell */
    }
    text[n] = '\0';
    for (char *p = text, *end; (end = strchr(p, '\n')); p = end + 1) {
        *end = '\0';
        last = p;
    }
    if (last)
        post_stop(c, last);
    _exit(0);
}

void watcher_start(struct watcher *w, struct client *c)
{
    int fds[2];
    w->fd = -1;
    if (fd_pipe(fds) < 0)
        return;
    pid_t pid = fork();
    if (pid == 0) {
        fd_close(fds[1]);
        watch(c, fds[0]);
    }
    fd_close(fds[0]);
    if (pid < 0)
        fd_close(fds[1]);
    else
        w->fd = fds[1];
}

void watcher_set(struct watcher *w, const char *path)
{
    if (w->fd < 0)
        return;
    (void)fd_write_all(w->fd, path, strlen(path));
    (void)fd_write_all(w->fd, "\n", 1);
}

void watcher_done(struct watcher *w)
{
    if (w->fd >= 0)
        (void)fd_write_all(w->fd, ".", 1);
    fd_close(w->fd);
    w->fd = -1;
}
