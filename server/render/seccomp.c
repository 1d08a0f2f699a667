/* Runs in: daemon. Reads: trusted. May block: no. */
#include "render/seccomp.h"
#include "base/mem.h"
#include "profiles.h"
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__x86_64__)
#define NATIVE_ARCH  AUDIT_ARCH_X86_64
#define FOREIGN_BITS 0x40000000U /* x32: killed by libseccomp's own check behind ours */
#elif defined(__aarch64__)
#define NATIVE_ARCH  AUDIT_ARCH_AARCH64
#define FOREIGN_BITS 0xffffffffU
#else
#error "the table of system calls was reviewed for x86-64 and arm64"
#endif

#define NAMESPACES                                                                                 \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |  \
     CLONE_NEWNET)
#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080 /* unshare alone: in clone these bits are the signal */
#endif
#define LOW 0xffffffffULL /* the kernel reads these arguments as int */

/* ---- What the wall refuses, whatever the arguments ------------------------------------------- */

/* profiles/wall.calls. A number below 0 is libseccomp's: the architecture lacks the call. */
struct refused {
    int nr;
    int error;
    const char *name;
};
#define REFUSE(name, error) {SCMP_SYS(name), error, #name},
static const struct refused REFUSED[] = {PROFILE_WALL_CALLS(REFUSE)};

/* ---- What it refuses by argument ------------------------------------------------------------- */

struct condition {
    int nr;
    int error;
    unsigned n_args;
    struct scmp_arg_cmp args[3];
    const char *text;
};
#define MASKED(arg, mask, value)                                                                   \
    {                                                                                              \
        (arg), SCMP_CMP_MASKED_EQ, (mask), (value)                                                 \
    }
#define FLAG(arg, flag) MASKED(arg, flag, flag)
/* Address families but for unix, inet, inet6 and netlink. */
#define NO_FAMILY(f)                                                                               \
    {                                                                                              \
        SCMP_SYS(socket), EAFNOSUPPORT, 1, {MASKED(0, LOW, f)}, NULL                               \
    }
#define NO_TYPE(f, t, error, text)                                                                 \
    {                                                                                              \
        SCMP_SYS(socket), error, 2, {MASKED(0, LOW, f), MASKED(1, 0xf, t)}, text                   \
    }

