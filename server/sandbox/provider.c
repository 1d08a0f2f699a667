/* Runs in: daemon. Reads: hostile (what comes up the control socket and standard error). May block:
 * no. */
#include "sandbox/provider.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/stop.h"
#include "base/str.h"
#include "sandbox/wall.h"
#include "wire/msg.h"
#include "wire/pack.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEADLINE_MS  15000 /* of a launch that names none */
#define GRACE_MS     2000  /* between the stage's TERM and KILL */
#define LOGGED_MAX   16    /* lines of standard error of one wall that reach the log */
#define RECEIVE_SIZE 8192

static const struct wall_kind *kind_of(enum provider provider)
{
    switch (provider) {
    case PROVIDER_BUBBLEWRAP:
        return &WALL_LINUX;
    case PROVIDER_DIRECT:
        return &WALL_DIRECT;
    case PROVIDER_SEATBELT:
    case PROVIDER_UNKNOWN:
        break;
    }
    return NULL;
}

/* ---- The end of a launch --------------------------------------------------------------------- */

static void input_stop(struct wall *w)
{
    closing_drop(&w->closing, (uv_handle_t *)&w->control_poll);
    deadline_clear(&w->deadline);
}

static void end_now(struct wall *w)
{
    child_kill(&w->child, w->kind->signal);
    deadline_set(&w->deadline, GRACE_MS);
}

static void launch_report(struct wall *w)
{
    w->state = WALL_FAILED;
    deadline_clear(&w->deadline);
    w->launched(w, -ENOTSUP, &w->err, w->launched_arg);
}

/* The refusal is reported when the process is gone, so that its last words are in it. */
static void launch_fail(struct wall *w)
{
    if (w->state != WALL_LAUNCHING)
        return;
    input_stop(w);
    w->state = WALL_FAILING;
    if (w->is_gone)
        launch_report(w);
    else
        end_now(w);
}

static void launch_nonsense(struct wall *w, const char *what)
{
    (void)err_set(&w->err, -EBADMSG, "session_refused",
                  "install Cordon again: its programs do not fit together",
                  "the wall's runner sent what it must not: %s", what);
    launch_fail(w);
}

static void launch_done(struct wall *w)
{
    input_stop(w);
    stop_point("wall-ready");
    w->state = WALL_UP;
    w->launched(w, 0, NULL, w->launched_arg);
}

/* ---- Standard error -------------------------------------------------------------------------- */

static void said_log(struct wall *w, const char *bytes, size_t n)
{
    struct str text = {0};
    if (w->n_logged++ < LOGGED_MAX && str_put_escaped(&text, bytes, n) >= 0)
        log_warn("wall.says", "pid=%d text=%s", (int)w->child.pid, str_c(&text));
    str_done(&text);
}

/* Reads what is there; false at the end of it. */
static bool said_read(struct wall *w)
{
    char buf[1024];
    ssize_t n = read(w->said_fd, buf, sizeof buf);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    if (n == 0)
        return false;
    size_t room = sizeof w->said - w->n_said;
    size_t take = (size_t)n < room ? (size_t)n : room;
    memcpy(w->said + w->n_said, buf, take);
    w->n_said += take;
    if (w->state != WALL_LAUNCHING && w->state != WALL_FAILING)
        said_log(w, buf, (size_t)n);
    return true;
}

static void on_said(uv_poll_t *poll, int status, int events)
{
    struct wall *w = container_of(poll, struct wall, said_poll);
    (void)events;
    if (status < 0 || !said_read(w))
        closing_drop(&w->closing, (uv_handle_t *)poll);
}

/* The last line it said, escaped, into RET. */
static void said_last(struct wall *w, char *ret, size_t size)
{
    struct str text = {0};
    size_t end = w->n_said, start;
    while (end > 0 && w->said[end - 1] == '\n')
        end--;
    for (start = end; start > 0 && w->said[start - 1] != '\n';)
        start--;
    ret[0] = '\0';
    if (end > start && str_put_escaped(&text, w->said + start, end - start) >= 0)
        snprintf(ret, size, "%.*s", 240, str_c(&text));
    str_done(&text);
}

/* ---- Frames ---------------------------------------------------------------------------------- */

