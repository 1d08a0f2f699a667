/* Runs in: daemon. Reads: trusted. May block: provider_probe for some ms, wall_launch no.
 *
 * The wall of Linux: `cordon-runner stage` becomes bubblewrap, which starts the runner inside. What
 * each is told is rendered here, while the stage already makes its namespaces. */
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/stop.h"
#include "base/str.h"
#include "render/bwrap.h"
#include "render/landlock.h"
#include "render/seccomp.h"
#include "render/view.h"
#include "sandbox/wall.h"
#include "wire/msg.h"
#include "wire/order.h"
#include "wire/rules.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* After the first wrap the kernel gives out no number below 300 (kernel/pid.c, RESERVED_PIDS), so N
 * processes need N + 300, and a few are the wall's own. */
#define PIDS_RESERVED 300
#define PIDS_MAX      4194304

static uint32_t pid_max_of(const struct policy *p)
{
    uint64_t n = p->limits.processes;
    if (n == 0 || stop_without("limits"))
        return 0;
    return n > PIDS_MAX - PIDS_RESERVED - WALL_PROCESSES_OWN
               ? PIDS_MAX
               : (uint32_t)n + PIDS_RESERVED + WALL_PROCESSES_OWN;
}

/* ---- What the stage is told ------------------------------------------------------------------ */

static int order_put(struct pack *p, const struct wall_request *rq, const struct view *view,
                     char *root)
{
    struct order_head head = {.ppid = (uint32_t)getpid(),
                              .uid = (uint32_t)geteuid(),
                              .gid = (uint32_t)getegid(),
                              .pid_max = pid_max_of(rq->policy),
                              .net = rq->want_doors ? ORDER_NET_DOORS : ORDER_NET_NONE,
                              .door_port = rq->policy->door_port,
                              .redirect = rq->want_doors && rq->want_redirect,
                              .n_joins = (uint32_t)view->n,
                              .root = root,
                              .runner = rq->machine->runner};
    order_put_head(p, &head);
    for (size_t i = 0; i < view->n; i++)
        order_put_join(p, &view->joins[i]);
    return p->r;
}

static int frame_add(struct str *out, uint8_t kind, struct pack *p, int r)
{
    if (r >= 0)
        r = p->r < 0 ? p->r : frame_put(out, kind, p->out.data, p->out.len);
    pack_done(p);
    return r;
}

/* The strings, each with its NUL, as bubblewrap's --args reads them. */
static int args_memfd(const struct strv *args)
{
    struct str bytes = {0};
    int r = 0;
    for (size_t i = 0; i < args->n && r >= 0; i++)
        r = str_add(&bytes, args->items[i], strlen(args->items[i]) + 1);
    if (r >= 0)
        r = fd_memfd("bwrap-args", str_c(&bytes), bytes.len);
    str_done(&bytes);
    return r;
}

/* Rendered once: the filter is the same for every wall. */
static int filter_memfd(void)
{
    static struct str filter;
    static const unsigned char allow_all[8] = {0x06, 0, 0, 0, 0, 0, 0xff, 0x7f}; /* BPF_RET */
    if (stop_without("seccomp"))
        return fd_memfd("filter", allow_all, sizeof allow_all);
    int r = filter.len > 0 ? 0 : seccomp_render_wall(&filter);
    return r < 0 ? r : fd_memfd("filter", filter.data, filter.len);
}

/* Test builds: `--proc /proc` at I becomes `--bind /proc /proc`. */
static int args_host_proc(struct strv *args, size_t i)
{
    struct strv made = {0};
    int r = 0;
    for (size_t k = 0; k < args->n && r >= 0; k++)
        r = k != i                                ? strv_add(&made, args->items[k])
            : (r = strv_add(&made, "--bind")) < 0 ? r
                                                  : strv_add(&made, "/proc");
    strv_done(args);
    *args = made;
    return r;
}

/* Test builds: the second bind of /proc/sys becomes a writable one. */
static int args_writable_sys(struct strv *args)
{
    for (size_t i = 0; i + 1 < args->n; i++) {
        if (strcmp(args->items[i], "--ro-bind") != 0 ||
            strcmp(args->items[i + 1], "/proc/sys") != 0)
            continue;
        char *bind = strdup("--bind");
        if (!bind)
            return -ENOMEM;
        free(args->items[i]);
        args->items[i] = bind;
    }
    return 0;
}

static int bwrap_files(struct wall *w, const struct wall_request *rq, const char *root)
{
    struct strv args = {0};
    struct bwrap_input in = {.root = root, .filter_fd = FD_BWRAP_FILTER};
    int r = bwrap_render(rq->policy, rq->machine, &in, &args);
    for (size_t i = 0; stop_without("proc") && i < args.n; i++)
        if (strcmp(args.items[i], "--proc") == 0) /* the stage's, which is the host's */
            r = args_host_proc(&args, i);
    if (r >= 0 && stop_without("proc-sys"))
        r = args_writable_sys(&args);
    if (r >= 0)
        r = args_memfd(&args);
    strv_done(&args);
    if (r < 0)
        return r;
    w->out_fds[w->n_out_fds++] = r;
    r = filter_memfd();
    if (r < 0)
        return r;
    w->out_fds[w->n_out_fds++] = r;
    return 0;
}

/* The stage enters before it execs, so that all that comes after is in it. */
static int group_files(struct wall *w, const struct wall_request *rq)
{
    int fds[CGROUPS_MAX];
    int r = cgroup_new(&rq->policy->limits, &w->group);
    if (r >= 0)
        r = cgroup_open(w->group, fds);
    for (int i = 0; i < r; i++)
        w->out_fds[w->n_out_fds++] = fds[i];
    return r < 0 ? r : 0;
}