static const struct condition CONDITIONS[] = {
    {SCMP_SYS(clone), EPERM, 1, {FLAG(0, CLONE_NEWNS)}, "clone EPERM with a namespace flag"},
    {SCMP_SYS(clone), EPERM, 1, {FLAG(0, CLONE_NEWCGROUP)}, NULL},
    {SCMP_SYS(clone), EPERM, 1, {FLAG(0, CLONE_NEWUTS)}, NULL},
    {SCMP_SYS(clone), EPERM, 1, {FLAG(0, CLONE_NEWIPC)}, NULL},
    {SCMP_SYS(clone), EPERM, 1, {FLAG(0, CLONE_NEWUSER)}, NULL},
    {SCMP_SYS(clone), EPERM, 1, {FLAG(0, CLONE_NEWPID)}, NULL},
    {SCMP_SYS(clone), EPERM, 1, {FLAG(0, CLONE_NEWNET)}, NULL},
    {SCMP_SYS(unshare), EPERM, 1, {FLAG(0, CLONE_NEWNS)}, "unshare EPERM with a namespace flag"},
    {SCMP_SYS(unshare), EPERM, 1, {FLAG(0, CLONE_NEWCGROUP)}, NULL},
    {SCMP_SYS(unshare), EPERM, 1, {FLAG(0, CLONE_NEWUTS)}, NULL},
    {SCMP_SYS(unshare), EPERM, 1, {FLAG(0, CLONE_NEWIPC)}, NULL},
    {SCMP_SYS(unshare), EPERM, 1, {FLAG(0, CLONE_NEWUSER)}, NULL},
    {SCMP_SYS(unshare), EPERM, 1, {FLAG(0, CLONE_NEWPID)}, NULL},
    {SCMP_SYS(unshare), EPERM, 1, {FLAG(0, CLONE_NEWNET)}, NULL},
    {SCMP_SYS(unshare), EPERM, 1, {FLAG(0, CLONE_NEWTIME)}, NULL},
    {SCMP_SYS(ioctl), EPERM, 1, {MASKED(1, LOW, TIOCSTI)}, "ioctl EPERM for TIOCSTI"},
    {SCMP_SYS(ioctl), EPERM, 1, {MASKED(1, LOW, TIOCLINUX)}, "ioctl EPERM for TIOCLINUX"},
    /* its supervisor's, say: with no descriptors it could not look for what it is to kill */
    {SCMP_SYS(prlimit64),
     EPERM,
     2,
     {{0, SCMP_CMP_NE, 0, 0}, {2, SCMP_CMP_NE, 0, 0}},
     "prlimit64 EPERM for setting limits of a numbered process"},
    /* A file of the session's owner that makes its caller that owner, outside; a write clears the
     * bit of one that open() made so. */
    {SCMP_SYS(chmod), EPERM, 1, {FLAG(1, S_ISUID)}, "chmod EPERM for set-user-ID"},
    {SCMP_SYS(fchmod), EPERM, 1, {FLAG(1, S_ISUID)}, "fchmod EPERM for set-user-ID"},
    {SCMP_SYS(fchmodat), EPERM, 1, {FLAG(2, S_ISUID)}, "fchmodat EPERM for set-user-ID"},
    {SCMP_SYS(socketpair),
     EAFNOSUPPORT,
     1,
     {{0, SCMP_CMP_NE, AF_UNIX, 0}},
     "socketpair EAFNOSUPPORT but for unix"},
    {SCMP_SYS(socket),
     EAFNOSUPPORT,
     1,
     {{0, SCMP_CMP_GT, AF_NETLINK, 0}},
     "socket EAFNOSUPPORT but for unix, inet, inet6, netlink"},
    NO_FAMILY(0),
    NO_FAMILY(3),
    NO_FAMILY(4),
    NO_FAMILY(5),
    NO_FAMILY(6),
    NO_FAMILY(7),
    NO_FAMILY(8),
    NO_FAMILY(9),
    NO_FAMILY(11),
    NO_FAMILY(12),
    NO_FAMILY(13),
    NO_FAMILY(14),
    NO_FAMILY(15),
    {SCMP_SYS(socket),
     EPROTONOSUPPORT,
     2,
     {MASKED(0, LOW, AF_NETLINK), {2, SCMP_CMP_NE, 0, 0}},
     "socket EPROTONOSUPPORT for netlink but for routes"},
    NO_TYPE(AF_INET, SOCK_RAW, EPERM, "socket EPERM for inet and inet6 raw"),
    NO_TYPE(AF_INET6, SOCK_RAW, EPERM, NULL),
    NO_TYPE(AF_INET, 10, EPERM, "socket EPERM for inet packet"), /* SOCK_PACKET */
    NO_TYPE(AF_INET, SOCK_RDM, ESOCKTNOSUPPORT,
            "socket ESOCKTNOSUPPORT for inet and inet6 rdm, seqpacket, dccp"),
    NO_TYPE(AF_INET6, SOCK_RDM, ESOCKTNOSUPPORT, NULL),
    NO_TYPE(AF_INET, SOCK_SEQPACKET, ESOCKTNOSUPPORT, NULL),
    NO_TYPE(AF_INET6, SOCK_SEQPACKET, ESOCKTNOSUPPORT, NULL),
    NO_TYPE(AF_INET, SOCK_DCCP, ESOCKTNOSUPPORT, NULL),
    NO_TYPE(AF_INET6, SOCK_DCCP, ESOCKTNOSUPPORT, NULL),
    {SCMP_SYS(socket),
     EPROTONOSUPPORT,
     1,
     {MASKED(2, LOW, IPPROTO_SCTP)},
     "socket EPROTONOSUPPORT for sctp"},
};

