/* policy -> bubblewrap's arguments for --args (written NUL-separated). Pure.
 * Named descriptors in them: the numbers are given. The view comes as one recursive bind of ROOT.
 */
#pragma once
#include "policy/policy.h"

struct bwrap_input {
    const char *root; /* where the stage assembled the view, as the stage sees it */
    int filter_fd;    /* number in the stage, for --add-seccomp-fd */
};
/* -EINVAL for tier open, which has no wall. RET_ARGS: one argument an item, without the command. */
int bwrap_render(const struct policy *p, const struct machine *m, const struct bwrap_input *in,
                 struct strv *ret_args);
