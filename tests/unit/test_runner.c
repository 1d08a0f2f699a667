#include "unit.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/path.h"
#include "wire/frame.h"
#include "wire/msg.h"
#include "wire/rules.h"
#include "wire/tool.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The built cordon-runner, started plainly, driven as the daemon does. */
struct runner {
    pid_t pid;
    int control;
    struct frame_reader in;
    uint32_t next_id;
};

struct command {
    int channel, out; /* out: stdout and stderr together */
    struct frame_reader in;
    bool is_started, is_failed, has_exited, is_gone, is_closed;
    bool is_signaled;
    uint32_t pid, code, failed_errno;
    uint8_t failed_stage;
    uint64_t cpu_us, max_rss;
};

static const char *program(void)
{
    static char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 20);
    assert_true(n > 0);
    path[n] = '\0';
    strcpy(strrchr(path, '/') + 1, "cordon-runner");
    return path;
}

static void send_frame(int fd, uint8_t kind, const struct pack *p, const int *fds, size_t n)
{
    struct str out = {0};
    assert_int_equal(p->r, 0);
    assert_int_equal(frame_put(&out, kind, p->out.data, p->out.len), 0);
    for (size_t at = 0; at < out.len;) {
        ssize_t sent = fd_send(fd, out.data + at, out.len - at, fds, at ? 0 : n);
        assert_true(sent > 0);
        at += (size_t)sent;
    }
    str_done(&out);
}

static bool wait_readable(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, ms) > 0;
}

/* The next frame on the control socket. */
static struct frame next_frame(struct runner *r)
{
    struct frame f;
    char buf[65536];
    int fds[FDS_PER_MESSAGE], got;
    size_t n_fds;
    while ((got = frame_next(&r->in, &f)) == 0) {
        assert_true(wait_readable(r->control, 20000));
        ssize_t n = fd_recv(r->control, buf, sizeof(buf), fds, &n_fds);
        assert_true(n > 0);
        for (size_t i = 0; i < n_fds; i++)
            close(fds[i]);
        assert_int_equal(frame_feed(&r->in, buf, (size_t)n), 0);
    }
    assert_int_equal(got, 1);
    return f;
}

static int runner_start(void **state)
{
    static struct runner r;
    static char *const env[] = {NULL};
    memset(&r, 0, sizeof(r));
    int pair[2];
    if (fd_pair(pair) < 0)
        return -1;
    char *argv[] = {"cordon-runner", "plain", NULL};
    int fds[] = {-1, -1, STDERR_FILENO, pair[1]};
    struct spawn sp = {.file = program(), .argv = argv, .envp = env, .fds = fds, .n_fds = 4};
    r.pid = fd_spawn(&sp);
    close(pair[1]);
    r.control = pair[0];
    struct rules rules = {0};
    struct pack p = {0};
    rules_put(&p, &rules);
    send_frame(r.control, M_LOCKDOWN, &p, NULL, 0);
    pack_done(&p);
    struct frame f = next_frame(&r);
    struct unpack u = unpack_from(f.payload, f.len);
    (void)unpack_u32(&u);
    char *failure = unpack_str(&u, 1000);
    assert_int_equal(f.kind, M_READY);
    assert_string_equal(failure, "");
    free(failure);
    *state = &r;
    return r.pid > 0 ? 0 : -1;
}

static int runner_stop(void **state)
{
    struct runner *r = *state;
    int status;
    fd_close(r->control);
    assert_int_equal(waitpid(r->pid, &status, 0), r->pid);
    assert_int_equal(status, 0);
    frame_reader_done(&r->in);
    return 0;
}