/* ---- What the egress may call ---------------------------------------------------------------- */

/* profiles/egress.calls. */
#define ACTION_ALLOW       SCMP_ACT_ALLOW
#define ACTION_KILL        SCMP_ACT_KILL_PROCESS
#define ACTION_ABSENT      SCMP_ACT_ERRNO(ENOSYS)
#define CALL(name, action) {SCMP_SYS(name), ACTION_##action},
static const struct {
    int nr;
    uint32_t action;
} EGRESS[] = {PROFILE_EGRESS_CALLS(CALL)};

#define THREAD (CLONE_VM | CLONE_THREAD | CLONE_SIGHAND)
#define ALLOWED_IOCTL(request)                                                                     \
    {                                                                                              \
        SCMP_SYS(ioctl), 0, 1, {MASKED(1, LOW, request)}, NULL                                     \
    }
/* Allowed when the arguments are these: no unix socket (the host's could be reached), no memory
 * that is made executable, no new process. */
static const struct condition EGRESS_CONDITIONS[] = {
    {SCMP_SYS(socket), 0, 1, {MASKED(0, LOW, AF_INET)}, NULL},
    {SCMP_SYS(socket), 0, 1, {MASKED(0, LOW, AF_INET6)}, NULL},
    {SCMP_SYS(socket), 0, 2, {MASKED(0, LOW, AF_NETLINK), MASKED(2, LOW, NETLINK_ROUTE)}, NULL},
    {SCMP_SYS(mmap), 0, 1, {MASKED(2, PROT_EXEC, 0)}, NULL},
    {SCMP_SYS(mprotect), 0, 1, {MASKED(2, PROT_EXEC, 0)}, NULL},
    {SCMP_SYS(clone), 0, 1, {MASKED(0, THREAD | NAMESPACES, THREAD)}, NULL},
    /* asking for limits, not setting them */
    {SCMP_SYS(prlimit64), 0, 1, {{2, SCMP_CMP_EQ, 0, 0}}, NULL},
    ALLOWED_IOCTL(FIONBIO),
    ALLOWED_IOCTL(FIONREAD),
    ALLOWED_IOCTL(FIOCLEX),
    ALLOWED_IOCTL(FIONCLEX),
    ALLOWED_IOCTL(TCGETS),
    ALLOWED_IOCTL(0x8933), /* SIOCGIFINDEX */
    ALLOWED_IOCTL(0x8910), /* SIOCGIFNAME */
};

/* ---- Making the programs --------------------------------------------------------------------- */

static int rule_add(scmp_filter_ctx f, uint32_t action, const struct condition *c)
{
    return c->nr < 0 ? 0 : seccomp_rule_add_array(f, action, c->nr, c->n_args, c->args);
}

static int wall_rules(scmp_filter_ctx f)
{
    int r = 0;
    for (size_t i = 0; i < ARRAY_LEN(REFUSED) && r >= 0; i++)
        if (REFUSED[i].nr >= 0)
            r = seccomp_rule_add(f, SCMP_ACT_ERRNO((unsigned)REFUSED[i].error), REFUSED[i].nr, 0);
    for (size_t i = 0; i < ARRAY_LEN(CONDITIONS) && r >= 0; i++)
        r = rule_add(f, SCMP_ACT_ERRNO((unsigned)CONDITIONS[i].error), &CONDITIONS[i]);
    return r;
}

static int egress_rules(scmp_filter_ctx f)
{
    int r = 0;
    for (size_t i = 0; i < ARRAY_LEN(EGRESS) && r >= 0; i++)
        if (EGRESS[i].nr >= 0)
            r = seccomp_rule_add(f, EGRESS[i].action, EGRESS[i].nr, 0);
    for (size_t i = 0; i < ARRAY_LEN(EGRESS_CONDITIONS) && r >= 0; i++)
        r = rule_add(f, SCMP_ACT_ALLOW, &EGRESS_CONDITIONS[i]);
    return r;
}

