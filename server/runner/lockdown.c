/* Runs in: runner. Reads: trusted. May block: no. */
#include "runner/lockdown.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/landlock.h"
#include "base/stop.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

/* Standard error was the daemon's log up to here; sanitizers keep it for their reports. */
static int log_leave(void)
{
#ifdef SANITIZED
    return 0;
#else
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0)
        return -errno;
    int r = dup2(null, STDERR_FILENO) < 0 ? -errno : 0;
    close(null);
    return r;
#endif
}

/* Inherited soft limits may be lower than what the order gives, hard ones are never raised. */
static int limits_set(const struct rules *rules)
{
    for (uint32_t i = 0; i < rules->n_limits; i++) {
        const struct rules_limit *row = &rules->limits[i];
        struct rlimit now, limit = {.rlim_cur = row->soft, .rlim_max = row->hard};
        if (getrlimit((int)row->resource, &now) < 0)
            return -errno;
        if (limit.rlim_max > now.rlim_max)
            limit.rlim_max = now.rlim_max;
        if (limit.rlim_cur > limit.rlim_max)
            limit.rlim_cur = limit.rlim_max;
        if (setrlimit((int)row->resource, &limit) < 0)
            return -errno;
    }
    return 0;
}

static int path_allow(int ruleset, const struct rules_path *row)
{
    int fd = open(row->path, O_PATH | O_CLOEXEC);
    if (fd < 0)
        return row->optional ? 0 : -errno;
    int r = landlock_allow(ruleset, fd, row->rights);
    close(fd);
    return r;
}

static int landlock_set(const struct rules *rules)
{
    int abi = landlock_abi();
    if (!rules->landlock || stop_without("landlock"))
        return 0;
    if (abi < 1)
        return -ENOSYS;
    if ((uint32_t)abi > rules->abi)
        abi = (int)rules->abi;
    int ruleset = landlock_new(abi, rules->handled, rules->scopes);
    if (ruleset < 0)
        return ruleset;
    int r = 0;
    for (uint32_t i = 0; i < rules->n_paths && r == 0; i++)
        r = path_allow(ruleset, &rules->paths[i]);
    if (r == 0)
        r = landlock_enter(ruleset);
    close(ruleset);
    return r < 0 ? r : abi;
}

static int filter_set(const struct rules *rules)
{
    struct sock_fprog program = {
        .len = (unsigned short)(rules->filter_len / sizeof(struct sock_filter)),
        .filter = (struct sock_filter *)(void *)rules->filter};
    if (!rules->filter)
        return 0;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) < 0 ? -errno : 0;
}

static int dumpable_drop(const struct rules *rules)
{
    (void)rules;
    return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ? -errno : 0;
}

static int descriptors_leave(const struct rules *rules)
{
    (void)rules;
    int r = log_leave();
    return r < 0 || stop_without("descriptors") ? r : fd_cloexec_from(3);
}

int lockdown_enter(const struct rules *rules, int *ret_code, const char **ret_what)
{
    static const struct {
        int (*step)(const struct rules *rules);
        int code;
        const char *what;
    } STEPS[] = {{descriptors_leave, CHILD_DESCRIPTORS, "descriptors"},
                 {dumpable_drop, CHILD_DUMPABLE, "dumpable"},
                 {limits_set, CHILD_LIMITS, "limits"},
                 {landlock_set, CHILD_LANDLOCK, "landlock"},
                 {filter_set, CHILD_SECCOMP, "seccomp"}};
    int abi = 0;
    for (size_t i = 0; i < sizeof STEPS / sizeof STEPS[0]; i++) {
        int r = STEPS[i].step(rules);
        if (r < 0) {
            *ret_code = STEPS[i].code;
            *ret_what = STEPS[i].what;
            return r;
        }
        if (STEPS[i].code == CHILD_LANDLOCK)
            abi = r;
    }
    return abi;
}
