/* wall_driver: a wall without the daemon, for tests/wall. Compiles a policy, launches the wall by
 * sandbox/provider, runs one command or the proof in it by raw frames, and ends it.
 *
 *     wall_driver [OPTION]... -- COMMAND [ARG]...    exit code of the command; 128 + n for signal n
 *     wall_driver [OPTION]... --proof                the proof's receipt as JSON; 0 proved, 1 not
 *     wall_driver [OPTION]... --render WHAT          what the kernel is told
 *     wall_driver --check                            can this machine put up the wall?
 *
 *     --rw DIR --ro DIR   folders, repeatable        --net none|allowlist|open (allowlist)
 *     --state DIR         Cordon's state folder      --processes N, --files N
 *     --dev-ino D:I       identity of the last folder, as if it had been granted then
 *     --times N           launch N times and print how long it took (COMMAND may be missing)
 *     --then SHELL        run on the host between the check of the folders and the launch
 *     --sweep             remove what dead launchers left, before anything else
 *     --hold              after the launch say "up PID PRIVATE" on standard output and wait for
 *                         standard input to end
 *
 * 125 with one line on standard error when the wall was refused: CODE: DETAIL | HINT. */
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "sandbox/machine.h"
#include "sandbox/private.h"
#include "sandbox/proof.h"
#include "sandbox/provider.h"
#include "wire/frame.h"
#include "wire/msg.h"
#include "wire/pack.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DOOR_PORT    3128
#define REFUSED_EXIT 125
#define ALLOWED_NAME "one.cordon.invalid:443"
#define REFUSED_NAME "two.cordon.invalid:443"
extern char **environ;

struct drive {
    struct policy_folder folders[32];
    size_t n_folders;
    struct policy_input in;
    struct policy policy;
    struct machine machine;
    char **command;
    const char *state, *render, *then;
    bool is_proof, is_check, is_hold;
    int times, code;
    int64_t started_ns, sum_ns, min_ns;
    struct wall *wall;
    char *private_dir;
};

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int refused(const struct err *e)
{
    fprintf(stderr, "%s: %s | %s\n", e->code, e->detail, e->hint);
    return REFUSED_EXIT;
}

/* ---- Frames ---------------------------------------------------------------------------------- */

static void send_frame(int sock, uint8_t kind, struct pack *p, const int *fds, size_t n_fds)
{
    struct str frame = {0};
    if (p->r < 0 || frame_put(&frame, kind, p->out.data, p->out.len) < 0 ||
        fd_send(sock, frame.data, frame.len, fds, n_fds) != (ssize_t)frame.len) {
        perror("send");
        exit(REFUSED_EXIT);
    }
    str_done(&frame);
    pack_done(p);
}

/* The next frame of SOCK, or false at its end. Descriptors that come are closed. */
static bool next_frame(int sock, struct frame_reader *reader, struct frame *ret)
{
    char buf[4096];
    int fds[FDS_PER_MESSAGE];
    size_t n_fds = 0;
    int r;
    while ((r = frame_next(reader, ret)) == 0) {
        ssize_t n = fd_recv(sock, buf, sizeof buf, fds, &n_fds);
        for (size_t i = 0; n > 0 && i < n_fds; i++)
            close(fds[i]);
        if (n <= 0 || frame_feed(reader, buf, (size_t)n) < 0)
            return false;
    }
    return r == 1;
}

/* ---- A command ------------------------------------------------------------------------------- */

static size_t count(char *const *items)
{
    size_t n = 0;
    while (items[n])
        n++;
    return n;
}

static void command_start(struct drive *d, int control, int channel)
{
    struct pack p = {.r = 0};
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int fds[] = {null, 1, 2, channel};
    pack_u32(&p, 1);
    pack_u32(&p, START_STDIN_NULL);
    pack_strv(&p, d->command, count(d->command));
    pack_strv(&p, d->policy.env.items, d->policy.env.n);
    pack_str(&p, d->policy.cwd);
    pack_u64(&p, 022);
    send_frame(control, M_START, &p, fds, ARRAY_LEN(fds));
    close(null);
}