static struct command start_full(struct runner *r, char *const *argv, char *const *env,
                                 const char *cwd)
{
    int pair[2], pipes[2];
    struct pack p = {0};
    size_t n_argv = 0, n_env = 0;
    while (argv[n_argv])
        n_argv++;
    while (env[n_env])
        n_env++;
    assert_int_equal(fd_pair(pair), 0);
    assert_int_equal(fd_pipe(pipes), 0);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int fds[] = {null, pipes[1], pipes[1], pair[1]};
    pack_u32(&p, r->next_id++);
    pack_u32(&p, START_STDIN_NULL);
    pack_strv(&p, argv, n_argv);
    pack_strv(&p, env, n_env);
    pack_str(&p, cwd);
    pack_u64(&p, 022);
    send_frame(r->control, M_START, &p, fds, 4);
    pack_done(&p);
    close(null);
    close(pipes[1]);
    close(pair[1]);
    return (struct command){.channel = pair[0], .out = pipes[0]};
}

static struct command start(struct runner *r, const char *shell)
{
    char *argv[] = {"/bin/sh", "-c", (char *)(uintptr_t)shell, NULL};
    char *env[] = {"PATH=/usr/bin:/bin", NULL};
    return start_full(r, argv, env, "/tmp");
}

static void take_frame(struct command *c, const struct frame *f)
{
    struct unpack u = unpack_from(f->payload, f->len);
    assert_int_equal(msg_fds(f, 0), 0);
    switch (f->kind) {
    case M_CMD_STARTED:
        c->is_started = true;
        c->pid = unpack_u32(&u);
        break;
    case M_CMD_FAILED:
        c->is_failed = true;
        c->failed_stage = unpack_u8(&u);
        c->failed_errno = unpack_u32(&u);
        break;
    case M_CMD_EXIT:
        c->has_exited = true;
        c->is_signaled = unpack_u8(&u);
        c->code = unpack_u32(&u);
        c->cpu_us = unpack_u64(&u);
        c->max_rss = unpack_u64(&u);
        free(unpack_str(&u, 4096));
        break;
    case M_CMD_GONE:
        c->is_gone = true;
        break;
    default:
        fail_msg("kind %d", f->kind);
    }
    assert_int_equal(unpack_end(&u), 0);
}

/* Reads the channel once. */
static void listen_once(struct command *c, int ms)
{
    char buf[4096];
    struct frame f;
    if (c->is_closed || !wait_readable(c->channel, ms))
        return;
    ssize_t n = read(c->channel, buf, sizeof(buf));
    if (n <= 0) {
        c->is_closed = true;
        return;
    }
    assert_int_equal(frame_feed(&c->in, buf, (size_t)n), 0);
    while (frame_next(&c->in, &f) == 1)
        take_frame(c, &f);
}

static void wait_exit(struct command *c)
{
    while (!c->has_exited && !c->is_closed)
        listen_once(c, 20000);
}

static void wait_gone(struct command *c)
{
    while (!c->is_closed)
        listen_once(c, 20000);
}

static char *output(const struct command *c)
{
    static char buf[65536];
    ssize_t n = fd_read_all(c->out, buf, sizeof(buf) - 1);
    assert_true(n >= 0);
    buf[n] = '\0';
    return buf;
}

static void command_done(struct command *c)
{
    fd_close(c->channel);
    fd_close(c->out);
    frame_reader_done(&c->in);
}

static void signal_command(struct command *c, uint32_t signo, int to)
{
    struct pack p = {0};
    pack_u32(&p, signo);
    pack_u8(&p, (uint8_t)to);
    send_frame(c->channel, M_CMD_SIGNAL, &p, NULL, 0);
    pack_done(&p);
}

/* KILL to whatever is left, if anything is. */
static void wait_gone_after_kill(struct command *c)
{
    struct pack p = {0};
    struct str out = {0};
    pack_u32(&p, SIGKILL);
    pack_u8(&p, SIGNAL_TO_TREE);
    assert_int_equal(frame_put(&out, M_CMD_SIGNAL, p.out.data, p.out.len), 0);
    (void)send(c->channel, out.data, out.len, MSG_NOSIGNAL);
    pack_done(&p);
    str_done(&out);
    wait_gone(c);
    assert_true(c->is_gone);
}

static bool is_alive(pid_t pid)
{
    return kill(pid, 0) == 0;
}

