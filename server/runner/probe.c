/* Runs in: runner. Reads: trusted (the daemon's probes), hostile (answers from the network). May
 * block: at most 2 s. */
#include "runner/probe.h"
#include "base/fd.h"
#include "base/mem.h"
#include "runner/probe_parts.h"
#include "wire/frame.h"
#include "wire/msg.h"
#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TEXT_MAX ((size_t)4 << 10)

/* ---- Files ------------------------------------------------------------------------------------
 */
static int probe_write_dir(struct probe *p)
{
    CLEANUP(fd_done) int fd = open(p->path, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0) {
        (void)str_puts(&p->answer, "tmpfile");
        return 0;
    }
    if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)
        return -errno;
    /* A file system without unnamed files: nothing is made, the mount and the mode tell. */
    (void)str_puts(&p->answer, "access");
    return access(p->path, W_OK) < 0 ? -errno : 0;
}

static int probe_read_dir(struct probe *p)
{
    DIR *dir = opendir(p->path);
    if (!dir)
        return -errno;
    unsigned n = 0;
    errno = 0;
    const struct dirent *e;
    while ((e = readdir(dir)))
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    int r = -errno;
    (void)closedir(dir);
    (void)str_printf(&p->answer, "%u", n);
    return r;
}

static int read_start(const char *path, struct str *ret)
{
    CLEANUP(fd_done) int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    char buf[64];
    ssize_t n = read(fd, buf, sizeof(buf));
    if (n < 0)
        return -errno;
    return str_put_escaped(ret, buf, (size_t)n);
}

static int probe_read_file(struct probe *p)
{
    return read_start(p->path, &p->answer);
}

static int probe_link_file(struct probe *p)
{
    char name[PATH_MAX];
    const char *dir = getenv("TMPDIR");
    (void)snprintf(name, sizeof(name), "%s/.cordon-probe-%d", dir ? dir : "/tmp", (int)getpid());
    if (linkat(AT_FDCWD, p->path, AT_FDCWD, name, 0) < 0)
        return -errno;
    (void)unlink(name);
    return 0;
}

static int probe_stat(struct probe *p)
{
    struct stat st;
    if (lstat(p->path, &st) < 0)
        return -errno;
    (void)str_printf(&p->answer, "%llu %llu %o", (unsigned long long)st.st_dev,
                     (unsigned long long)st.st_ino, st.st_mode);
    return 0;
}

/* The mount's own flag: what its mode refuses one user it may allow another. */
static int probe_read_only(struct probe *p)
{
    struct statvfs v;
    if (statvfs(p->path, &v) < 0)
        return -errno;
    return v.f_flag & ST_RDONLY ? 0 : -EACCES;
}

static int probe_write_file(struct probe *p)
{
    CLEANUP(fd_done) int fd = open(p->path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    return fd < 0 ? -errno : 0;
}

/* ---- Network ----------------------------------------------------------------------------------
 */
int probe_wait(int fd, short events)
{
    struct pollfd pfd = {.fd = fd, .events = events};
    int n;
    do
        n = poll(&pfd, 1, PROBE_NETWORK_MS);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n == 0 ? -ETIMEDOUT : 0;
}

int probe_connect(int fd, const struct sockaddr *sa, socklen_t n)
{
    if (connect(fd, sa, n) == 0)
        return 0;
    if (errno != EINPROGRESS && errno != EAGAIN)
        return -errno;
    int r = probe_wait(fd, POLLOUT), failed = 0;
    socklen_t len = sizeof(failed);
    if (r == 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &len) < 0)
        return -errno;
    return r < 0 ? r : -failed;
}

int probe_address(const struct probe *p, struct sockaddr_storage *ret, socklen_t *ret_n)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)ret;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)ret;
    memset(ret, 0, sizeof(*ret));
    if (inet_pton(AF_INET, p->path, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)p->port);
        *ret_n = sizeof(*v4);
        return 0;
    }
    if (inet_pton(AF_INET6, p->path, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)p->port);
        *ret_n = sizeof(*v6);
        return 0;
    }
    return -EINVAL;
}

