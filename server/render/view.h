/* policy -> the joins that make the view (wire/order.h), as rows and as readable text. Pure. */
#pragma once
#include "policy/policy.h"
#include "wire/order.h"

struct view {
    struct join *joins;
    size_t n, cap;
};
int view_render(const struct policy *p, const struct machine *m, struct view *ret, struct err *err);
void view_done(struct view *v);
int view_text(const struct view *v, struct str *out); /* one line a join */