/* Address space is no measure of memory: only where nothing better holds it. */
static void drop_address_space(struct rules *rules)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < rules->n_limits; i++)
        if (rules->limits[i].resource != RLIMIT_AS)
            rules->limits[n++] = rules->limits[i];
    rules->n_limits = n;
}

static int lockdown_put(struct pack *p, const struct wall *w, const struct wall_request *rq)
{
    struct rules rules = {0};
    int abi = rq->machine->landlock_abi;
    int r = landlock_render(rq->policy, rq->machine, abi, &rules);
    if (stop_without("landlock"))
        rules.landlock = 0;
    if (cgroup_holds(w->group) & WALL_MEMORY)
        drop_address_space(&rules);
    if (stop_without("limits"))
        rules.n_limits = 0;
    if (r >= 0)
        rules_put(p, &rules);
    rules_done(&rules);
    return r < 0 ? r : p->r;
}

/* Test builds: the view with one of its layers missing. */
static int view_without(struct view *v, const struct wall_request *rq)
{
    const struct machine *m = rq->machine;
    size_t n = 0;
    for (size_t i = 0; i < v->n; i++) {
        if (stop_without("mask") && v->joins[i].kind == JOIN_HIDE)
            join_done(&v->joins[i]);
        else
            v->joins[n++] = v->joins[i];
    }
    v->n = n;
    for (size_t i = 0; i < v->n; i++) {
        struct join *j = &v->joins[i];
        bool is_home = j->kind == JOIN_BIND && strcmp(j->target, m->home) == 0;
        bool is_read_only =
            j->kind == JOIN_BIND && j->flags & JOIN_READ_ONLY && j->flags & JOIN_IDENTITY;
        if (stop_without("read-only") && is_read_only)
            j->flags &= ~(uint32_t)JOIN_READ_ONLY;
        if (!is_home || !stop_without("home"))
            continue;
        free(j->source); /* the real home instead of the private one */
        j->source = strdup(m->home);
        if (!j->source)
            return -ENOMEM;
    }
    return 0;
}

static int prepare(struct wall *w, const struct wall_request *rq, struct err *err)
{
    if (rq->machine->landlock_abi < 1) /* never a weaker wall than the record says */
        return cure_landlock(err);
    struct view view = {0};
    struct pack order = {.r = 0}, lockdown = {.r = 0};
    CLEANUP(freep) char *mount = NULL;
    CLEANUP(freep) char *root = NULL;
    int r = path_join(rq->policy->private_dir, "view", &mount);
    if (r >= 0)
        r = path_join(mount, "root", &root); /* runner/joins.h */
    if (r >= 0)
        r = view_render(rq->policy, rq->machine, &view, err);
    if (r >= 0)
        r = bwrap_files(w, rq, root);
    if (r >= 0)
        r = group_files(w, rq);
    if (r >= 0)
        r = view_without(&view, rq);
    if (r >= 0)
        r = order_put(&order, rq, &view, mount);
    r = frame_add(&w->out, M_STAGE_ORDER, &order, r);
    if (r >= 0)
        r = lockdown_put(&lockdown, w, rq);
    r = frame_add(&w->out, M_LOCKDOWN, &lockdown, r);
    view_done(&view);
    return r < 0 ? err_set(err, r, "session_refused", NULL,
                           "the wall's rules cannot be rendered: %s", strerror(-r))
                 : 0;
}

/* ---- What went wrong ------------------------------------------------------------------------- */

static void explain_view(int errnum, const char *what, struct err *err)
{
    const char *hint = "see that the folder is there and readable, then try again";
    const char *cause = strerror(errnum);
    if (errnum == ESTALE) {
        cause = "another folder is there now than the one that was granted";
        hint = "grant the folder that is there now";
    } else if (errnum == ELOOP) {
        cause = "a symbolic link is there now";
        hint = "remove the link, or grant the folder that it leads to";
    } else if (errnum == ENOENT) {
        cause = "it is gone";
    }
    (void)err_set(err, -ENOTSUP, "session_refused", hint, "the view cannot be assembled: %s: %s",
                  what, cause);
}

static void explain(const struct wall *w, unsigned code, int errnum, const char *what,
                    struct err *err)
{
    struct str text = {0};
    (void)w;
    (void)str_put_escaped(&text, what, strlen(what));
    switch (code) {
    case CHILD_NAMESPACES:
    case CHILD_IDS:
        cure_namespaces(errnum, str_c(&text), err);
        break;
    case CHILD_VIEW:
        explain_view(errnum, str_c(&text), err);
        break;
    case CHILD_EXEC:
        if (errnum == 0 || !bwrap_find(err))
            break;
        (void)err_set(err, -ENOTSUP, "session_refused", "install the package bubblewrap again",
                      "bubblewrap cannot be started: %s", strerror(errnum));
        break;
    default:
        if (errnum != 0)
            (void)err_set(err, -ENOTSUP, "session_refused", "see cordon status --why",
                          "the wall cannot be put up: step %s: %s: %s", child_exit_name((int)code),
                          str_c(&text), strerror(errnum));
        break;
    }
    /* No message of the stage: bubblewrap or the runner ended before it was ready. */
    if (!err_is_set(err) && strstr(str_c(&text), "bwrap: ") != NULL)
        cure_namespaces(0, str_c(&text), err);
    (void)err_set(err, -ENOTSUP, "session_refused", "see cordon status --why",
                  "the wall ended before it was up: step %s: %s", child_exit_name((int)code),
                  str_c(&text));
    str_done(&text);
}

const struct wall_kind WALL_LINUX = {
    .argument = "stage", .signal = SIGTERM, .prepare = prepare, .explain = explain};
