/* Runs in: runner (stage, outside the wall). Reads: trusted (the daemon's order); the folders it
 * joins are hostile. May block: yes. */
#include "runner/stage.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/stop.h"
#include "runner/doors.h"
#include "runner/joins.h"
#include "runner/netlink.h"
#include "runner/redirect.h"
#include "wire/frame.h"
#include "wire/msg.h"
#include "wire/order.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

struct stage {
    int control;
    pid_t parent;     /* the daemon, as the outer process saw it */
    mode_t umask;     /* as inherited; bubblewrap and the runner get it back */
    int args, filter; /* what bubblewrap reads */
    int groups[3];    /* cgroup.procs of the control groups to enter */
    size_t n_groups;
    struct order_head head;
    struct join *joins;
};

/* One M_STAGE_FAILED and the end. */
static void __attribute__((noreturn))
stage_fail(int control, enum child_exit code, int r, const char *what)
{
    struct pack p = {.r = 0};
    struct str frame = {0};
    pack_u32(&p, (uint32_t)code);
    pack_u32(&p, (uint32_t)-r);
    pack_str(&p, what);
    if (p.r >= 0 && frame_put(&frame, M_STAGE_FAILED, p.out.data, p.out.len) >= 0)
        (void)fd_write_all(control, frame.data, frame.len);
    _exit(code);
}

/* ---- The outer process ----------------------------------------------------------------------- */

static int text_write(const char *path, const char *text)
{
    CLEANUP(fd_done) int fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd_write_all(fd, text, strlen(text));
}

static void namespaces_enter(int control)
{
    char map[64];
    unsigned uid = geteuid(), gid = getegid(); /* asked before: afterwards they read 65534 */
    int net = stop_without("network") ? 0 : CLONE_NEWNET;
    if (unshare(CLONE_NEWUSER | net | CLONE_NEWNS | CLONE_NEWPID) < 0)
        stage_fail(control, CHILD_NAMESPACES, -errno, "unshare");
    int r = text_write("/proc/self/setgroups", "deny");
    if (r < 0)
        stage_fail(control, CHILD_IDS, r, "setgroups");
    snprintf(map, sizeof map, "%u %u 1", uid, uid);
    r = text_write("/proc/self/uid_map", map);
    if (r < 0)
        stage_fail(control, CHILD_IDS, r, "uid_map");
    snprintf(map, sizeof map, "%u %u 1", gid, gid);
    r = text_write("/proc/self/gid_map", map);
    if (r < 0)
        stage_fail(control, CHILD_IDS, r, "gid_map");
}

static pid_t inner_pid;

static void on_term(int sig)
{
    (void)sig;
    (void)kill(inner_pid, SIGKILL);
}

/* The inner process is pid 1 of its namespace: it is reaped only after all others in it are gone,
 * so when the daemon reaps us nothing of the wall lives any more. */
