/* Runs in: cli. Reads: hostile bytes inside frames of the daemon, passed on as they are.
 * May block: yes; every wait also ends for a signal. */
#include "cli/attach.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "cli/cli.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define STDIN_BYTES   ((size_t)128 << 10) /* one POST; the daemon buffers 256 KiB */
#define INSIST        3                   /* so many signals mean: leave now */
#define TTY_LOOK_MS   500
#define ANSWER_END_MS 500

static const struct {
    int number;
    const char *name;
} FORWARDED[] = {{SIGINT, "INT"}, {SIGTERM, "TERM"}, {SIGHUP, "HUP"}, {SIGQUIT, "QUIT"}};

static int signal_pipe[2] = {-1, -1};

static void note_signal(int number)
{
    int saved = errno;
    char c = (char)number;
    (void)!write(signal_pipe[1], &c, 1);
    errno = saved;
}

void attach_prepare(void)
{
    int fd;
    while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd < 3) {
    }
    fd_close(fd);
    if (fd_pipe(signal_pipe) < 0)
        return;
    (void)fd_nonblock(signal_pipe[0], true);
    (void)fd_nonblock(signal_pipe[1], true);
    /* No SA_RESTART: a write to a full pipe ends. What the caller ignores (nohup) stays ignored. */
    struct sigaction sa = {.sa_handler = note_signal}, old;
    for (size_t i = 0; i < ARRAY_LEN(FORWARDED); i++)
        if (sigaction(FORWARDED[i].number, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            (void)sigaction(FORWARDED[i].number, &sa, NULL);
    /* A closed standard out is seen by EPIPE; reading the terminal from the background by EIO. */
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGTTIN, SIG_IGN);
}

int attach_signal(void)
{
    char c;
    return read(signal_pipe[0], &c, 1) == 1 ? c : 0;
}

bool attach_has_stdin(void)
{
    struct stat st, null;
    if (fstat(STDIN_FILENO, &st) < 0 || (fcntl(STDIN_FILENO, F_GETFL) & O_ACCMODE) == O_WRONLY)
        return false;
    return !(S_ISCHR(st.st_mode) && stat("/dev/null", &null) == 0 && st.st_rdev == null.st_rdev);
}

/* ---- The side connection: signals first, then standard in --------------------------------------
 */

static void take_signals(struct attach *a)
{
    int number;
    while ((number = attach_signal()) != 0) {
        for (size_t i = 0; i < ARRAY_LEN(FORWARDED); i++)
            if (FORWARDED[i].number == number)
                a->pending_signals |= 1u << i;
        if (++a->n_signals >= INSIST)
            a->left_by_signal = number;
    }
}

static int side_send(struct attach *a, const char *path, const char *type, const void *body,
                     size_t n)
{
    int r = a->side.fd < 0 ? client_connect(a->client, &a->side) : 0;
    struct httpc_request rq = {.method = "POST", .target = path, .type = type, .if_match = -1};
    rq.body = body;
    rq.len = n;
    return r < 0 ? r : client_send(a->client, &a->side, &rq);
}

static int send_signal(struct attach *a)
{
    char path[224], body[64];
    size_t i = 0;
    while (!(a->pending_signals & 1u << i))
        i++;
    a->pending_signals &= ~(1u << i);
    a->side_is_stdin = false;
    snprintf(path, sizeof path, "%s/signal", a->command_path);
    snprintf(body, sizeof body, "{\"signal\":\"%s\",\"to\":\"group\"}", FORWARDED[i].name);
    return side_send(a, path, "application/json", body, strlen(body));
}

static int send_stdin(struct attach *a)
{
    char path[256];
    a->side_is_stdin = true;
    snprintf(path, sizeof path, "%s/stdin?offset=%llu%s", a->command_path,
             (unsigned long long)a->in_offset, a->in_eof ? "&close=1" : "");
    return side_send(a, path, "application/octet-stream", str_c(&a->in), a->in.len);
}

static void stdin_answered(struct attach *a)
{
    json_t *doc = json_loadb(str_c(&a->side.body), a->side.body.len, 0, NULL);
    if (a->side.status >= 200 && a->side.status < 300) {
        uint64_t to = (uint64_t)json_int(doc, "accepted_to");
        size_t taken = to > a->in_offset ? (size_t)(to - a->in_offset) : 0;
        str_consume(&a->in, taken < a->in.len ? taken : a->in.len);
        a->in_offset += taken;
        a->in_done = a->in_eof && a->in.len == 0;
        if (taken == 0 && a->in.len)
            a->in_retry_at = clock_now_ms() + 2;
    } else if (a->side.status == 429) {
        int64_t wait = json_int(doc, "retry_after_ms");
        a->in_retry_at = clock_now_ms() + (uint64_t)(wait > 0 && wait < 1000 ? wait : 5);
    } else {
        a->in_done = true; /* the command ended, or closed its end */
    }
    json_decref(doc);
}

