/* The wall's filter, loaded in children, against its table: every call number, by every ABI. */
#include "unit.h"

#include "base/mem.h"
#include "render/seccomp.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct str wall, egress;

static int render(void **state)
{
    (void)state;
    return seccomp_render_wall(&wall) < 0 || seccomp_render_egress(&egress) < 0;
}

static int done(void **state)
{
    (void)state;
    str_done(&wall);
    str_done(&egress);
    return 0;
}

static void filter_load(struct str *bpf)
{
    const struct sock_fprog program = {(unsigned short)(bpf->len / sizeof(struct sock_filter)),
                                       (struct sock_filter *)(void *)bpf->data};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &program))
        _exit(99);
}

/* How one call ended in a child of its own: errno (0 = it worked), -SIGNAL, or NEVER. */
enum { NEVER = 1000 };
typedef long call_fn(long nr, const long *a);

static long call_native(long nr, const long *a)
{
    return syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* It waits for something: not merely for the processor of a busy machine. */
static bool is_asleep(pid_t child)
{
    char path[40], text[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", child);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = '\0';
    const char *state = strrchr(text, ')');
    return state && state[1] && state[2] == 'S';
}

static int outcome_of(struct str *bpf, call_fn *fn, long nr, const long *args)
{
    int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    *shared = NEVER; /* exit, pause and their kind never come back */
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setsid();
        for (int s = 1; s < 32; s++) /* cmocka's handlers would run the tests again in here */
            signal(s, SIG_DFL);
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); /* bare too: some calls ask for it */
        if (bpf)
            filter_load(bpf);
        shared[1] = 1;
        long r = fn(nr, args);
        int e = r < 0 ? errno : 0;
        *shared = e;
        _exit(0);
    }
    int status = 0;
    int waits = 0;
    for (int i = 0; waitpid(child, &status, WNOHANG) == 0; i++) {
        nanosleep(&(struct timespec){.tv_nsec = i < 20 ? 50000 : 1000000}, NULL);
        waits += i >= 20 && shared[1] && is_asleep(child);
        if (waits == 200 || i == 60000)
            kill(child, SIGKILL);
    }
    int outcome = *shared;
    munmap(shared, 4096);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS)
        return -SIGSYS;
    return outcome;
}

/* Arguments that no call can do anything with. */
static const long NOTHING[6] = {-1, -1, -1, -1, -1, -1};

/* Calls whose effect or end, bare and with these arguments, is no matter of the filter: no return,
 * or an IPC object that would stay behind. */
static bool is_left_out(long nr)
{
    static const long OUT[] = {SYS_exit, SYS_exit_group, SYS_rt_sigreturn, SYS_munmap,
                               SYS_sync, SYS_msgget,     SYS_semget,       SYS_shmget};
    for (size_t i = 0; i < ARRAY_LEN(OUT); i++)
        if (OUT[i] == nr)
            return true;
#ifdef SYS_vfork
    return nr == SYS_vfork; /* its child would return on our stack */
#else
    return false;
#endif
}

static void every_number(void **state)
{
    (void)state;
    unsigned refused = 0, passed = 0;
    for (int nr = 0; nr <= SECCOMP_HIGHEST + 60; nr++) {
        if (is_left_out(nr))
            continue;
        int want = seccomp_wall_errno(nr);
        int got = outcome_of(&wall, call_native, nr, NOTHING);
        if (want) {
            refused++;
            if (got != want)
                fail_msg("call %d: %d, the table says %d", nr, got, want);
            continue;
        }
        /* a flag argument of all ones is a namespace flag, a family of -1 none: those by hand */
        if (nr == SYS_clone || nr == SYS_unshare || nr == SYS_socket || nr == SYS_socketpair ||
            nr == SYS_prlimit64 || nr == SYS_fchmod || nr == SYS_fchmodat)
            continue;
#ifdef SYS_chmod
        if (nr == SYS_chmod)
            continue;
#endif
        passed++;
        int bare = outcome_of(NULL, call_native, nr, NOTHING);
        if (got != bare)
            fail_msg("call %d: %d behind the filter, %d bare", nr, got, bare);
    }
    print_message("%u calls refused, %u as they are\n", refused, passed);
    assert_true(refused > 80 && passed > 250);
}

static void numbers_above_are_absent(void **state)
{
    (void)state;
    static const long ABOVE[] = {SECCOMP_HIGHEST + 1, 600, 1024, 4095, 0x3fffffff};
    for (size_t i = 0; i < ARRAY_LEN(ABOVE); i++)
        assert_int_equal(outcome_of(&wall, call_native, ABOVE[i], NOTHING), ENOSYS);
}

