/* A lock-down order as bytes (M_LOCKDOWN; part of M_EG_START): what a process forbids itself before
 * it touches hostile bytes. Applied in this order by runner/lockdown and egress/lockdown:
 * descriptors closed, not dumpable, rlimits, Landlock, seccomp. Any failure ends the process. */
#pragma once
#include "base/str.h"
#include "wire/pack.h"

#define RULES_PATHS_MAX  512
#define RULES_LIMITS_MAX 16

struct rules_path {
    char *path;       /* as seen by the process */
    uint64_t rights;  /* base/landlock.h */
    uint8_t optional; /* absent: passed over */
};
struct rules_limit {
    uint32_t resource; /* RLIMIT_* */
    uint64_t soft, hard;
};
struct rules {
    uint8_t landlock; /* 1 = must be entered; 0 = none (provider direct) */
    uint32_t
        abi; /* the ABI the paths were made for; the process cuts to what it finds, never above */
    uint64_t handled, scopes;
    struct rules_path *paths;
    uint32_t n_paths;
    struct rules_limit limits[RULES_LIMITS_MAX];
    uint32_t n_limits;
    uint8_t *filter;     /* struct sock_filter[], or NULL */
    uint32_t filter_len; /* bytes */
};
void rules_done(struct rules *r);
void rules_put(struct pack *p, const struct rules *r);
int rules_get(struct unpack *u, struct rules *ret); /* -EBADMSG */