static void __attribute__((noreturn)) outer_wait(pid_t inner, const sigset_t *mask)
{
    int status;
    inner_pid = inner;
    (void)sigaction(SIGTERM, &(struct sigaction){.sa_handler = on_term}, NULL);
    (void)sigprocmask(SIG_SETMASK, mask, NULL);
    while (waitpid(inner, &status, 0) < 0)
        if (errno != EINTR)
            _exit(CHILD_FORK);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

/* ---- The inner process: the order ------------------------------------------------------------ */

/* Exactly one frame, with its descriptors; not a byte of the next one. */
static int order_read(struct stage *s, struct frame_reader *reader, struct frame *ret)
{
    uint8_t head[FRAME_HEAD];
    int fds[FDS_PER_MESSAGE], got[2 + ARRAY_LEN(s->groups)];
    size_t have = 0, n_got = 0;
    while (have < sizeof head) {
        size_t n_fds = 0;
        ssize_t n = fd_recv(s->control, head + have, sizeof head - have, fds, &n_fds);
        if (n <= 0)
            return n < 0 ? (int)n : -EPIPE;
        if (n_got + n_fds > ARRAY_LEN(got))
            return -EBADMSG;
        for (size_t i = 0; i < n_fds; i++)
            got[n_got++] = fds[i];
        have += (size_t)n;
    }
    size_t len = head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16 | (size_t)head[3] << 24;
    if (len < 1 || len > FRAME_MAX || n_got < 2 || head[4] != M_STAGE_ORDER)
        return -EBADMSG;
    s->args = got[0];
    s->filter = got[1];
    s->n_groups = n_got - 2;
    memcpy(s->groups, got + 2, s->n_groups * sizeof s->groups[0]);
    char *payload = malloc(len);
    if (!payload)
        return -ENOMEM;
    ssize_t n = fd_read_all(s->control, payload, len - 1);
    int r = n < 0 ? (int)n : (size_t)n == len - 1 ? 0 : -EPIPE;
    if (r >= 0)
        r = frame_feed(reader, head, sizeof head);
    if (r >= 0)
        r = frame_feed(reader, payload, len - 1);
    free(payload);
    if (r >= 0)
        r = frame_next(reader, ret) == 1 ? 0 : -EBADMSG;
    return r;
}

static int order_parse(struct stage *s, const struct frame *f)
{
    struct unpack u = unpack_from(f->payload, f->len);
    int r = order_get_head(&u, &s->head);
    if (r < 0)
        return r;
    if (s->head.n_joins > ORDER_JOINS_MAX)
        return -EBADMSG;
    s->joins = calloc(s->head.n_joins + 1, sizeof *s->joins);
    if (!s->joins)
        return -ENOMEM;
    for (uint32_t i = 0; i < s->head.n_joins && r >= 0; i++)
        r = order_get_join(&u, &s->joins[i]);
    return r < 0 ? r : unpack_end(&u);
}

static void order_take(struct stage *s)
{
    struct frame_reader reader = {0};
    struct frame f;
    int r = order_read(s, &reader, &f);
    if (r >= 0)
        r = order_parse(s, &f);
    if (r < 0)
        stage_fail(s->control, CHILD_PROTOCOL, r, "order");
    frame_reader_done(&reader);
    if (s->parent != (pid_t)s->head.ppid)
        _exit(CHILD_PARENT_GONE);
    if (s->head.uid != geteuid() || s->head.gid != getegid())
        stage_fail(s->control, CHILD_IDS, -EPERM, "ids of the order");
}

/* ---- The inner process: network, limits, view ------------------------------------------------ */

static void network_up(struct stage *s)
{
    int r = stop_without("network") ? 0 : netlink_loopback_up();
    if (r < 0)
        stage_fail(s->control, CHILD_NETWORK, r, "loopback");
    /* Low ports of the session's own network are anybody's in it. Where the kernel refuses this, a
     * service of the host on such a port cannot stand inside, and that is told. */
    if (!stop_without("network"))
        (void)text_write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
}

/* Redirect and name server, or neither: then the proxy variables alone remain. The daemon knows it
 * by the door of the name server, and the proof tries it. */
static void redirect_doors(struct stage *s, int *fds, size_t *n)
{
    const char *what = "the name server's door";
    bool has_ipv6 = *n == 2;
    if (!s->head.redirect || stop_without("network") || stop_without("redirect"))
        return;
    int dns = doors_make_dns();
    int r = dns < 0 ? dns : redirect_set_up(s->head.door_port, has_ipv6, &what);
    if (r == 0) {
        fds[(*n)++] = dns;
        return;
    }
    if (dns >= 0)
        close(dns);
    fprintf(stderr, "cordon-runner: connections are not redirected: %s: %s\n", what, strerror(-r));
}

static void doors_out(struct stage *s)
{
    struct err err = {0};
    int fds[DOORS_MAX];
    size_t n = 0;
    if (s->head.net != ORDER_NET_DOORS)
        return;
    int r = doors_make(s->head.door_port, fds, &n, &err);
    if (r < 0)
        stage_fail(s->control, CHILD_DOORS, r, err.detail);
    redirect_doors(s, fds, &n);
    r = doors_send(s->control, fds, n);
    if (r < 0)
        stage_fail(s->control, CHILD_DOORS, r, "doors not taken");
    for (size_t i = 0; i < n; i++)
        close(fds[i]);
}

/* All that comes after is a child of this process, and so in the groups too. Where one lets nobody
 * in, the daemon sees that it is empty, and the proof says that the limit is not held. */
static void groups_enter(struct stage *s)
{
    for (size_t i = 0; i < s->n_groups; i++) {
        ssize_t n = write(s->groups[i], "0", 1);
        (void)n;
        close(s->groups[i]);
    }
}

/* The only limit of processes that also holds for root. Before Linux 6.14 there is one
 * kernel.pid_max for the machine, and a stage run by root may write it: so the version first. */
static void processes_limit(struct stage *s)
{
    struct utsname u;
    char text[16];
    unsigned major = 0, minor = 0;
    if (s->head.pid_max == 0 || uname(&u) < 0 || sscanf(u.release, "%u.%u", &major, &minor) != 2 ||
        major * 1000 + minor < 6014)
        return;
    snprintf(text, sizeof text, "%u", s->head.pid_max);
    int r = text_write("/proc/sys/kernel/pid_max", text);
    if (r < 0)
        stage_fail(s->control, CHILD_LIMITS, r, "kernel.pid_max");
    /* Numbers below 300 are given out once, before the first wrap: passed over, the maximum holds
     * from the start. Where the kernel cannot (no CHECKPOINT_RESTORE), up to 300 more fit once. */
    if (!stop_without("proc"))
        (void)text_write("/proc/sys/kernel/ns_last_pid", "299");
}

static void view_assemble(struct stage *s)
{
    struct err err = {0};
    struct joins j;
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        stage_fail(s->control, CHILD_VIEW, -errno, "private mounts");
    int r = joins_begin(&j, s->head.root, &err);
    if (r >= 0)
        r = joins_run(&j, s->joins, s->head.n_joins, &err);
    if (r < 0)
        stage_fail(s->control, CHILD_VIEW, r, err.detail);
    joins_done(&j);
}

/* bubblewrap looks its child up in /proc by the number it has in our pid namespace: that must be
 * this namespace's /proc, else it finds another process of the host, or none. */
static void proc_mount(struct stage *s)
{
    if (stop_without("proc"))
        return;
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        stage_fail(s->control, CHILD_NAMESPACES, -errno, "proc of the session");
}

/* ---- The inner process: bubblewrap ----------------------------------------------------------- */

/* bubblewrap closes nothing it inherits: all go but the control socket and its two files, which
 * come to the numbers that its arguments name. */
static void descriptors_sort(struct stage *s)
{
    int args = fcntl(s->args, F_DUPFD_CLOEXEC, FD_BWRAP_FILTER + 1);
    int filter = fcntl(s->filter, F_DUPFD_CLOEXEC, FD_BWRAP_FILTER + 1);
    if (args < 0 || filter < 0 || dup3(args, FD_BWRAP_ARGS, O_CLOEXEC) < 0 ||
        dup3(filter, FD_BWRAP_FILTER, O_CLOEXEC) < 0 || lseek(FD_BWRAP_ARGS, 0, SEEK_SET) < 0 ||
        lseek(FD_BWRAP_FILTER, 0, SEEK_SET) < 0)
        stage_fail(s->control, CHILD_DESCRIPTORS, -errno, "descriptors of bubblewrap");
    int r = stop_without("descriptors") ? 0 : fd_cloexec_from(3);
    if (r >= 0)
        r = fd_cloexec(s->control, false);
    if (r >= 0)
        r = fd_cloexec(FD_BWRAP_ARGS, false);
    if (r >= 0)
        r = fd_cloexec(FD_BWRAP_FILTER, false);
    if (r < 0)
        stage_fail(s->control, CHILD_DESCRIPTORS, r, "descriptors");
    if (stop_without("descriptors"))
        (void)fcntl(STDIN_FILENO, F_DUPFD, 20); /* a stray one, for the proof to find */
}

static void __attribute__((noreturn)) bwrap_exec(struct stage *s)
{
    static char bwrap[] = "bwrap", args[] = "--args", end[] = "--", runner[] = RUNNER_INSIDE,
                inside[] = "inside";
    char number[16];
    char *argv[] = {bwrap, args, number, end, runner, inside, NULL}, *envp[] = {NULL};
    snprintf(number, sizeof number, "%d", FD_BWRAP_ARGS);
    /* bubblewrap refuses to start with ambient capabilities. */
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        stage_fail(s->control, CHILD_CAPABILITIES, -errno, "ambient capabilities");
    (void)umask(s->umask);
    (void)execve("/usr/bin/bwrap", argv, envp);
    if (errno == ENOENT)
        (void)execve("/bin/bwrap", argv, envp);
    stage_fail(s->control, CHILD_EXEC, -errno, "bubblewrap");
}

static void __attribute__((noreturn)) inner_main(struct stage *s, int outer)
{
    struct pollfd gone = {.fd = outer, .events = POLLIN};
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || poll(&gone, 1, 0) != 0)
        _exit(CHILD_PARENT_GONE);
    close(outer);
    network_up(s);
    stop_point("stage-network");
    order_take(s);
    stop_point("stage-order");
    doors_out(s);
    stop_point("stage-doors");
    groups_enter(s);
    processes_limit(s);
    view_assemble(s);
    stop_point("stage-view");
    proc_mount(s);
    descriptors_sort(s);
    stop_point("stage-exec");
    bwrap_exec(s);
}

int stage_main(int control)
{
    struct stage s = {.control = control, .args = -1, .filter = -1};
    sigset_t all, mask;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        stage_fail(control, CHILD_PARENT_GONE, -errno, "parent-death signal");
    (void)setsid();       /* an interrupt at the daemon's terminal is the daemon's to handle */
    s.parent = getppid(); /* compared with the order's: another one is dead already */
    s.umask = umask(0);
    namespaces_enter(control);
    stop_point("stage-namespaces");
    int outer = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (outer < 0)
        stage_fail(control, CHILD_FORK, -errno, "pidfd");
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, &mask);
    pid_t inner = fork();
    if (inner < 0)
        stage_fail(control, CHILD_FORK, -errno, "fork");
    if (inner == 0) {
        (void)sigprocmask(SIG_SETMASK, &mask, NULL);
        inner_main(&s, outer);
    }
    close(control); /* its end tells that the inner process ended */
    outer_wait(inner, &mask);
}
