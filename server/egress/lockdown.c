/* Runs in: egress. Reads: trusted (the daemon's order). May block: no. */
#include "egress/lockdown.h"
#include "base/fd.h"
#include "base/landlock.h"
#include "base/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED 1 /* their leak check at the end starts a process and traces */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define IS_SANITIZED 1
#endif
#endif
#ifndef IS_SANITIZED
#define IS_SANITIZED 0
#endif

/* What is missing and optional is passed over; anything else that cannot be opened is a failure. */
static int path_allow(int ruleset, const struct rules_path *p)
{
    CLEANUP(fd_done) int fd = open(p->path, O_PATH | O_CLOEXEC);
    if (fd < 0)
        return p->optional && (errno == ENOENT || errno == EACCES || errno == ENOTDIR) ? 0 : -errno;
    return landlock_allow(ruleset, fd, p->rights);
}

static int landlock_apply(const struct rules *rules)
{
    int abi = landlock_abi();
    if (abi < 1)
        return -EOPNOTSUPP;
    if ((uint32_t)abi > rules->abi)
        abi = (int)rules->abi;
    CLEANUP(fd_done) int ruleset = landlock_new(abi, rules->handled, rules->scopes);
    if (ruleset < 0)
        return ruleset;
    for (uint32_t i = 0; i < rules->n_paths; i++) {
        int r = path_allow(ruleset, &rules->paths[i]);
        if (r < 0)
            return r;
    }
    return landlock_enter(ruleset);
}

static int filter_apply(const struct rules *rules)
{
    struct sock_fprog program = {
        .len = (unsigned short)(rules->filter_len / sizeof(struct sock_filter)),
        .filter = (struct sock_filter *)(void *)rules->filter};
    if (rules->filter_len % sizeof(struct sock_filter) != 0 ||
        rules->filter_len / sizeof(struct sock_filter) > 4096)
        return -EINVAL;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0 ? -errno : 0;
}

int lockdown_apply(const struct rules *rules, const char **ret_what)
{
    *ret_what = "not dumpable";
    if (prctl(PR_SET_DUMPABLE, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    *ret_what = "limits";
    for (uint32_t i = 0; i < rules->n_limits; i++) {
        const struct rules_limit *l = &rules->limits[i];
        struct rlimit limit = {.rlim_cur = l->soft, .rlim_max = l->hard};
        if (setrlimit((__rlimit_resource_t)l->resource, &limit) < 0)
            return -errno;
    }
    *ret_what = "landlock";
    int r = rules->landlock ? landlock_apply(rules) : 0;
    /* Last, as it forbids what came before. */
    if (r == 0 && rules->filter_len > 0 && !IS_SANITIZED) {
        *ret_what = "seccomp";
        r = filter_apply(rules);
    }
    return r;
}
