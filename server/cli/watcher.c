/* Runs in: cli. Reads: trusted (the daemon's answers). May block: the watcher, until we end. */
#include "cli/watcher.h"
#include "base/fd.h"
#include "base/mem.h"
#include "cli/cli.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PATH_BYTES 512

/* What the watcher writes before the body of the answer. */
struct answer {
    int result, status; /* of httpc_wait, of the answer */
    bool keep_alive;
    size_t len;
};

/* ---- In the watcher ---------------------------------------------------------------------------
 */

static void post_stop(struct client *c, const char *path)
{
    struct httpc h = {.fd = -1};
    struct httpc_request rq = {
        .method = "POST", .target = path, .type = "application/json", .if_match = -1};
    rq.body = "{\"grace_ms\":0}";
    rq.len = strlen(rq.body);
    if (client_connect(c, &h) < 0 || client_send(c, &h, &rq) < 0)
        return;
    (void)httpc_wait(&h, 10000);
    httpc_close(&h);
}

/* The answer to the parent, and what it made into PATH. */
static void relay(struct httpc *h, int fd, const char *collection, char path[static PATH_BYTES])
{
    int r = httpc_wait(h, CLIENT_WAIT_MS);
    struct answer head = {r, h->status, h->keep_alive, r < 0 ? 0 : h->body.len};
    if (r >= 0 && h->status >= 200 && h->status < 300) {
        json_t *doc = json_loadb(str_c(&h->body), h->body.len, JSON_ALLOW_NUL, NULL);
        const char *id = json_text(doc, "id");
        if (*id)
            snprintf(path, PATH_BYTES, "%s/%s/stop", collection, id);
        json_decref(doc);
    }
    /* A parent that is gone reads neither: that is found out below. */
    if (send(fd, &head, sizeof head, MSG_NOSIGNAL) == sizeof head && head.len)
        (void)send(fd, h->body.data, head.len, MSG_NOSIGNAL);
}

/* Lines, each a path in place of the one before, until the farewell (true) or end of file. */
static bool is_dismissed(int fd, char path[static PATH_BYTES])
{
    char text[2 * PATH_BYTES];
    size_t n = 0;
    for (;;) {
        ssize_t got = read(fd, text + n, sizeof text - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        n += (size_t)got;
        for (char *end; (end = memchr(text, '\n', n));) {
            size_t line = (size_t)(end - text);
            if (line == 1 && text[0] == '.')
                return true;
            snprintf(path, PATH_BYTES, "%.*s", (int)line, text);
            n -= line + 1;
            memmove(text, end + 1, n);
        }
        if (n == sizeof text)
            return false;
    }
}

/* Not in our group or session, so that no key and no kill of a group reaches it; none of our
 * descriptors, so that nobody who reads our output waits for it. */
static void watch(struct client *c, int fd, const char *collection)
{
    char path[PATH_BYTES] = "";
    (void)setsid();
    for (int s = 1; s < 32; s++)
        (void)signal(s, SIG_IGN);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < 3; i++)
        (void)dup2(null, i);
    relay(&c->main, fd, collection, path);
    httpc_close(&c->main);
    if (!is_dismissed(fd, path) && path[0])
        post_stop(c, path);
    _exit(0);
}

/* ---- In the command line ----------------------------------------------------------------------
 */

void watcher_start(struct watcher *w, struct client *c, const char *collection)
{
    int fds[2];
    w->fd = -1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
        return;
    pid_t pid = fork();
    if (pid == 0) {
        fd_close(fds[1]);
        watch(c, fds[0], collection);
    }
    fd_close(fds[0]);
    if (pid < 0)
        fd_close(fds[1]);
    else
        w->fd = fds[1];
}

static int read_all(int fd, void *buf, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = read(fd, (char *)buf + done, len - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -ECONNRESET;
        done += (size_t)n;
    }
    return 0;
}

int watcher_answer(struct watcher *w, struct httpc *h)
{
    struct answer head;
    if (w->fd < 0)
        return httpc_wait(h, CLIENT_WAIT_MS);
    int r = read_all(w->fd, &head, sizeof head);
    if (r < 0 || (r = head.result) < 0)
        return r;
    str_clear(&h->body);
    char *room = str_room(&h->body, head.len);
    if (!room)
        return -ENOMEM;
    if ((r = read_all(w->fd, room, head.len)) < 0)
        return r;
    h->body.len = head.len;
    h->status = head.status;
    h->keep_alive = head.keep_alive;
    h->is_busy = false;
    return 0;
}

static void tell(struct watcher *w, const char *text)
{
    if (w->fd < 0)
        return;
    (void)send(w->fd, text, strlen(text), MSG_NOSIGNAL);
    (void)send(w->fd, "\n", 1, MSG_NOSIGNAL);
}

void watcher_set(struct watcher *w, const char *path)
{
    tell(w, path);
}

void watcher_done(struct watcher *w)
{
    tell(w, ".");
    fd_close(w->fd);
    w->fd = -1;
}
