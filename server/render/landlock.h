/* policy -> Landlock {path, rights} by ABI (wire/rules.h), and as text. Pure. */
#pragma once
#include "policy/policy.h"
#include "wire/rules.h"

/* Fills landlock, abi, handled, scopes, paths, limits of RET; the filter is bubblewrap's. */
int landlock_render(const struct policy *p, const struct machine *m, int abi, struct rules *ret);
/* cordon-egress: the resolver's files and nothing else. */
int landlock_render_egress(const struct machine *m, int abi, struct rules *ret);
int landlock_text(const struct rules *r, struct str *out);
