/* Runs in: daemon. Reads: trusted. May block: no.
 *
 * bubblewrap gets the whole view by one bind, so no path of a folder or of home stands here. What
 * it adds is what only it can make: the namespaces, /proc, /dev. */
#include "render/bwrap.h"
#include "base/mem.h"
#include <errno.h>

/* /dev/shm of a session without a memory limit: what large test suites need, not all of memory. */
#define SHM_BYTES ((uint64_t)1 << 30)

/* Namespaces and ids; the cgroup namespace too, so that its paths tell nothing of the host. */
static const char *const FIXED[] = {
    "--unshare-user",   "--unshare-pid", "--unshare-ipc", "--unshare-uts",
    "--unshare-cgroup", "--as-pid-1",    "--new-session", "--die-with-parent",
    "--cap-drop",       "ALL",           "--clearenv",    "--hostname",
    "cordon",
};

/* The kernel lets the machine's root write here by file mode alone, capabilities or not, and a
 * session run by root is that root: core_pattern would start a program on the host. /proc/sys is
 * closed for everybody; bubblewrap itself closes irq, bus and sysrq-trigger. */
static const char *const PROC_OF_ROOT[] = {"/proc/acpi", "/proc/asound", "/proc/driver",
                                           "/proc/fs",   "/proc/mtrr",   "/proc/scsi"};

static int add_all(struct strv *v, const char *const *items, size_t n)
{
    int r = 0;
    for (size_t i = 0; i < n && r >= 0; i++)
        r = strv_add(v, items[i]);
    return r;
}

static int add_number(struct strv *v, const char *option, uint64_t n)
{
    int r = strv_add(v, option);
    return r < 0 ? r : strv_addf(v, "%llu", (unsigned long long)n);
}

static int add_proc(struct strv *v, const struct machine *m)
{
    const char *const sys[] = {"--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"};
    int r = add_all(v, sys, ARRAY_LEN(sys));
    for (size_t i = 0; i < ARRAY_LEN(PROC_OF_ROOT) && m->uid == 0 && r >= 0; i++)
        r = add_all(v, (const char *const[]){"--ro-bind-try", PROC_OF_ROOT[i], PROC_OF_ROOT[i]}, 3);
    /* Such a bind has nodev, so that to open it is EACCES. */
    for (size_t i = 0; i < m->proc_secrets.n && r >= 0; i++)
        r = add_all(v, (const char *const[]){"--ro-bind", "/dev/null", m->proc_secrets.items[i]},
                    3);
    return r;
}

/* The order is that of mounting: root, then what lies on it, read-only last. /dev stays writable
 * only where it is a file system of its own (shm, pts). */
static int add_mounts(struct strv *v, const struct policy *p, const struct machine *m,
                      const struct bwrap_input *in)
{
    uint64_t shm = p->limits.memory_bytes && p->limits.memory_bytes < SHM_BYTES
                       ? p->limits.memory_bytes
                       : SHM_BYTES;
    const char *const root[] = {"--bind", in->root, "/"};
    const char *const dev[] = {"--dev", "/dev", "--perms", "1777"};
    const char *const after[] = {"--tmpfs",      "/dev/shm", "--remount-ro", "/dev",
                                 "--remount-ro", "/",        "--chdir",      "/"};
    int r = add_all(v, root, ARRAY_LEN(root));
    if (r >= 0)
        r = add_proc(v, m);
    if (r >= 0)
        r = add_all(v, dev, ARRAY_LEN(dev));
    if (r >= 0)
        r = add_number(v, "--size", shm);
    return r < 0 ? r : add_all(v, after, ARRAY_LEN(after));
}

int bwrap_render(const struct policy *p, const struct machine *m, const struct bwrap_input *in,
                 struct strv *ret_args)
{
    struct strv v = {0};
    if (p->tier == TIER_OPEN || !in->root)
        return -EINVAL;
    int r = add_all(&v, FIXED, ARRAY_LEN(FIXED));
    if (r >= 0)
        r = add_number(&v, "--uid", m->uid);
    if (r >= 0)
        r = add_number(&v, "--gid", m->gid);
    if (r >= 0)
        r = add_mounts(&v, p, m, in);
    if (r >= 0)
        r = add_number(&v, "--add-seccomp-fd", (uint64_t)in->filter_fd);
    if (r < 0) {
        strv_done(&v);
        return r;
    }
    *ret_args = v;
    return 0;
}