/* A connected socket of TYPE, or a negative errno. */
static int dial(const struct probe *p, int type)
{
    struct sockaddr_storage sa;
    socklen_t n;
    int r = probe_address(p, &sa, &n);
    if (r < 0)
        return r;
    int fd = socket(sa.ss_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    r = probe_connect(fd, (const struct sockaddr *)&sa, n);
    if (r == 0)
        return fd;
    fd_close(fd);
    return r;
}

static int probe_tcp(struct probe *p)
{
    CLEANUP(fd_done) int fd = dial(p, SOCK_STREAM);
    return fd < 0 ? fd : 0;
}

static int probe_udp(struct probe *p)
{
    CLEANUP(fd_done) int fd = dial(p, SOCK_DGRAM);
    if (fd < 0)
        return fd;
    if (send(fd, "cordon", 6, MSG_NOSIGNAL) < 0)
        return -errno;
    /* A refusal by ICMP comes a moment later: within the own machine, at once. */
    struct pollfd pfd = {.fd = fd, .events = POLLIN};
    if (poll(&pfd, 1, 50) > 0 && (pfd.revents & POLLERR)) {
        int failed = 0;
        socklen_t len = sizeof(failed);
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &len) == 0 && failed != 0)
            return -failed;
    }
    return 0;
}

static int probe_unix(struct probe *p)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    if (strlen(p->path) >= sizeof(sa.sun_path))
        return -ENAMETOOLONG;
    strcpy(sa.sun_path, p->path);
    CLEANUP(fd_done) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    return probe_connect(fd, (const struct sockaddr *)&sa, sizeof(sa));
}