static bool take_doors(struct wall *w, const struct frame *f)
{
    struct unpack u = unpack_from(f->payload, f->len);
    size_t n = unpack_u8(&u);
    if (unpack_end(&u) < 0 || !w->want_doors || w->n_doors > 0 || n != w->n_in_fds || n == 0 ||
        n > WALL_DOORS_MAX)
        return false;
    memcpy(w->doors, w->in_fds, n * sizeof w->doors[0]);
    w->n_doors = n;
    w->n_in_fds = 0;
    if (doors_check(w->doors, w->n_doors, w->door_port, &w->has_redirect, &w->err) < 0)
        launch_fail(w);
    return w->want_redirect || !w->has_redirect;
}

static bool take_failure(struct wall *w, const struct frame *f)
{
    struct unpack u = unpack_from(f->payload, f->len);
    uint32_t code = unpack_u32(&u), errnum = unpack_u32(&u);
    CLEANUP(freep) char *what = unpack_str(&u, 4096 + 128);
    if (unpack_end(&u) < 0 || code > 255 || errnum > 4095)
        return false;
    w->kind->explain(w, code, (int)errnum, what, &w->err);
    launch_fail(w);
    return true;
}

static bool take_ready(struct wall *w, const struct frame *f)
{
    struct unpack u = unpack_from(f->payload, f->len);
    uint32_t abi = unpack_u32(&u);
    CLEANUP(freep) char *failure = unpack_str(&u, 1024);
    if (unpack_end(&u) < 0 || abi > 1000 || w->n_in_fds > 0)
        return false;
    if (failure[0] != '\0') {
        struct str text = {0};
        (void)str_put_escaped(&text, failure, strlen(failure));
        (void)err_set(&w->err, -ENOTSUP, "session_refused", "see cordon status --why",
                      "the runner could not lock itself down: %s", str_c(&text));
        str_done(&text);
        launch_fail(w);
        return true;
    }
    if (w->want_doors && w->n_doors == 0)
        return false;
    w->landlock_abi = (int)abi;
    launch_done(w);
    return true;
}

static void on_frame(struct wall *w, const struct frame *f)
{
    const struct msg_rule *rule = msg_rule(f->kind);
    int n_fds = msg_fds(f, w->n_in_fds);
    bool fits = n_fds >= 0 && (size_t)n_fds == w->n_in_fds; /* nothing else is under way yet */
    switch (fits ? f->kind : M_NONE) {
    case M_DOORS:
        fits = take_doors(w, f);
        break;
    case M_STAGE_FAILED:
        fits = take_failure(w, f);
        break;
    case M_READY:
        fits = take_ready(w, f);
        break;
    default: /* a byte from below, not a verdict: all other kinds are nonsense here */
        fits = false;
        break;
    }
    if (!fits && w->state == WALL_LAUNCHING)
        launch_nonsense(w, rule ? rule->name : "an unknown frame");
}

/* Reads once: 1 when something came, 0 when nothing is there now, -EPIPE at the end. */
static int control_read(struct wall *w)
{
    char buf[RECEIVE_SIZE];
    int fds[FDS_PER_MESSAGE];
    size_t n_fds = 0;
    ssize_t n = fd_recv(w->control, buf, sizeof buf, fds, &n_fds);
    if (n == -EAGAIN || n == -EINTR)
        return 0;
    if (n <= 0)
        return -EPIPE;
    for (size_t i = 0; i < n_fds; i++) {
        if (w->n_in_fds < ARRAY_LEN(w->in_fds))
            w->in_fds[w->n_in_fds++] = fds[i];
        else
            fd_close(fds[i]);
    }
    struct frame f;
    int r = frame_feed(&w->reader, buf, (size_t)n);
    while (r >= 0 && w->state == WALL_LAUNCHING && (r = frame_next(&w->reader, &f)) == 1)
        on_frame(w, &f);
    if (r < 0 && w->state == WALL_LAUNCHING)
        launch_nonsense(w, "a frame of no length");
    return 1;
}

static int control_flush(struct wall *w)
{
    while (w->out.len > 0) {
        ssize_t n = fd_send(w->control, w->out.data, w->out.len, w->out_fds, w->n_out_fds);
        if (n == -EAGAIN || n == -EINTR)
            return 0;
        if (n < 0)
            return (int)n;
        for (size_t i = 0; i < w->n_out_fds; i++)
            fd_done(&w->out_fds[i]);
        w->n_out_fds = 0;
        str_consume(&w->out, (size_t)n);
    }
    return 0;
}

static void control_wait(struct wall *w);

static void on_control(uv_poll_t *poll, int status, int events)
{
    struct wall *w = container_of(poll, struct wall, control_poll);
    if (status >= 0 && events & UV_WRITABLE && control_flush(w) < 0)
        status = -EPIPE;
    if (status >= 0 && events & UV_READABLE && control_read(w) < 0)
        status = -EPIPE;
    if (w->state != WALL_LAUNCHING)
        return;
    if (status < 0) /* its end: the exit follows and says why */
        (void)uv_poll_stop(poll);
    else
        control_wait(w);
}

