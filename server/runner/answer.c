/* Runs in: runner. Reads: nothing. May block: while the peer does not read. */
#include "runner/answer.h"
#include "base/fd.h"
#include "base/mem.h"
#include "wire/frame.h"
#include <errno.h>
#include <poll.h>

static int wait_writable(int sock)
{
    struct pollfd p = {.fd = sock, .events = POLLOUT};
    return poll(&p, 1, -1) < 0 && errno != EINTR ? -errno : 0;
}

static int send_all(int sock, const struct str *out, const int *fds, size_t n_fds)
{
    int r = 0;
    for (size_t at = 0; r == 0 && at < out->len;) {
        ssize_t sent = fd_send(sock, out->data + at, out->len - at, fds, n_fds);
        if (sent == -EAGAIN) {
            r = wait_writable(sock);
        } else if (sent < 0) {
            r = (int)sent;
        } else {
            at += (size_t)sent;
            n_fds = 0;
        }
    }
    return r;
}

int runner_answer(int sock, uint8_t kind, const struct pack *p, int fd)
{
    return runner_answer_fds(sock, kind, p, &fd, fd >= 0);
}

int runner_answer_fds(int sock, uint8_t kind, const struct pack *p, const int *fds, size_t n)
{
    if (p->r < 0)
        return p->r;
    CLEANUP(str_done) struct str out = {0};
    int r = frame_put(&out, kind, p->out.data, p->out.len);
    return r < 0 ? r : send_all(sock, &out, fds, n);
}

int runner_flush(int sock, struct str *frames)
{
    int r = send_all(sock, frames, NULL, 0);
    str_clear(frames);
    return r;
}
