/* Runs in: runner. Reads: trusted (the daemon's frames, its own workers). May block: the worker. */
#include "runner/worker.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/kernel.h"
#include "runner/answer.h"
#include "runner/tools.h"
#include "wire/msg.h"
#include "wire/tool.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static bool answer_error(int control, uint32_t id, int error, const char *why)
{
    struct pack p = {0};
    char detail[64];
    (void)snprintf(detail, sizeof detail, "%s", why);
    struct tool_answer a = {.id = id, .error = (uint32_t)error, .detail = detail};
    tool_answer_put(&p, &a);
    int r = runner_answer(control, M_TOOLED, &p, -1);
    pack_done(&p);
    return r >= 0;
}

enum { WORKER_SOCKET = FD_CONTROL, WORKER_CONTENT };

/* Descriptors of frames that the runner has not come to yet are open in it: a worker that kept them
 * would hold a command's pipes and channel open for as long as it works. */
static bool descriptors_keep(int socket, int *content)
{
    if (dup2(socket, WORKER_SOCKET) < 0)
        return false;
    if (*content >= 0 && *content != WORKER_CONTENT) {
        if (dup2(*content, WORKER_CONTENT) < 0)
            return false;
        *content = WORKER_CONTENT;
    }
    unsigned first = *content >= 0 ? WORKER_CONTENT + 1 : WORKER_CONTENT;
    return kernel_close_range(first, ~0U, 0) == 0;
}

static void __attribute__((noreturn)) worker_main(const struct frame *f, int fd, int socket)
{
    struct unpack u = unpack_from(f->payload, f->len), head = u;
    uint32_t id = unpack_u32(&head);
    sigset_t none;
    if (!descriptors_keep(socket, &fd))
        _exit(CHILD_DESCRIPTORS);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    tool_call(&u, id, fd, WORKER_SOCKET);
    _exit(0);
}

void workers_start(struct workers *ws, const struct frame *f, int take_fd, int control)
{
    struct unpack u = unpack_from(f->payload, f->len);
    uint32_t id = unpack_u32(&u);
    int pair[2] = {-1, -1};
    int r = ws->n == WORKERS_MAX ? -EAGAIN : fd_pair(pair);
    pid_t pid = -1;
    if (r >= 0) {
        pid = fork();
        if (pid == 0)
            worker_main(f, take_fd, pair[1]);
        r = pid < 0 ? -errno : 0;
    }
    fd_close(pair[1]);
    fd_close(take_fd);
    if (r < 0) {
        fd_close(pair[0]);
        (void)answer_error(control, id, -r, "no process for it");
        return;
    }
    ws->rows[ws->n++] = (struct worker){.pid = pid, .socket = pair[0], .fd = -1, .id = id};
}

static bool is_one_answer(const struct worker *w)
{
    struct frame_reader fr = {0};
    struct frame f;
    bool whole = frame_feed(&fr, w->answer.data, w->answer.len) == 0 && frame_next(&fr, &f) == 1 &&
                 fr.used == w->answer.len && f.kind == M_TOOLED &&
                 msg_fds(&f, w->fd >= 0 ? 1 : 0) == (w->fd >= 0 ? 1 : 0);
    frame_reader_done(&fr);
    return whole;
}

static bool pass_on(struct worker *w, int control)
{
    if (!is_one_answer(w))
        return answer_error(control, w->id, EIO, "the worker ended");
    struct str *a = &w->answer;
    for (size_t at = 0; at < a->len;) {
        ssize_t n = fd_send(control, a->data + at, a->len - at, &w->fd, at == 0 && w->fd >= 0);
        if (n == -EAGAIN || n == -EINTR)
            continue;
        if (n < 0)
            return false;
        at += (size_t)n;
    }
    return true;
}

static void drop(struct workers *ws, size_t i)
{
    struct worker *w = &ws->rows[i];
    fd_close(w->socket);
    fd_close(w->fd);
    str_done(&w->answer);
    ws->rows[i] = ws->rows[--ws->n];
}

/* True while more may come. */
static bool take_bytes(struct worker *w)
{
    int fds[FDS_PER_MESSAGE];
    size_t n_fds = 0;
    char *room = str_room(&w->answer, 65536);
    if (!room || w->answer.len > FRAME_HEAD + FRAME_MAX)
        return false;
    ssize_t n = fd_recv(w->socket, room, 65536, fds, &n_fds);
    for (size_t i = 0; i < n_fds; i++) {
        if (w->fd < 0)
            w->fd = fds[i];
        else
            fd_close(fds[i]);
    }
    if (n > 0)
        w->answer.len += (size_t)n;
    return n > 0 || n == -EINTR;
}

bool workers_take(struct workers *ws, size_t i, int control)
{
    struct worker *w = &ws->rows[i];
    if (take_bytes(w))
        return true;
    bool sent = pass_on(w, control);
    drop(ws, i);
    return sent;
}
