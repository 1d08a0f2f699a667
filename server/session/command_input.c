/* Runs in: daemon. Reads: trusted (standard input that clients send, never looked into).
 * May block: no. */
#include "session/command_parts.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

void command_input_init(struct command *c)
{
    c->input.fd = -1;
}

void command_input_close(struct command *c)
{
    struct command_input *in = &c->input;
    if (in->fd < 0)
        return;
    closing_drop(&c->closing, (uv_handle_t *)&in->poll);
    fd_done(&in->fd);
    str_done(&in->buffer);
}

static void pump(struct command *c);

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct command *c = container_of(poll, struct command, input.poll);
    (void)events;
    if (status < 0)
        command_input_close(c);
    else
        pump(c);
}

static void wait_for_room(struct command *c, bool wait)
{
    struct command_input *in = &c->input;
    if (in->is_waiting == wait)
        return;
    in->is_waiting = wait;
    if (wait)
        (void)uv_poll_start(&in->poll, UV_WRITABLE, on_poll);
    else
        (void)uv_poll_stop(&in->poll);
}

/* A command that closed its standard input gets no more; that is no error of the client's. */
static void pump(struct command *c)
{
    struct command_input *in = &c->input;
    bool had = in->buffer.len > 0;
    while (in->fd >= 0 && in->buffer.len > 0) {
        ssize_t n = write(in->fd, in->buffer.data, in->buffer.len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) {
            command_input_close(c);
            return;
        }
        str_consume(&in->buffer, (size_t)n);
    }
    if (in->fd < 0)
        return;
    if (in->buffer.len == 0 && in->close_after) {
        command_input_close(c);
        return;
    }
    wait_for_room(c, in->buffer.len > 0);
    if (had && in->buffer.len < COMMAND_STDIN_MAX)
        watched_notify(&c->watched);
}

int command_input_open(struct command *c, int take_fd)
{
    struct command_input *in = &c->input;
    int r = fd_nonblock(take_fd, true);
    if (r == 0)
        r = uv_poll_init(c->session->ss->deps.loop, &in->poll, take_fd);
    if (r < 0) {
        fd_close(take_fd);
        return r;
    }
    in->fd = take_fd;
    in->buffer.max = COMMAND_STDIN_MAX + 1;
    closing_add(&c->closing, (uv_handle_t *)&in->poll);
    return 0;
}

static int check_takes(const struct command *c, struct err *err)
{
    if (command_is_ended(c))
        return err_set(err, -ESTALE, "command_ended", NULL, "the command is %s",
                       COMMAND_STATE_NAMES[c->state]);
    if (!c->stdin_pipe)
        return err_set(err, -ENOTCONN, "stdin_none", "start it with stdin: pipe",
                       "standard input of this command is /dev/null");
    return 0;
}

int command_stdin(struct command *c, uint64_t offset, const void *bytes, size_t n, bool close_after,
                  uint64_t *ret_accepted_to, struct err *err)
{
    struct command_input *in = &c->input;
    *ret_accepted_to = in->accepted_to;
    int r = check_takes(c, err);
    if (r < 0)
        return r;
    if (offset > in->accepted_to)
        return err_set(err, -ERANGE, "stdin_gap", "send from accepted_to",
                       "offset %llu is ahead of %llu", (unsigned long long)offset,
                       (unsigned long long)in->accepted_to);
    uint64_t skip = in->accepted_to - offset;
    const char *from = skip < n ? (const char *)bytes + skip : NULL;
    size_t left = from ? n - (size_t)skip : 0;
    bool is_closed = in->close_after || (c->state == COMMAND_RUNNING && in->fd < 0);
    if (left > 0 && is_closed)
        return err_set(err, -ENOTCONN, "stdin_none", NULL, "standard input is closed");
    if (left > COMMAND_STDIN_MAX - in->buffer.len)
        return err_set(err, -ENOBUFS, "stdin_full", "send it again a little later",
                       "%zu of %zu bytes are waiting to be read", in->buffer.len,
                       COMMAND_STDIN_MAX);
    if (left > 0 && (r = str_add(&in->buffer, from, left)) < 0)
        return err_set(err, r, "internal", NULL, "out of memory");
    in->accepted_to += left;
    in->close_after = in->close_after || close_after;
    *ret_accepted_to = in->accepted_to;
    pump(c);
    return 0;
}