static bool stdin_is_due(const struct attach *a)
{
    return a->pass_stdin && !a->in_done && (a->in.len || a->in_eof) &&
           clock_now_ms() >= a->in_retry_at;
}

static int side_step(struct attach *a)
{
    for (;;) {
        int r;
        if (a->side.fd >= 0 && a->side.is_busy) {
            r = httpc_step(&a->side);
            if (r == 0)
                return 0;
            if (r < 0) { /* a new connection next time; a signal is lost with the old one */
                httpc_close(&a->side);
                return r == -ECONNRESET ? 0 : r;
            }
            if (a->side_is_stdin)
                stdin_answered(a);
            if (!a->side.keep_alive)
                httpc_close(&a->side);
        }
        r = a->pending_signals ? send_signal(a) : stdin_is_due(a) ? send_stdin(a) : 1;
        if (r != 0)
            return r < 0 ? r : 0;
    }
}

/* ---- Standard in
 * --------------------------------------------------------------------------------*/

/* A terminal is read only in its foreground: read(2) would fail, or stop us. */
static bool may_read_stdin(const struct attach *a)
{
    if (!a->pass_stdin || a->in_eof || a->in_done || a->in.len)
        return false;
    return !isatty(STDIN_FILENO) || tcgetpgrp(STDIN_FILENO) == getpgrp();
}

static void read_stdin(struct attach *a)
{
    char *room = str_room(&a->in, STDIN_BYTES);
    ssize_t n = room ? read(STDIN_FILENO, room, STDIN_BYTES) : -1;
    if (n > 0)
        a->in.len += (size_t)n;
    else if (n == 0 || (errno != EINTR && errno != EAGAIN))
        a->in_eof = true;
}

/* ---- Output
 * -------------------------------------------------------------------------------------*/

static int write_out(struct attach *a, int fd, const char *bytes, size_t n)
{
    while (n && !a->left_by_signal) {
        struct pollfd p[2] = {{.fd = fd, .events = POLLOUT},
                              {.fd = signal_pipe[0], .events = POLLIN}};
        (void)poll(p, 2, -1);
        if (p[1].revents) {
            take_signals(a);
            (void)side_step(a);
            continue;
        }
        ssize_t done = write(fd, bytes, n);
        if (done < 0 && errno != EINTR && errno != EAGAIN)
            return -errno;
        if (done > 0) {
            bytes += done;
            n -= (size_t)done;
        }
    }
    return 0;
}