static int command_run(struct drive *d, int control)
{
    int pair[2], code = REFUSED_EXIT;
    struct frame_reader reader = {0};
    struct frame f;
    if (fd_pair(pair) < 0)
        return REFUSED_EXIT;
    command_start(d, control, pair[1]);
    close(pair[1]);
    while (next_frame(pair[0], &reader, &f)) {
        struct unpack u = unpack_from(f.payload, f.len);
        if (f.kind == M_CMD_FAILED) {
            unsigned stage = unpack_u8(&u), errnum = unpack_u32(&u);
            fprintf(stderr, "failed at stage %u: %s\n", stage, strerror((int)errnum));
            code = stage == START_AT_EXEC ? (errnum == ENOENT ? 127 : 126) : REFUSED_EXIT;
            break;
        }
        if (f.kind == M_CMD_EXIT) {
            unsigned signaled = unpack_u8(&u), value = unpack_u32(&u);
            code = (int)(signaled ? 128 + value : value);
            break;
        }
    }
    close(pair[0]);
    frame_reader_done(&reader);
    return code;
}

/* ---- The proof ------------------------------------------------------------------------------- */

/* What stands for the egress: answers 200 to the allowed name and 403 to all else. */
static void serve_doors(const int *doors, size_t n)
{
    static const char YES[] = "HTTP/1.1 200 OK\r\n\r\n", NO[] = "HTTP/1.1 403 Forbidden\r\n\r\n";
    struct pollfd p[WALL_DOORS_MAX];
    for (size_t i = 0; i < n; i++)
        p[i] = (struct pollfd){.fd = doors[i], .events = POLLIN};
    while (poll(p, n, 30000) > 0)
        for (size_t i = 0; i < n; i++) {
            char head[1024] = "";
            int fd = p[i].revents & POLLIN ? accept4(doors[i], NULL, NULL, SOCK_CLOEXEC) : -1;
            if (fd < 0)
                continue;
            ssize_t got = recv(fd, head, sizeof head - 1, 0);
            const char *answer = got > 0 && strstr(head, ALLOWED_NAME) ? YES : NO;
            (void)send(fd, answer, strlen(answer), MSG_NOSIGNAL);
            close(fd);
        }
}

static int host_listener(uint16_t *ret_port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    union {
        struct sockaddr_in *in;
        struct sockaddr *any;
    } p = {.in = &a};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, p.any, len) < 0 || listen(fd, 8) < 0 || getsockname(fd, p.any, &len) < 0)
        return -1;
    *ret_port = ntohs(a.sin_port);
    return fd;
}

static void ask(struct proof *proof, int control)
{
    struct frame_reader reader = {0};
    struct frame f;
    for (size_t i = 0; i < proof->n_probes; i++) {
        struct pack p = {.r = 0};
        pack_u32(&p, (uint32_t)i);
        pack_u8(&p, (uint8_t)proof->probes[i].kind);
        pack_str(&p, proof->probes[i].path);
        pack_u32(&p, proof->probes[i].port);
        pack_str(&p, proof->probes[i].text);
        send_frame(control, M_PROBE, &p, NULL, 0);
        if (!next_frame(control, &reader, &f) || f.kind != M_PROBED)
            break;
        struct unpack u = unpack_from(f.payload, f.len);
        uint32_t id = unpack_u32(&u), errnum = unpack_u32(&u);
        char *text = unpack_str(&u, 65536);
        proof_answer(proof, id, errnum, text);
        free(text);
    }
    frame_reader_done(&reader);
}