#ifdef __x86_64__
static long call_i386(long nr, const long *a)
{
    long r;
    (void)a;
    __asm__ volatile("int $0x80" : "=a"(r) : "a"(nr), "b"(-1L), "c"(-1L), "d"(-1L) : "memory");
    return r;
}

/* x32 numbers on the native entry, and the i386 entry: killed, whatever the number. */
static void foreign_abis_are_killed(void **state)
{
    (void)state;
    for (int nr = 0; nr <= SECCOMP_HIGHEST; nr += nr < 16 ? 1 : 13) {
        assert_int_equal(outcome_of(&wall, call_native, 0x40000000L | nr, NOTHING), -SIGSYS);
        int i386 = outcome_of(&wall, call_i386, nr, NOTHING);
        /* a kernel built without it ends the process itself */
        assert_true(i386 == -SIGSYS || i386 == NEVER);
        assert_int_equal(outcome_of(&egress, call_native, 0x40000000L | nr, NOTHING), -SIGSYS);
    }
    assert_int_equal(outcome_of(&wall, call_native, 0x40000000L | 512, NOTHING), -SIGSYS);
}
#else
static void foreign_abis_are_killed(void **state)
{
    (void)state;
}
#endif

/* Arguments decide. */
static void by_argument(void **state)
{
    (void)state;
    const long junk = 1L << 40; /* the kernel reads these as int: upper bits must not help */
    const struct {
        long nr, a, b, c;
        int want;
    } ROWS[] = {
        {SYS_unshare, CLONE_NEWUSER, 0, 0, EPERM},
        {SYS_unshare, CLONE_NEWNS | CLONE_FS, 0, 0, EPERM},
        {SYS_unshare, CLONE_NEWNET, 0, 0, EPERM},
        {SYS_unshare, CLONE_NEWPID, 0, 0, EPERM},
        {SYS_unshare, CLONE_NEWIPC, 0, 0, EPERM},
        {SYS_unshare, CLONE_NEWUTS, 0, 0, EPERM},
        {SYS_unshare, CLONE_NEWCGROUP, 0, 0, EPERM},
        {SYS_unshare, 0x80, 0, 0, EPERM},
        {SYS_unshare, CLONE_FILES | CLONE_FS, 0, 0, 0},
        {SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, EPERM},
        {SYS_clone, CLONE_NEWNET | SIGCHLD, 0, 0, EPERM},
        {SYS_clone, CLONE_NEWNS | SIGCHLD, 0, 0, EPERM},
        {SYS_clone, SIGCHLD, 0, 0, 0},
        {SYS_ioctl, 0, TIOCSTI, 0, EPERM},
        {SYS_ioctl, 0, TIOCSTI | junk, 0, EPERM},
        {SYS_ioctl, 0, TIOCLINUX, 0, EPERM},
        {SYS_socket, AF_UNIX, SOCK_STREAM, 0, 0},
        {SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0, 0},
        {SYS_socket, AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK, 0, 0},
        {SYS_socket, AF_NETLINK, SOCK_RAW, 0, 0},
        {SYS_socket, AF_NETLINK, SOCK_RAW, 9, EPROTONOSUPPORT},
        {SYS_socket, AF_NETLINK | junk, SOCK_RAW, 0, EAFNOSUPPORT},
        {SYS_socket, AF_NETLINK, SOCK_RAW, 15, EPROTONOSUPPORT},
        {SYS_socket, AF_INET, SOCK_RAW, 1, EPERM},
        {SYS_socket, AF_INET, SOCK_RAW | SOCK_CLOEXEC, 255, EPERM},
        {SYS_socket, AF_INET, SOCK_RAW | junk, 1, EPERM},
        {SYS_socket, AF_INET6, SOCK_RAW, 58, EPERM},
        {SYS_socket, AF_INET, 10, 0, EPERM},
        {SYS_socket, AF_INET, SOCK_STREAM, 132, EPROTONOSUPPORT},
        {SYS_socket, AF_INET, SOCK_SEQPACKET, 0, ESOCKTNOSUPPORT},
        {SYS_socket, AF_PACKET, SOCK_RAW, 0, EAFNOSUPPORT},
        {SYS_socket, AF_PACKET | junk, SOCK_RAW, 0, EAFNOSUPPORT},
        {SYS_socket, AF_UNIX | junk, SOCK_STREAM, 0, EAFNOSUPPORT},
        {SYS_socket, AF_VSOCK, SOCK_STREAM, 0, EAFNOSUPPORT},
        {SYS_socket, AF_ALG, SOCK_SEQPACKET, 0, EAFNOSUPPORT},
        {SYS_socket, AF_BLUETOOTH, SOCK_RAW, 0, EAFNOSUPPORT},
        {SYS_socket, AF_TIPC, SOCK_STREAM, 0, EAFNOSUPPORT},
        {SYS_socket, AF_XDP, SOCK_RAW, 0, EAFNOSUPPORT},
        {SYS_socketpair, AF_TIPC, SOCK_STREAM, 0, EAFNOSUPPORT},
        {SYS_setns, -1, 0, 0, EPERM},
        {SYS_prlimit64, 1, 7, -1, EPERM},
        {SYS_prlimit64, 0, 7, -1, EFAULT},
        {SYS_prlimit64, 0, 7, 0, 0},
#ifdef SYS_chmod
        {SYS_chmod, -1, 04755, 0, EPERM},
        {SYS_chmod, -1, 02775, 0, EFAULT},
#endif
        {SYS_fchmod, -1, 04000 | junk, 0, EPERM},
        {SYS_fchmod, -1, 0755, 0, EBADF},
        {SYS_fchmodat, -1, -1, 06755, EPERM},
        {SYS_fchmodat, -1, -1, 0755, EFAULT},
    };
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        const long args[6] = {ROWS[i].a, ROWS[i].b, ROWS[i].c, 0, 0, 0};
        int got = outcome_of(&wall, call_native, ROWS[i].nr, args);
        if (got != ROWS[i].want)
            fail_msg("row %zu, call %ld: %d, not %d", i, ROWS[i].nr, got, ROWS[i].want);
    }
    for (int family = 0; family < 64; family++) {
        const long args[6] = {family, SOCK_DGRAM, 0, 0, 0, 0};
        bool may =
            family == AF_UNIX || family == AF_INET || family == AF_INET6 || family == AF_NETLINK;
        int got = outcome_of(&wall, call_native, SYS_socket, args);
        if (got != (may ? 0 : EAFNOSUPPORT))
            fail_msg("family %d: %d", family, got);
    }
}