static void control_wait(struct wall *w)
{
    int events = UV_READABLE | (w->out.len > 0 ? UV_WRITABLE : 0);
    (void)uv_poll_start(&w->control_poll, events, on_control);
}

/* ---- Life ------------------------------------------------------------------------------------ */

static void exit_explain(struct wall *w)
{
    char last[256], what[400];
    if (err_is_set(&w->err))
        return;
    said_last(w, last, sizeof last);
    if (WIFSIGNALED(w->status))
        snprintf(what, sizeof what, "ended by signal %d%s%s", WTERMSIG(w->status),
                 last[0] ? ": " : "", last);
    else
        snprintf(what, sizeof what, "exit %d%s%s", WEXITSTATUS(w->status), last[0] ? ": " : "",
                 last);
    w->kind->explain(w, WIFSIGNALED(w->status) ? 0 : (unsigned)WEXITSTATUS(w->status), 0, what,
                     &w->err);
}

static void on_gone(struct child *c, int status)
{
    struct wall *w = container_of(c, struct wall, child);
    w->is_gone = true;
    w->status = status;
    while (w->state == WALL_LAUNCHING && control_read(w) == 1)
        ; /* what it sent before it ended comes first */
    for (int i = 0; i < 4 && w->state != WALL_UP && said_read(w); i++)
        ;
    switch (w->state) {
    case WALL_LAUNCHING:
        exit_explain(w);
        launch_fail(w);
        break;
    case WALL_FAILING:
        launch_report(w);
        break;
    case WALL_UP:
        if (w->died)
            w->died(w, status, w->died_arg);
        break;
    case WALL_FAILED:
        break;
    case WALL_CLOSING:
        closing_start(&w->closing);
        break;
    }
}

static void on_deadline(struct deadline *d)
{
    struct wall *w = container_of(d, struct wall, deadline);
    if (w->state != WALL_LAUNCHING) { /* asked to end, and still there */
        child_kill(&w->child, SIGKILL);
        return;
    }
    (void)err_set(&w->err, -ETIMEDOUT, "session_refused", "try again when the machine is less busy",
                  "the wall was not up after %llu ms (%s)", (unsigned long long)w->deadline_ms,
                  w->want_doors && w->n_doors == 0 ? "no doors yet"
                                                   : "bubblewrap or the runner did not answer");
    launch_fail(w);
}

static void wall_free(struct closing *c)
{
    struct wall *w = container_of(c, struct wall, closing);
    wall_closed_fn *closed = w->closed;
    void *arg = w->closed_arg;
    child_done(&w->child);
    cgroup_free(w->group);
    fd_close(w->control);
    fd_close(w->said_fd);
    for (size_t i = 0; i < w->n_doors; i++)
        fd_close(w->doors[i]);
    for (size_t i = 0; i < w->n_in_fds; i++)
        fd_close(w->in_fds[i]);
    for (size_t i = 0; i < w->n_out_fds; i++)
        fd_close(w->out_fds[i]);
    frame_reader_done(&w->reader);
    str_done(&w->out);
    free(w);
    if (closed)
        closed(arg);
}

void wall_close(struct wall *w, wall_closed_fn *closed, void *arg)
{
    if (w->state == WALL_CLOSING)
        return;
    if (w->state == WALL_LAUNCHING)
        input_stop(w);
    w->state = WALL_CLOSING;
    w->closed = closed;
    w->closed_arg = arg;
    if (w->is_gone)
        closing_start(&w->closing);
    else
        end_now(w);
}

static struct wall *wall_new(uv_loop_t *loop, const struct wall_kind *kind,
                             const struct wall_request *rq)
{
    struct wall *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->kind = kind;
    w->machine = rq->machine;
    w->want_doors = rq->want_doors;
    w->want_redirect = rq->want_redirect;
    w->door_port = rq->policy->door_port;
    w->control = w->said_fd = -1;
    w->is_gone = true; /* until something was started */
    closing_init(&w->closing, wall_free);
    child_init(&w->child);
    deadline_init(loop, &w->deadline, &w->closing, on_deadline);
    return w;
}

#ifdef CORDON_STOP_POINTS
extern char **environ;
static char *const *child_environment(void)
{
    return environ;
}
#else
static char *const *child_environment(void)
{
    static char *empty[] = {NULL};
    return empty;
}
#endif