static int proof_run(struct drive *d, int control)
{
    struct proof proof;
    char canary[4096], text[] = "canary-2f1c9e7a55";
    uint16_t port = 0;
    size_t n_doors;
    const int *doors = wall_doors(d->wall, &n_doors);
    int listener = host_listener(&port);
    snprintf(canary, sizeof canary, "%s/canary", d->machine.state_dir);
    (void)mkdir(d->machine.state_dir, 0700);
    if (fd_write_file(AT_FDCWD, canary, text, strlen(text), 0600) < 0)
        return REFUSED_EXIT;
    const struct proof_context ctx = {.policy = &d->policy,
                                      .machine = &d->machine,
                                      .canary_path = canary,
                                      .canary_text = text,
                                      .allowed_name = ALLOWED_NAME,
                                      .refused_name = REFUSED_NAME,
                                      .api_port = port,
                                      .host_port_open = port};
    pid_t egress = fork();
    if (egress == 0) {
        serve_doors(doors, n_doors);
        _exit(0);
    }
    if (proof_plan(&proof, &ctx) < 0)
        return REFUSED_EXIT;
    ask(&proof, control);
    (void)kill(egress, SIGKILL);
    (void)waitpid(egress, NULL, 0);
    proof.landlock_abi = wall_landlock_abi(d->wall);
    bool ok = proof_judge(&proof);
    json_t *receipt = proof_to_json(&proof);
    (void)json_dumpf(receipt, stdout, JSON_INDENT(1));
    puts("");
    json_decref(receipt);
    proof_done(&proof);
    (void)unlink(canary);
    close(listener);
    return ok ? 0 : 1;
}

/* ---- The launch ------------------------------------------------------------------------------ */

static void hold(const struct drive *d)
{
    char buf[64];
    printf("up %d %s\n", (int)wall_pid(d->wall), d->private_dir);
    (void)fflush(stdout);
    while (read(0, buf, sizeof buf) > 0)
        ;
}

static void on_launched(struct wall *w, int r, const struct err *e, void *arg)
{
    struct drive *d = arg;
    int64_t took = now_ns() - d->started_ns;
    d->sum_ns += took;
    if (d->min_ns == 0 || took < d->min_ns)
        d->min_ns = took;
    d->wall = w;
    if (r < 0) {
        d->code = refused(e);
        wall_close(w, NULL, NULL);
        return;
    }
    int control = wall_take_control(w);
    (void)fd_nonblock(control, false);
    if (d->is_hold)
        hold(d);
    if (d->is_proof)
        d->code = proof_run(d, control);
    else if (d->command)
        d->code = command_run(d, control);
    wall_close(w, NULL, NULL);
    close(control);
}

static int launch(uv_loop_t *loop, struct drive *d)
{
    struct err e = {0};
    int lock;
    int r = private_new(&d->private_dir, &lock, &e);
    if (r < 0)
        return d->code = refused(&e);
    d->in.private_dir = d->private_dir;
    r = policy_compile(&d->in, &d->machine, &d->policy, &e);
    const struct wall_request rq = {.policy = &d->policy,
                                    .machine = &d->machine,
                                    .want_doors = d->in.network != NET_NONE,
                                    .deadline_ms = 60000};
    d->started_ns = now_ns();
    if (r >= 0)
        r = wall_launch(loop, PROVIDER_BUBBLEWRAP, &rq, on_launched, d, &d->wall, &e);
    if (r < 0)
        d->code = refused(&e);
    (void)uv_run(loop, UV_RUN_DEFAULT);
    (void)private_remove(d->private_dir);
    close(lock);
    free(d->private_dir);
    policy_done(&d->policy);
    return d->code;
}

static int render(struct drive *d)
{
    struct err e = {0};
    char *text;
    d->in.private_dir = "/tmp/PRIVATE";
    if (policy_compile(&d->in, &d->machine, &d->policy, &e) < 0 ||
        provider_describe(PROVIDER_BUBBLEWRAP, &d->policy, &d->machine, d->render, &text, &e) < 0)
        return refused(&e);
    puts(text);
    free(text);
    policy_done(&d->policy);
    return 0;
}

/* ---- Options --------------------------------------------------------------------------------- */

