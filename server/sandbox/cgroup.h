/* The control group of one wall: what holds for all in it together (cgroups(7)). Version 2 where a
 * group above ours is ours to divide (delegated, or root's) and has the controllers; version 1 by
 * controller, as root. What cannot be had is not held, and cgroup_holds says so.
 *
 *     cgroup_new(&limits, &cg)             // 0 also when it holds nothing
 *     n = cgroup_open(cg, fds)             // the stage writes "0" to each before it execs
 *     cgroup_count(cg, &hits)              // how often each limit was hit until now
 *     cgroup_free(cg)                      // when nobody is in it any more: nothing stays behind
 *
 * A killed daemon leaves empty groups; cgroup_sweep at start takes them away, by the number of the
 * process in their names. */
#pragma once
#include "sandbox/provider.h"

#define CGROUPS_MAX 3 /* hierarchies of one wall */

struct cgroup;
int cgroup_new(const struct policy_limits *limits, struct cgroup **ret);
unsigned cgroup_holds(const struct cgroup *cg); /* bits of enum wall_limit that it was set for */
unsigned cgroup_keeps(const struct cgroup *cg); /* of those, the groups that somebody is in */
/* cgroup.procs of each hierarchy; the caller owns. The number, or a negative errno. */
int cgroup_open(const struct cgroup *cg, int fds[static CGROUPS_MAX]);
void cgroup_count(const struct cgroup *cg, struct wall_hits *ret);
void cgroup_free(struct cgroup *cg);
int cgroup_sweep(void);