static bool goes_away(pid_t pid)
{
    for (int i = 0; i < 500 && is_alive(pid); i++)
        usleep(10000);
    return !is_alive(pid);
}

/* Children of PID by /proc, zombies too. */
static unsigned count_children(pid_t pid)
{
    char path[64], text[65536];
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd_read_all(fd, text, sizeof(text) - 1);
    close(fd);
    unsigned words = 0;
    for (ssize_t i = 0; i < n; i++)
        words += text[i] == ' ';
    return words;
}

static void tells_how_it_ended(void **state)
{
    struct runner *r = *state;
    static const struct {
        const char *shell;
        bool is_signaled;
        uint32_t code;
    } rows[] = {{"exit 0", false, 0},        {"exit 1", false, 1},
                {"exit 255", false, 255},    {"exit 127", false, 127},
                {"kill -9 $$", true, 9},     {"kill -SEGV $$", true, 11},
                {"kill -TERM $$", true, 15}, {"kill -PIPE $$", true, 13}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct command c = start(r, rows[i].shell);
        wait_gone(&c);
        assert_true(c.is_started && c.has_exited && c.is_gone);
        assert_int_equal(c.is_signaled, rows[i].is_signaled);
        assert_int_equal(c.code, rows[i].code);
        assert_true(c.max_rss > 100000);
        command_done(&c);
    }
    struct command c = start(r, "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done");
    wait_gone(&c);
    assert_true(c.cpu_us > 1000);
    command_done(&c);
}

static void tells_why_it_never_ran(void **state)
{
    struct runner *r = *state;
    char *env[] = {"PATH=/usr/bin:/bin", NULL};
    static const struct {
        const char *file, *cwd;
        uint8_t stage;
        uint32_t error;
    } rows[] = {{"/no/such/file", "/tmp", START_AT_EXEC, ENOENT},
                {"no-such-program", "/tmp", START_AT_EXEC, ENOENT},
                {"/etc/passwd", "/tmp", START_AT_EXEC, EACCES},
                {"/tmp", "/tmp", START_AT_EXEC, EACCES},
                {"", "/tmp", START_AT_EXEC, ENOENT},
                {"true", "/no/such/folder", START_AT_CWD, ENOENT},
                {"true", "/etc/passwd", START_AT_CWD, ENOTDIR}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *argv[] = {(char *)(uintptr_t)rows[i].file, NULL};
        struct command c = start_full(r, argv, env, rows[i].cwd);
        wait_gone(&c);
        assert_true(c.is_failed);
        assert_false(c.has_exited);
        assert_int_equal(c.failed_stage, rows[i].stage);
        assert_int_equal(c.failed_errno, rows[i].error);
        command_done(&c);
    }
}