static int from_base64(const char *text, size_t n, struct str *ret)
{
    static const char ALPHABET[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static unsigned char value[256];
    if (!value['B'])
        for (unsigned char i = 0; i < 64; i++)
            value[(unsigned char)ALPHABET[i]] = i;
    char *out = str_room(ret, n / 4 * 3 + 3);
    if (!out)
        return -ENOMEM;
    size_t made = 0;
    for (size_t i = 0; i + 3 < n; i += 4) {
        const unsigned char *p = (const unsigned char *)text + i;
        uint32_t v = (uint32_t)value[p[0]] << 18 | (uint32_t)value[p[1]] << 12 |
                     (uint32_t)value[p[2]] << 6 | value[p[3]];
        out[made++] = (char)(v >> 16);
        if (p[2] != '=')
            out[made++] = (char)(v >> 8 & 255);
        if (p[3] != '=')
            out[made++] = (char)(v & 255);
    }
    ret->len += made;
    return 0;
}

static int take_data(struct attach *a, const json_t *frame)
{
    int fd = strcmp(json_text(frame, "stream"), "stderr") == 0 ? STDERR_FILENO : STDOUT_FILENO;
    const json_t *text = json_object_get(frame, "text"), *b64 = json_object_get(frame, "b64");
    if (a->discard_output)
        return 0;
    if (text)
        return write_out(a, fd, json_string_value(text), json_string_length(text));
    CLEANUP(str_done) struct str bytes = {0};
    int r = from_base64(json_string_value(b64), json_string_length(b64), &bytes);
    return r < 0 ? r : write_out(a, fd, str_c(&bytes), bytes.len);
}

/* 1 = the end frame. A write that failed is kept apart from a broken stream. */
static int take_frame(struct attach *a, const char *line, size_t n)
{
    CLEANUP(json_decrefp) json_t *frame = json_loadb(line, n, JSON_ALLOW_NUL, NULL);
    const char *kind = json_text(frame, "kind");
    if (!frame)
        return -EBADMSG;
    if (strcmp(kind, "data") == 0) {
        a->write_errno = -take_data(a, frame);
        return 0;
    }
    if (strcmp(kind, "gap") == 0)
        a->lost_bytes += (uint64_t)(json_int(frame, "to") - json_int(frame, "from"));
    if (a->asking)
        asking_frame(a->asking, frame, signal_pipe[0]);
    if (strcmp(kind, "end") != 0)
        return 0;
    a->end = json_incref(frame);
    return 1;
}

static int take_lines(struct attach *a)
{
    struct str *body = &a->client->main.body;
    size_t at = 0;
    int r = 0;
    while (r == 0 && !a->write_errno && !a->left_by_signal && at < body->len) {
        const char *end = memchr(body->data + at, '\n', body->len - at);
        if (!end)
            break;
        size_t n = (size_t)(end - body->data) - at;
        if (n)
            r = take_frame(a, body->data + at, n);
        at += n + 1;
    }
    str_consume(body, at);
    return r;
}

/* ---- The loop
 * ----------------------------------------------------------------------------------*/

static void wait_for_any(struct attach *a)
{
    bool read_in = may_read_stdin(a);
    bool is_tty = a->pass_stdin && !a->in_eof && isatty(STDIN_FILENO);
    struct pollfd p[4] = {
        {.fd = a->client->main.fd, .events = httpc_events(&a->client->main)},
        {.fd = signal_pipe[0], .events = POLLIN},
        {.fd = a->side.is_busy ? a->side.fd : -1, .events = httpc_events(&a->side)},
        {.fd = read_in ? STDIN_FILENO : -1, .events = POLLIN}};
    int wait = !read_in && is_tty && !a->in.len ? TTY_LOOK_MS : -1;
    if (!a->side.is_busy && a->in.len && !a->in_done) {
        uint64_t now = clock_now_ms();
        wait = a->in_retry_at > now ? (int)(a->in_retry_at - now) : 0;
    }
    if (poll(p, 4, wait) < 0)
        return;
    if (p[3].revents)
        read_stdin(a);
}

static int follow(struct attach *a)
{
    char path[256];
    snprintf(path, sizeof path, "%s/output?after=0&follow=1", a->command_path);
    struct httpc_request rq = {.method = "GET", .target = path, .accept = "application/x-ndjson"};
    rq.if_match = -1;
    int r = client_send(a->client, &a->client->main, &rq);
    while (r >= 0) {
        struct httpc *h = &a->client->main;
        int complete = httpc_step(h);
        if (complete < 0)
            return complete;
        if (h->status && (h->status != 200 || !h->is_ndjson))
            return complete ? -EPROTO : (r = httpc_wait(h, CLIENT_WAIT_MS)) < 0 ? r : -EPROTO;
        if ((r = take_lines(a)) != 0) {
            /* What is left of the answer is taken too, so that the connection serves again. */
            if (r > 0 && h->is_busy && httpc_wait(h, ANSWER_END_MS) < 0)
                httpc_close(h);
            return r < 0 ? r : 0;
        }
        if (a->write_errno || a->left_by_signal)
            return 0;
        if (complete)
            return -ECONNRESET;
        take_signals(a);
        if ((r = side_step(a)) >= 0 && !a->left_by_signal)
            wait_for_any(a);
    }
    return r;
}

int attach_run(struct attach *a, struct err *err)
{
    a->side.fd = -1;
    int r = follow(a);
    if (r == -EPROTO)
        return client_problem(a->client->main.status, &a->client->main.body, err);
    if (r < 0)
        return err_set(err, r, "daemon_gone", "its log is cordond.log in the state folder",
                       "the connection to cordond was lost: %s", strerror(-r));
    if (a->write_errno && a->write_errno != EPIPE)
        return err_set(err, -a->write_errno, "internal", NULL, "output cannot be written: %s",
                       strerror(a->write_errno));
    return 0;
}

void attach_done(struct attach *a)
{
    httpc_close(&a->side);
    str_done(&a->in);
    json_decref(a->end);
    a->end = NULL;
}