/* The status line of the answer to one CONNECT (RFC 9110, 9.3.6). */
static int probe_proxy(struct probe *p)
{
    CLEANUP(fd_done) int fd = dial(p, SOCK_STREAM);
    if (fd < 0)
        return fd;
    CLEANUP(str_done) struct str head = {0};
    int r = str_printf(&head, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", p->text, p->text);
    if (r == 0 && send(fd, head.data, head.len, MSG_NOSIGNAL) != (ssize_t)head.len)
        r = -EIO;
    char line[512];
    size_t n = 0;
    while (r == 0 && n < sizeof(line) && !memchr(line, '\n', n)) {
        r = probe_wait(fd, POLLIN);
        ssize_t got = r < 0 ? 0 : recv(fd, line + n, sizeof(line) - n, 0);
        if (r == 0 && got < 0 && errno != EAGAIN)
            r = -errno;
        else if (r == 0 && got == 0)
            r = -ECONNRESET;
        n += got > 0 ? (size_t)got : 0;
    }
    const char *end = memchr(line, '\n', n);
    size_t len = end ? (size_t)(end - line) : n;
    while (len > 0 && isspace((unsigned char)line[len - 1]))
        len--;
    (void)str_put_escaped(&p->answer, line, len);
    return r;
}

/* ---- The process ------------------------------------------------------------------------------
 */
static int probe_fds(struct probe *p)
{
    DIR *dir = opendir("/proc/self/fd");
    if (!dir)
        return -errno;
    int r = 0;
    const struct dirent *e;
    while ((e = readdir(dir))) {
        char target[256];
        int fd = isdigit((unsigned char)e->d_name[0]) ? atoi(e->d_name) : dirfd(dir);
        if (fd == dirfd(dir) || runner_owns_fd(fd))
            continue;
        ssize_t n = readlinkat(dirfd(dir), e->d_name, target, sizeof(target));
        (void)str_printf(&p->answer, "%s%d=", p->answer.len ? " " : "", fd);
        (void)str_put_escaped(&p->answer, target, n < 0 ? 0 : (size_t)n);
        r = -EBADF;
    }
    (void)closedir(dir);
    return r;
}

/* The value of a line "NAME:\tvalue" of /proc/self/status (proc(5)). */
static void put_status(struct str *out, const char *status, const char *name, const char *label)
{
    CLEANUP(str_done) struct str key = {0};
    (void)str_printf(&key, "\n%s:", name);
    const char *at = strstr(status, str_c(&key));
    const char *value = at ? at + key.len + strspn(at + key.len, " \t") : "?";
    (void)str_printf(out, "%s%s=%.*s", out->len ? " " : "", label, (int)strcspn(value, "\n"),
                     value);
}

/* cap: what is permitted, effective, inheritable and ambient taken together; the bounding set apart
 * (it gives nothing while no_new_privs holds). */
static int probe_privileges(struct probe *p)
{
    static const char *const sets[] = {"CapInh", "CapPrm", "CapEff", "CapAmb"};
    CLEANUP(freep) char *status = NULL;
    int r = fd_read_file(AT_FDCWD, "/proc/self/status", (size_t)64 << 10, &status, NULL);
    if (r < 0)
        return r;
    unsigned long long all = 0;
    for (size_t i = 0; i < ARRAY_LEN(sets); i++) {
        CLEANUP(str_done) struct str one = {0};
        put_status(&one, status, sets[i], "c");
        all |= strtoull(str_c(&one) + 2, NULL, 16);
    }
    (void)str_printf(&p->answer, "cap=%016llx", all);
    put_status(&p->answer, status, "NoNewPrivs", "nnp");
    put_status(&p->answer, status, "Seccomp", "seccomp");
    put_status(&p->answer, status, "CapBnd", "bnd");
    (void)str_printf(&p->answer, " dumpable=%d", prctl(PR_GET_DUMPABLE, 0, 0, 0, 0));
    return 0;
}

/* Runs TRY in a child that exits with its errno; *ret_signal is the signal that ended it, or 0. */
static int in_child(int (*try)(void), int *ret_signal)
{
    sigset_t only, before;
    sigemptyset(&only);
    sigaddset(&only, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &only, &before); /* the runner's reaper must not take it */
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit none = {0, 0};
        (void)setrlimit(RLIMIT_CORE, &none);
        _exit(try());
    }
    int status = 0, r = pid < 0 ? -errno : 0;
    while (r == 0 && waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            r = -errno;
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    *ret_signal = r == 0 && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return r < 0 ? r : *ret_signal ? -EPERM : -WEXITSTATUS(status);
}

static int try_user_namespace(void)
{
    return unshare(CLONE_NEWUSER) < 0 ? errno : 0;
}

static int probe_userns(struct probe *p)
{
    int signal;
    int r = in_child(try_user_namespace, &signal);
    if (signal)
        (void)str_printf(&p->answer, "signal=%d", signal);
    return r;
}

/* The same number as another ABI of the machine would call it. A kernel without that ABI says
 * ENOSYS, the filter kills. */
static int try_foreign_abi(void)
{
#if defined(__x86_64__)
#define X32_SYSCALL_BIT 0x40000000L
    return syscall(X32_SYSCALL_BIT | SYS_getpid) < 0 ? errno : 0;
#else
    return ENOSYS; /* no second ABI that 64-bit code could call by number */
#endif
}

static int probe_foreign_abi(struct probe *p)
{
    int signal;
    int r = in_child(try_foreign_abi, &signal);
    if (signal)
        (void)str_printf(&p->answer, "signal=%d", signal);
    else
        (void)str_printf(&p->answer, "errno=%d", -r);
    return r;
}

/* Can FILE be read through the root link of this process? */
static bool reads_by_root(const char *pid, const char *file)
{
    CLEANUP(str_done) struct str path = {0}, start = {0};
    if (str_printf(&path, "/proc/%s/root%s", pid, file) < 0)
        return false;
    return read_start(path.data, &start) == 0;
}

static int probe_proc(struct probe *p)
{
    DIR *dir = opendir("/proc");
    if (!dir)
        return -errno;
    int r = -ENOENT;
    const struct dirent *e;
    while ((e = readdir(dir))) {
        if (!isdigit((unsigned char)e->d_name[0]))
            continue;
        if (p->answer.len < TEXT_MAX)
            (void)str_printf(&p->answer, "%s%s", p->answer.len ? " " : "", e->d_name);
        if (reads_by_root(e->d_name, p->path))
            r = 0;
    }
    (void)closedir(dir);
    return r;
}

static void put_limit(struct str *out, const char *label, int resource)
{
    struct rlimit limit;
    (void)str_printf(out, "%s%s=", out->len ? " " : "", label);
    if (getrlimit(resource, &limit) < 0)
        (void)str_puts(out, "?");
    else if (limit.rlim_cur == RLIM_INFINITY)
        (void)str_puts(out, "none");
    else
        (void)str_printf(out, "%llu", (unsigned long long)limit.rlim_cur);
}

/* How many tasks the child could make before one was refused; shared, as the child only exits. */
static volatile uint32_t *tasks_made;
static uint32_t tasks_max;

static void *task_wait(void *arg)
{
    (void)pause();
    return arg;
}

static int try_tasks(void)
{
    pthread_attr_t attr;
    pthread_t thread;
    if (pthread_attr_init(&attr) != 0)
        return ENOMEM;
    (void)pthread_attr_setstacksize(&attr, PTHREAD_STACK_MIN);
    while (*tasks_made < tasks_max)
        if (pthread_create(&thread, &attr, task_wait, NULL) != 0)
            return EAGAIN;
        else
            ++*tasks_made;
    return 0;
}

/* The number at which the next task was refused, 0 when PORT of them could be made or none was to
 * be tried. Threads count as processes do (pid_namespaces(7)) and cost least, but 1,000 take 0.1 s:
 * so only when asked. */
static uint32_t find_task_limit(uint32_t max)
{
    int signal, r = 0;
    uint32_t n = 0;
    void *shared = max == 0 ? MAP_FAILED
                            : mmap(NULL, sizeof(*tasks_made), PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 0;
    tasks_made = shared;
    tasks_max = max;
    r = in_child(try_tasks, &signal);
    n = *tasks_made;
    (void)munmap(shared, sizeof(*tasks_made));
    return r == -EAGAIN ? n + 1 : 0;
}

static int probe_limits(struct probe *p)
{
    put_limit(&p->answer, "nofile", RLIMIT_NOFILE);
    put_limit(&p->answer, "nproc", RLIMIT_NPROC);
    (void)str_printf(&p->answer, " pids=%u", find_task_limit(p->port));
    put_limit(&p->answer, "as", RLIMIT_AS);
    put_limit(&p->answer, "core", RLIMIT_CORE);
    return 0;
}

static int (*const probes[])(struct probe *p) = {[PROBE_WRITE_DIR] = probe_write_dir,
                                                 [PROBE_READ_DIR] = probe_read_dir,
                                                 [PROBE_READ_FILE] = probe_read_file,
                                                 [PROBE_LINK_FILE] = probe_link_file,
                                                 [PROBE_STAT] = probe_stat,
                                                 [PROBE_TCP] = probe_tcp,
                                                 [PROBE_UDP] = probe_udp,
                                                 [PROBE_UNIX] = probe_unix,
                                                 [PROBE_PROXY] = probe_proxy,
                                                 [PROBE_FDS] = probe_fds,
                                                 [PROBE_PRIVILEGES] = probe_privileges,
                                                 [PROBE_USERNS] = probe_userns,
                                                 [PROBE_FOREIGN_ABI] = probe_foreign_abi,
                                                 [PROBE_PROC] = probe_proc,
                                                 [PROBE_LIMITS] = probe_limits,
                                                 [PROBE_READ_ONLY] = probe_read_only,
                                                 [PROBE_WRITE_FILE] = probe_write_file,
                                                 [PROBE_NAME] = probe_name,
                                                 [PROBE_END] = probe_end,
                                                 [PROBE_STAYS] = probe_stays};

void probe_call(struct unpack *u, struct str *out)
{
    struct probe p = {.id = unpack_u32(u), .answer = {.max = 2 * TEXT_MAX}};
    p.kind = unpack_u8(u);
    p.path = unpack_str(u, PATH_MAX - 1);
    p.port = unpack_u32(u);
    p.text = unpack_str(u, TEXT_MAX);
    int r = unpack_end(u);
    if (r == 0)
        r = p.kind < ARRAY_LEN(probes) && probes[p.kind] ? probes[p.kind](&p) : -ENOSYS;
    struct pack answer = {0};
    pack_u32(&answer, p.id);
    pack_u32(&answer, r < 0 ? (uint32_t)-r : 0);
    pack_str(&answer, str_c(&p.answer));
    if (answer.r >= 0) /* one that is missing counts as failed */
        (void)frame_put(out, M_PROBED, answer.out.data, answer.out.len);
    pack_done(&answer);
    str_done(&p.answer);
    free(p.path);
    free(p.text);
}