static void gives_exactly_what_was_sent(void **state)
{
    struct runner *r = *state;
    char *argv[] = {"/bin/sh",
                    "-c",
                    "cd /proc/self/fd; echo *; readlink 0; echo \"$1|$0\"; env | sort; umask;"
                    "kill -l >/dev/null; grep -E 'SigBlk|SigIgn' /proc/self/status; ps -o "
                    "pid=,pgid=,sid= -p $$",
                    "a b",
                    "\"q\"\n$x",
                    NULL};
    char *env[] = {"A=b c", "PATH=/usr/bin:/bin", "E=", NULL};
    struct command c = start_full(r, argv, env, "/");
    wait_gone(&c);
    char *text = output(&c);
    assert_true(str_starts(text, "0 1 2\n/dev/null\n") || str_starts(text, "0 1 2 3\n/dev/null\n"));
    assert_non_null(strstr(text, "\"q\"\n$x|a b\nA=b c\nE=\n"));
    assert_non_null(strstr(text, "PATH=/usr/bin:/bin\n"));
    assert_null(strstr(text, "HOME="));
    assert_non_null(strstr(text, "0022\n"));
    if (!strstr(text, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"))
        fail_msg("%s", text);
    assert_non_null(strstr(text, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"));
    int pid = 0, group = 0, session = 0; /* a session of its own */
    const char *last = strstr(text, "SigIgn");
    last = strchr(last, '\n') + 1;
    if (*last) {
        assert_int_equal(sscanf(last, "%d %d %d", &pid, &group, &session), 3);
        assert_int_equal(pid, group);
        assert_int_equal(pid, session);
        assert_int_equal(pid, (int)c.pid);
    }
    command_done(&c);
}

static void looks_up_its_own_path(void **state)
{
    struct runner *r = *state;
    char dir[] = "/tmp/cordon-test-XXXXXX", file[64], path[128];
    assert_non_null(mkdtemp(dir));
    snprintf(file, sizeof(file), "%s/prog", dir);
    snprintf(path, sizeof(path), "PATH=/no/such:/etc/passwd:%s:/usr/bin:/bin", dir);
    /* a file of that name that may not be run is passed over, the next entry counts */
    assert_int_equal(fd_write_file(AT_FDCWD, file, "x", 1, 0644), 0);
    char *argv[] = {"prog", NULL}, *env[] = {path, NULL};
    struct command c = start_full(r, argv, env, "/tmp");
    wait_gone(&c);
    assert_true(c.is_failed);
    assert_int_equal(c.failed_errno, EACCES);
    command_done(&c);
    assert_int_equal(fd_write_file(AT_FDCWD, file, "#!/bin/sh\nexit 7\n", 17, 0755), 0);
    c = start_full(r, argv, env, "/tmp");
    wait_gone(&c);
    assert_int_equal(c.code, 7);
    command_done(&c);
    assert_int_equal(path_remove_tree(AT_FDCWD, dir), 0);
}

static void signals_leader_group_and_tree(void **state)
{
    struct runner *r = *state;
    struct command c = start(r, "sleep 100 & trap 'kill $!; exit 3' TERM; echo up; wait");
    char buf[8];
    assert_int_equal(read(c.out, buf, 3), 3);
    signal_command(&c, SIGTERM, SIGNAL_TO_LEADER);
    wait_gone(&c);
    assert_false(c.is_signaled);
    assert_int_equal(c.code, 3);
    command_done(&c);
    c = start(r, "sleep 100 & echo up; wait");
    assert_int_equal(read(c.out, buf, 3), 3);
    signal_command(&c, SIGINT, SIGNAL_TO_GROUP);
    wait_exit(&c);
    assert_true(c.is_signaled);
    assert_int_equal(c.code, SIGINT);
    wait_gone_after_kill(&c); /* a shell has its background jobs ignore INT */
    command_done(&c);
}

/* The grandchild left the group and the session, ignores TERM, and is found all the same. */
static void kills_what_left_the_session(void **state)
{
    struct runner *r = *state;
    struct command c = start(r, "setsid sh -c 'trap \"\" TERM; setsid sleep 1000 & echo $!; "
                                "while :; do sleep 1; done' & sleep 0.1; wait");
    char buf[32] = "";
    assert_true(read(c.out, buf, sizeof(buf) - 1) > 0);
    pid_t deep = atoi(buf);
    assert_true(is_alive(deep));
    signal_command(&c, SIGTERM, SIGNAL_TO_TREE);
    wait_exit(&c);
    assert_true(c.is_signaled);
    signal_command(&c, SIGKILL, SIGNAL_TO_TREE);
    wait_gone(&c);
    assert_true(c.is_gone);
    assert_false(is_alive(deep));
    command_done(&c);
}

static void a_server_outlives_its_call(void **state)
{
    struct runner *r = *state;
    struct command c = start(r, "sleep 1000 & echo $!");
    wait_exit(&c);
    assert_int_equal(c.code, 0);
    assert_false(c.is_gone);
    char buf[32] = "";
    assert_true(read(c.out, buf, sizeof(buf) - 1) > 0);
    pid_t server = atoi(buf);
    usleep(50000);
    listen_once(&c, 0);
    assert_false(c.is_gone);
    assert_true(is_alive(server));
    struct command other = start(r, "exit 4"); /* and nobody waits for it */
    wait_gone(&other);
    assert_int_equal(other.code, 4);
    command_done(&other);
    close(c.channel); /* the daemon lets go: all of it ends */
    c.channel = -1;
    assert_true(goes_away(server));
    command_done(&c);
}

static void a_fork_bomb_ends(void **state)
{
    struct runner *r = *state;
    struct command c = start(r, "ulimit -u 3000; b() { sleep 0.01; b & b & }; b; sleep 100");
    usleep(300000);
    signal_command(&c, SIGKILL, SIGNAL_TO_TREE);
    wait_gone(&c);
    assert_true(c.is_gone);
    command_done(&c);
}

static void ends_with_the_control_socket(void **state)
{
    struct runner *r = *state;
    struct command c = start(r, "setsid sleep 1000 & echo $!; wait");
    char buf[32] = "";
    assert_true(read(c.out, buf, sizeof(buf) - 1) > 0);
    assert_int_equal(runner_stop(state), 0);
    pid_t deep = atoi(buf);
    command_done(&c);
    assert_true(goes_away(deep));
    assert_int_equal(runner_start(state), 0);
    (void)r;
}

static void term_all_reaches_everything(void **state)
{
    struct runner *r = *state;
    struct command c = start(r, "setsid sh -c 'sleep 1000 & echo up; wait' & wait");
    struct command d = start(r, "sleep 1000");
    char buf[8];
    struct pack none = {0};
    assert_int_equal(read(c.out, buf, 3), 3);
    while (!d.is_started)
        listen_once(&d, 1000);
    send_frame(r->control, M_TERM_ALL, &none, NULL, 0);
    wait_gone(&c);
    wait_gone(&d);
    assert_true(c.is_gone && d.is_gone);
    assert_true(d.is_signaled);
    command_done(&c);
    command_done(&d);
}

static void many_leave_nothing(void **state)
{
    struct runner *r = *state;
    int rounds = getenv("CORDON_LONG") ? 250 : 60;
    for (int i = 0; i < rounds; i++) {
        struct command c[4];
        for (int k = 0; k < 4; k++)
            c[k] = start(r, k % 2 ? "sleep 0.001 & exit 1" : "true");
        for (int k = 0; k < 4; k++) {
            wait_gone(&c[k]);
            assert_true(c[k].is_gone);
            assert_int_equal(c[k].code, k % 2);
            command_done(&c[k]);
        }
    }
    for (int i = 0; i < 200 && count_children(r->pid) > 0; i++)
        usleep(10000);
    assert_int_equal(count_children(r->pid), 0);
    char path[64];
    unsigned fds = 0;
    snprintf(path, sizeof(path), "/proc/%d/fd", r->pid);
    DIR *dir = opendir(path); /* not dumpable: only root may look */
    while (dir && readdir(dir))
        fds++;
    if (dir)
        closedir(dir);
    assert_true(fds < 12);
}

static void send_tool(struct runner *r, const struct tool_request *rq)
{
    struct pack p = {0};
    tool_request_put(&p, rq);
    send_frame(r->control, M_TOOL, &p, NULL, 0);
    pack_done(&p);
}

static void nothing_waits_behind_a_search(void **state)
{
    struct runner *r = *state;
    struct tool_request rq = {.id = 900,
                              .op = TOOL_SEARCH,
                              .path = "/usr",
                              .text = "((a*)*(b*)*){1,40}#%#%#", /* slow, and nowhere */
                              .text_len = 23,
                              .flags = TOOL_REGEX,
                              .m = 5000};
    struct tool_request quick = {.id = 901, .op = TOOL_STAT, .path = "/tmp"};
    uint64_t before = clock_now_ms();
    send_tool(r, &rq);
    struct command c = start(r, "exit 5");
    send_tool(r, &quick);
    struct frame f = next_frame(r);
    struct unpack u = unpack_from(f.payload, f.len);
    assert_int_equal(unpack_u32(&u), 901);
    assert_int_equal(unpack_u32(&u), 0);
    wait_gone(&c);
    assert_int_equal(c.code, 5);
    assert_true(clock_now_ms() - before < 4000); /* the search is still at it */
    assert_false(wait_readable(r->control, 0));
    f = next_frame(r);
    u = unpack_from(f.payload, f.len);
    assert_int_equal(unpack_u32(&u), 900);
    command_done(&c);
}

static uint32_t probe(struct runner *r, int kind, const char *path, const char *text,
                      char ret_text[static 512])
{
    struct pack p = {0};
    pack_u32(&p, 77);
    pack_u8(&p, (uint8_t)kind);
    pack_str(&p, path);
    pack_u32(&p, 0);
    pack_str(&p, text);
    send_frame(r->control, M_PROBE, &p, NULL, 0);
    pack_done(&p);
    struct frame f = next_frame(r);
    struct unpack u = unpack_from(f.payload, f.len);
    assert_int_equal(f.kind, M_PROBED);
    assert_int_equal(unpack_u32(&u), 77);
    uint32_t error = unpack_u32(&u);
    char *got = unpack_str(&u, 16384);
    assert_int_equal(unpack_end(&u), 0);
    snprintf(ret_text, 512, "%s", got);
    free(got);
    return error;
}

/* Bare, the probes succeed: what the proof expects to fail is shown to be possible. */
static void probes_work_where_nothing_forbids(void **state)
{
    struct runner *r = *state;
    char text[512], name[64];
    char canary[64];
    snprintf(canary, sizeof(canary), "/tmp/cordon-test-canary-%d", (int)getpid());
    assert_int_equal(fd_write_file(AT_FDCWD, canary, "canary", 6, 0600), 0);
    assert_int_equal(probe(r, PROBE_WRITE_DIR, "/tmp", "", text), 0);
    assert_int_equal(probe(r, PROBE_READ_DIR, "/usr", "", text), 0);
    assert_true(atoi(text) > 3);
    assert_int_equal(probe(r, PROBE_READ_FILE, canary, "", text), 0);
    assert_string_equal(text, "canary");
    assert_int_equal(probe(r, PROBE_READ_FILE, "/tmp/cordon-no-such", "", text), ENOENT);
    assert_int_equal(probe(r, PROBE_LINK_FILE, canary, "", text), 0);
    assert_int_equal(probe(r, PROBE_STAT, "/", "", text), 0);
    struct stat st;
    assert_int_equal(stat("/", &st), 0);
    snprintf(name, sizeof(name), "%llu %llu ", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino);
    assert_true(str_starts(text, name));
    assert_int_equal(probe(r, PROBE_FDS, "", "", text), 0);
    assert_string_equal(text, "");
    assert_int_equal(probe(r, PROBE_PRIVILEGES, "", "", text), 0);
    assert_non_null(strstr(text, "cap="));
    assert_non_null(strstr(text, "dumpable=0"));
    assert_int_equal(probe(r, PROBE_LIMITS, "", "", text), 0);
    assert_non_null(strstr(text, "nofile="));
    assert_non_null(strstr(text, "pids=0"));
    (void)probe(r, PROBE_PROC, canary, "", text);
    snprintf(name, sizeof(name), "%d", r->pid);
    assert_int_equal(probe(r, PROBE_READ_ONLY, "/dev/shm", "", text), EACCES);
    assert_int_equal(probe(r, PROBE_READ_ONLY, "/no/such", "", text), ENOENT);
    assert_int_equal(probe(r, PROBE_WRITE_FILE, "/dev/null", "", text), 0);
    assert_int_equal(probe(r, PROBE_WRITE_FILE, "/dev", "", text), EISDIR);
    assert_int_equal(probe(r, PROBE_TCP, "127.0.0.1", "", text), ECONNREFUSED);
    assert_int_equal(probe(r, PROBE_TCP, "not an address", "", text), EINVAL);
    assert_int_equal(probe(r, 200, "", "", text), ENOSYS);
    assert_int_equal(unlink(canary), 0);
}

static int run_raw(const void *bytes, size_t n)
{
    char *argv[] = {"cordon-runner", "plain", NULL}, *env[] = {NULL};
    int pair[2], status;
    assert_int_equal(fd_pair(pair), 0);
    int fds[] = {-1, -1, STDERR_FILENO, pair[1]};
    struct spawn sp = {.file = program(), .argv = argv, .envp = env, .fds = fds, .n_fds = 4};
    pid_t pid = fd_spawn(&sp);
    assert_true(pid > 0);
    close(pair[1]);
    assert_int_equal(send(pair[0], bytes, n, 0), (ssize_t)n);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    close(pair[0]);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void nonsense_ends_it(void **state)
{
    (void)state;
    assert_int_equal(run_raw("\0\0\0\0\0", 5), CHILD_PROTOCOL);           /* no kind */
    assert_int_equal(run_raw("\xff\xff\xff\xff\x02", 5), CHILD_PROTOCOL); /* too long */
    assert_int_equal(run_raw("\1\0\0\0\6", 5), CHILD_PROTOCOL);           /* before the lock-down */
    assert_int_equal(run_raw("\2\0\0\0\2x", 6), CHILD_PROTOCOL);          /* rules cut short */
    assert_int_equal(run_raw("\1\0\0\0\x63", 5), CHILD_PROTOCOL);         /* not for it */
}

static double seconds(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static double bare_round(void)
{
    char *argv[] = {"/bin/true", NULL}, *env[] = {NULL};
    pid_t pid;
    double before = seconds();
    assert_int_equal(posix_spawn(&pid, argv[0], NULL, NULL, argv, env), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    return seconds() - before;
}

static double runner_round(struct runner *r)
{
    char *argv[] = {"/bin/true", NULL}, *env[] = {NULL};
    double before = seconds();
    struct command c = start_full(r, argv, env, "/");
    wait_exit(&c);
    double took = seconds() - before;
    wait_gone(&c);
    command_done(&c);
    return took;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Printed, and held to a limit far above what it is on a quiet machine (about 1.5). */
static void a_warm_command_is_quick(void **state)
{
    enum { ROUNDS = 100 };
    static double bare[ROUNDS], through[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        bare[i] = bare_round();
        through[i] = runner_round(*state);
    }
    qsort(bare, ROUNDS, sizeof(double), compare);
    qsort(through, ROUNDS, sizeof(double), compare);
    double ratio = through[ROUNDS / 2] / bare[ROUNDS / 2];
    printf("true: bare %.3f ms, through the runner %.3f ms, ratio %.2f (medians of %d)\n",
           bare[ROUNDS / 2] * 1e3, through[ROUNDS / 2] * 1e3, ratio, ROUNDS);
#ifndef __SANITIZE_ADDRESS__
    assert_true(ratio < 5);
#endif
}

#define WITH_RUNNER(f) cmocka_unit_test_setup_teardown(f, runner_start, runner_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {WITH_RUNNER(tells_how_it_ended),
                                       WITH_RUNNER(tells_why_it_never_ran),
                                       WITH_RUNNER(gives_exactly_what_was_sent),
                                       WITH_RUNNER(looks_up_its_own_path),
                                       WITH_RUNNER(signals_leader_group_and_tree),
                                       WITH_RUNNER(kills_what_left_the_session),
                                       WITH_RUNNER(a_server_outlives_its_call),
                                       WITH_RUNNER(a_fork_bomb_ends),
                                       WITH_RUNNER(ends_with_the_control_socket),
                                       WITH_RUNNER(term_all_reaches_everything),
                                       WITH_RUNNER(many_leave_nothing),
                                       WITH_RUNNER(nothing_waits_behind_a_search),
                                       WITH_RUNNER(probes_work_where_nothing_forbids),
                                       cmocka_unit_test(nonsense_ends_it),
                                       WITH_RUNNER(a_warm_command_is_quick)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
