/* Looks at this machine once at start (struct machine of policy/policy.h), and at folders to grant.
 */
#pragma once
#include "policy/policy.h"

struct machine_dirs { /* as config resolved them; absolute */
    const char *state, *config, *cache, *run;
};
/* RET is filled or left alone; machine_done() it. HOME is $HOME where that is a usable absolute
 * path, else the account's; what the account's home is called otherwise is among home_links. */
int machine_look(const struct machine_dirs *dirs, struct machine *ret, struct err *err);
/* What of /etc is to be hidden, looked at again: the host may have made a secret since. -ENOMEM;
 * -E2BIG: more than can be hidden. M then has what it had. */
int machine_look_etc(struct machine *m);
/* May F->path be granted? Fills real, dev, ino. -EPERM protected_place: home itself, "/", /tmp
 * whole, in or around a protected place (links resolved both ways, looked at now and not when the
 * machine was); -EINVAL, -ENOENT, -ENOTDIR path_invalid. */
int machine_folder_check(const struct machine *m, struct policy_folder *f, struct err *err);
/* When the file at PATH itself was made, statx(2) in ns since 1970; 0 = not known here. An inode
 * number is used again as soon as its file is gone, so that it alone does not tell two files apart.
 */
int64_t path_born_ns(const char *path);
/* May who is in a wall write to PATH, by owner and mode? Root's own power does not reach inside. */
bool machine_folder_writable(const struct machine *m, const char *path);