/* Starts cordon-runner with the control socket on 3 and our pipe on 2; nothing else. */
static int spawn(uv_loop_t *loop, struct wall *w, const struct wall_kind *kind)
{
    CLEANUP(fd_done) int theirs = -1;
    CLEANUP(fd_done) int said = -1;
    int pair[2], pipe[2];
    int r = fd_pair(pair);
    if (r < 0)
        return r;
    w->control = pair[0];
    theirs = pair[1];
    r = fd_pipe(pipe);
    if (r < 0)
        return r;
    w->said_fd = pipe[0];
    said = pipe[1];
    if ((r = fd_nonblock(w->control, true)) < 0 || (r = fd_nonblock(w->said_fd, true)) < 0)
        return r;
    char *argv[] = {w->machine->runner, NULL, NULL};
    CLEANUP(freep) char *argument = strdup(kind->argument);
    if (!argument)
        return -ENOMEM;
    argv[1] = argument;
    const int fds[] = {-1, -1, said, theirs};
    pid_t pid = fd_spawn(&(struct spawn){.file = w->machine->runner,
                                         .argv = argv,
                                         .envp = child_environment(),
                                         .fds = fds,
                                         .n_fds = ARRAY_LEN(fds)});
    if (pid < 0)
        return (int)pid;
    w->is_gone = false;
    r = child_watch(loop, &w->child, &w->closing, pid, on_gone);
    w->is_gone = r < 0;
    return r;
}

static int polls_start(uv_loop_t *loop, struct wall *w)
{
    int r = uv_poll_init(loop, &w->control_poll, w->control);
    if (r < 0)
        return r;
    closing_add(&w->closing, (uv_handle_t *)&w->control_poll);
    r = uv_poll_init(loop, &w->said_poll, w->said_fd);
    if (r < 0)
        return r;
    closing_add(&w->closing, (uv_handle_t *)&w->said_poll);
    return uv_poll_start(&w->said_poll, UV_READABLE, on_said);
}

int wall_launch(uv_loop_t *loop, enum provider provider, const struct wall_request *rq,
                wall_launched_fn *launched, void *arg, struct wall **ret, struct err *err)
{
    const struct wall_kind *kind = kind_of(provider);
    if (!kind)
        return err_set(err, -ENOTSUP, "wall_unavailable", NULL, "no such provider on this system");
    struct wall *w = wall_new(loop, kind, rq);
    if (!w)
        return err_set(err, -ENOMEM, "session_refused", NULL, "out of memory");
    w->launched = launched;
    w->launched_arg = arg;
    w->deadline_ms = rq->deadline_ms ? rq->deadline_ms : DEADLINE_MS;
    int r = spawn(loop, w, kind);
    if (r < 0)
        (void)err_set(err, r, "session_refused", "install Cordon again, or raise its limits",
                      "%s cannot be started: %s", w->machine->runner, strerror(-r));
    stop_point("wall-spawned");
    if (r >= 0) /* the child makes its namespaces meanwhile */
        r = kind->prepare(w, rq, err);
    if (r >= 0)
        r = polls_start(loop, w);
    if (r >= 0)
        r = control_flush(w);
    if (r < 0 && r != -EPIPE) { /* a broken pipe: the exit that follows says why */
        wall_close(w, NULL, NULL);
        return err_set(err, r, "session_refused", NULL, "the wall cannot be started: %s",
                       strerror(-r));
    }
    stop_point("wall-ordered");
    control_wait(w);
    deadline_set(&w->deadline, w->deadline_ms);
    *ret = w;
    return 0;
}

void wall_on_death(struct wall *w, wall_died_fn *died, void *arg)
{
    w->died = died;
    w->died_arg = arg;
}

int wall_take_control(struct wall *w)
{
    int fd = w->control;
    w->control = -1;
    return fd;
}

bool wall_has_redirect(const struct wall *w)
{
    return w->has_redirect;
}

const int *wall_doors(const struct wall *w, size_t *ret_n)
{
    *ret_n = w->n_doors;
    return w->doors;
}

int wall_landlock_abi(const struct wall *w)
{
    return w->landlock_abi;
}

unsigned wall_group_holds(const struct wall *w)
{
    return cgroup_keeps(w->group);
}

int wall_sweep(void)
{
    return cgroup_sweep();
}

void wall_count_hits(const struct wall *w, struct wall_hits *ret)
{
    cgroup_count(w->group, ret);
}

pid_t wall_pid(const struct wall *w)
{
    return w->child.pid;
}