/* libseccomp knows no range of numbers, so this stands before its program: a native call above
 * SECCOMP_HIGHEST is ENOSYS. Everything else, foreign ABIs too, goes on into libseccomp's. */
static int range_put(struct str *out)
{
    const struct sock_filter range[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE_ARCH, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, FOREIGN_BITS, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, SECCOMP_HIGHEST, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
    };
    return str_add(out, range, sizeof range);
}

static int program_read(scmp_filter_ctx f, struct str *out)
{
    int fd = memfd_create("filter", MFD_CLOEXEC);
    if (fd < 0)
        return -errno;
    int r = seccomp_export_bpf(f, fd);
    off_t n = r < 0 ? 0 : lseek(fd, 0, SEEK_END);
    char *room = r < 0 || n <= 0 ? NULL : str_room(out, (size_t)n);
    if (r >= 0 && !room)
        r = n < 0 ? -errno : -ENOMEM;
    if (r >= 0 && pread(fd, room, (size_t)n, 0) != n)
        r = -EIO;
    if (r >= 0)
        out->len += (size_t)n;
    close(fd);
    return r;
}

static int program_make(uint32_t otherwise, int (*rules)(scmp_filter_ctx), struct str *ret)
{
    struct str out = {0};
    scmp_filter_ctx f = seccomp_init(otherwise);
    if (!f)
        return -ENOMEM;
    int r = seccomp_attr_set(f, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    if (r >= 0)
        r = seccomp_attr_set(f, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    if (r >= 0)
        r = rules(f);
    if (r >= 0 && otherwise == SCMP_ACT_ALLOW)
        r = range_put(&out);
    if (r >= 0)
        r = program_read(f, &out);
    seccomp_release(f);
    if (r < 0) {
        str_done(&out);
        return r;
    }
    *ret = out;
    return 0;
}

/* The two programs never change while the process lives. */
static int program_cached(struct str *cache, uint32_t otherwise, int (*rules)(scmp_filter_ctx),
                          struct str *ret_bpf)
{
    int r = cache->len ? 0 : program_make(otherwise, rules, cache);
    return r < 0 ? r : str_add(ret_bpf, cache->data, cache->len);
}

int seccomp_render_wall(struct str *ret_bpf)
{
    static struct str cache;
    return program_cached(&cache, SCMP_ACT_ALLOW, wall_rules, ret_bpf);
}

int seccomp_render_egress(struct str *ret_bpf)
{
    static struct str cache;
    return program_cached(&cache, SCMP_ACT_ERRNO(EPERM), egress_rules, ret_bpf);
}

/* ---- Text ------------------------------------------------------------------------------------ */

static const char *error_name(int error)
{
    return error == EPERM ? "EPERM" : error == ENOSYS ? "ENOSYS" : "?";
}

int seccomp_text_wall(struct str *out)
{
    int r = str_printf(out,
                       "foreign ABIs killed\n"
                       "calls above %d ENOSYS\n"
                       "other calls allowed\n",
                       SECCOMP_HIGHEST);
    for (size_t i = 0; i < ARRAY_LEN(REFUSED) && r >= 0; i++)
        r = str_printf(out, "%s %s\n", REFUSED[i].name, error_name(REFUSED[i].error));
    for (size_t i = 0; i < ARRAY_LEN(CONDITIONS) && r >= 0; i++)
        if (CONDITIONS[i].text)
            r = str_printf(out, "%s\n", CONDITIONS[i].text);
    return r;
}

int seccomp_wall_errno(int nr)
{
    if (nr > SECCOMP_HIGHEST)
        return ENOSYS;
    for (size_t i = 0; i < ARRAY_LEN(REFUSED); i++)
        if (REFUSED[i].nr == nr && nr >= 0)
            return REFUSED[i].error;
    return 0;
}