/* The egress starts nothing, and reaches no unix socket of the host. */
static void of_the_egress(void **state)
{
    (void)state;
    const struct {
        long nr, a, b, c;
        int want;
    } ROWS[] = {
        {SYS_socket, AF_INET, SOCK_STREAM, 0, 0},
        {SYS_socket, AF_INET6, SOCK_DGRAM, 0, 0},
        {SYS_socket, AF_NETLINK, SOCK_RAW, 0, 0},
        {SYS_socket, AF_UNIX, SOCK_STREAM, 0, EPERM},
        {SYS_socket, AF_PACKET, SOCK_RAW, 0, EPERM},
        {SYS_listen, -1, 0, 0, EPERM},
        {SYS_clone, SIGCHLD, 0, 0, EPERM},
        {SYS_clone3, -1, 0, 0, ENOSYS},
        {SYS_execve, -1, -1, -1, -SIGSYS},
        {SYS_execveat, -1, -1, -1, -SIGSYS},
        {SYS_ptrace, -1, -1, -1, -SIGSYS},
        {SYS_process_vm_writev, -1, -1, -1, -SIGSYS},
        {SYS_mount, -1, -1, -1, -SIGSYS},
        {SYS_mkdirat, -1, -1, -1, EPERM},
        {SYS_unlinkat, -1, -1, -1, EPERM},
        {SYS_kill, 1, 0, 0, EPERM},
        {SYS_prlimit64, 0, 7, -1, EPERM},
        {SYS_io_uring_setup, 1, -1, 0, ENOSYS},
        {SYS_mprotect, 0, 0, PROT_EXEC, EPERM},
        {SYS_getpid, 0, 0, 0, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        const long args[6] = {ROWS[i].a, ROWS[i].b, ROWS[i].c, 0, 0, 0};
        int got = outcome_of(&egress, call_native, ROWS[i].nr, args);
        if (got != ROWS[i].want)
            fail_msg("row %zu, call %ld: %d, not %d", i, ROWS[i].nr, got, ROWS[i].want);
    }
}

/* Every session gets a filter: after the first, a copy. */
static void rendered_again_is_the_same(void **state)
{
    (void)state;
    for (int i = 0; i < 1000; i++) { /* each session asks anew */
        struct str s = {0};
        assert_int_equal(seccomp_render_wall(&s), 0);
        assert_int_equal(s.len, wall.len);
        assert_memory_equal(s.data, wall.data, wall.len);
        str_done(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number),
        cmocka_unit_test(numbers_above_are_absent),
        cmocka_unit_test(foreign_abis_are_killed),
        cmocka_unit_test(by_argument),
        cmocka_unit_test(of_the_egress),
        cmocka_unit_test(rendered_again_is_the_same),
    };
    return cmocka_run_group_tests(tests, render, done);
}