static void folder_add(struct drive *d, const char *path, enum access access)
{
    struct err e = {0};
    struct policy_folder *f = &d->folders[d->n_folders++];
    *f = (struct policy_folder){.id = strdup("fol"), .path = strdup(path), .access = access};
    if (machine_folder_check(&d->machine, f, &e) < 0)
        exit(refused(&e));
}

static enum net_mode net_of(const char *name)
{
    for (int i = 0; NET_NAMES[i]; i++)
        if (strcmp(NET_NAMES[i], name) == 0)
            return (enum net_mode)i;
    exit(2);
}

static void look(struct drive *d, int argc, char **argv)
{
    struct err e = {0};
    char state[4096];
    const char *home = getenv("HOME");
    snprintf(state, sizeof state, "%s/.local/state/cordon", home ? home : "/nonexistent");
    for (int i = 1; i + 1 < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--state") == 0)
            snprintf(state, sizeof state, "%s", argv[i + 1]);
    if (machine_look(&(struct machine_dirs){.state = state}, &d->machine, &e) < 0)
        exit(refused(&e));
}

static void options(struct drive *d, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *o = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        unsigned long long dev, ino;
        if (strcmp(o, "--") == 0) {
            d->command = argv + i + 1;
            return;
        }
        if (strcmp(o, "--proof") == 0)
            d->is_proof = true;
        else if (strcmp(o, "--check") == 0)
            d->is_check = true;
        else if (strcmp(o, "--hold") == 0)
            d->is_hold = true;
        else if (strcmp(o, "--sweep") == 0)
            (void)private_sweep();
        else if (i++, strcmp(o, "--rw") == 0)
            folder_add(d, value, ACCESS_RW);
        else if (strcmp(o, "--ro") == 0)
            folder_add(d, value, ACCESS_RO);
        else if (strcmp(o, "--net") == 0)
            d->in.network = net_of(value);
        else if (strcmp(o, "--then") == 0)
            d->then = value;
        else if (strcmp(o, "--render") == 0)
            d->render = value;
        else if (strcmp(o, "--times") == 0)
            d->times = atoi(value);
        else if (strcmp(o, "--processes") == 0)
            d->in.limits.processes = strtoull(value, NULL, 10);
        else if (strcmp(o, "--files") == 0)
            d->in.limits.open_files = strtoull(value, NULL, 10);
        else if (strcmp(o, "--dev-ino") == 0 && d->n_folders > 0 &&
                 sscanf(value, "%llu:%llu", &dev, &ino) == 2) {
            d->folders[d->n_folders - 1].dev = dev;
            d->folders[d->n_folders - 1].ino = ino;
        } else if (strcmp(o, "--state") != 0)
            exit(2);
    }
}

int main(int argc, char **argv)
{
    static struct drive d = {.times = 1};
    struct err e = {0};
    (void)signal(SIGPIPE, SIG_IGN);
    look(&d, argc, argv);
    d.in.network = NET_ALLOWLIST;
    d.in.limits.processes = 200;
    options(&d, argc, argv);
    d.in.folders = d.folders;
    d.in.n_folders = d.n_folders;
    d.in.caller_env = environ;
    d.in.door_port = DOOR_PORT;
    if (d.is_check) {
        if (provider_probe(PROVIDER_BUBBLEWRAP, &d.machine, &e) < 0)
            return refused(&e);
        printf("bubblewrap %s\n", wall_bwrap_version());
        return 0;
    }
    if (d.render)
        return render(&d);
    if (d.then && system(d.then) != 0)
        return 2;
    for (int i = 0; i < d.times; i++)
        if (launch(uv_default_loop(), &d) == REFUSED_EXIT && !d.command)
            return REFUSED_EXIT;
    if (d.times > 1)
        printf("launched %d times: %.2f ms on average, %.2f ms at best\n", d.times,
               (double)d.sum_ns / d.times / 1e6, (double)d.min_ns / 1e6);
    return d.code;
}
