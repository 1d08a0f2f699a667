/* policy -> Landlock {path, rights} by ABI (wire/rules.h), and as text. Pure. */
#pragma once
#include "policy/policy.h"
#include "wire/rules.h"

/* Fills landlock, abi, handled, scopes, paths, limits of RET for a kernel of ABI (0: limits only);
 * the filter is bubblewrap's. RET is to be given to rules_done. -E2BIG, -ENOMEM. */
int landlock_render(const struct policy *p, const struct machine *m, int abi, struct rules *ret);
/* cordon-egress: the resolver's files and nothing else. */
int landlock_render_egress(const struct machine *m, int abi, struct rules *ret);
int landlock_text(const struct rules *r, struct str *out);
/* One line an entry of P's paths: its access, and whether the mount alone or Landlock too holds
 * it (Landlock cannot take away inside what it gave). */
int landlock_layers_text(const struct policy *p, int abi, struct str *out);
