/* Runs in: daemon. Reads: trusted. May block: no. */
#include "base/mem.h"
#include "base/path.h"
#include "base/str.h"
#include "render/bwrap.h"
#include "render/landlock.h"
#include "render/seccomp.h"
#include "render/view.h"
#include "sandbox/provider.h"
#include "wire/msg.h"
#include <errno.h>
#include <string.h>

/* The joins of the stage, then bubblewrap's arguments, one a line. */
static int describe_bwrap(const struct policy *p, const struct machine *m, struct str *out,
                          struct err *err)
{
    struct view view = {0};
    struct strv args = {0};
    struct bwrap_input in = {.root = "PRIVATE/view/root", .filter_fd = FD_BWRAP_FILTER};
    int r = view_render(p, m, &view, err);
    if (r >= 0)
        r = view_text(&view, out);
    if (r >= 0)
        r = bwrap_render(p, m, &in, &args);
    if (r >= 0)
        r = str_puts(out, "bwrap");
    for (size_t i = 0; i < args.n && r >= 0; i++) {
        r = str_puts(out, args.items[i][0] == '-' ? "\n    " : " ");
        if (r >= 0)
            r = str_put_escaped(out, args.items[i], strlen(args.items[i]));
    }
    if (r >= 0)
        r = str_putc(out, '\n');
    strv_done(&args);
    view_done(&view);
    return r;
}

static int describe_landlock(const struct policy *p, const struct machine *m, struct str *out)
{
    struct rules rules = {0};
    int r = landlock_render(p, m, m->landlock_abi, &rules);
    if (r >= 0)
        r = landlock_text(&rules, out);
    rules_done(&rules);
    if (r >= 0)
        r = str_puts(out, "\nwhich layer holds what\n");
    return r < 0 ? r : landlock_layers_text(p, m->landlock_abi, out);
}

int provider_describe(enum provider provider, const struct policy *p, const struct machine *m,
                      const char *render, char **ret_text, struct err *err)
{
    struct str out = {0};
    int r;
    if (provider != PROVIDER_BUBBLEWRAP)
        return err_set(err, -EINVAL, "body_invalid", NULL, "this provider renders no rules");
    if (strcmp(render, "bwrap") == 0)
        r = describe_bwrap(p, m, &out, err);
    else if (strcmp(render, "landlock") == 0)
        r = describe_landlock(p, m, &out);
    else if (strcmp(render, "seccomp") == 0)
        r = seccomp_text_wall(&out);
    else
        return err_set(err, -EINVAL, "body_invalid", "one of bwrap, landlock, seccomp",
                       "no such rendering");
    if (r >= 0 && !out.data)
        r = str_puts(&out, "");
    if (r < 0) {
        str_done(&out);
        return err_set(err, r, "internal", NULL, "the policy cannot be rendered: %s", strerror(-r));
    }
    *ret_text = out.data;
    return 0;
}

int provider_egress_rules(const struct machine *m, struct rules *ret)
{
    static struct str filter;
    struct rules rules = {0};
    int r = filter.len > 0 ? 0 : seccomp_render_egress(&filter);
    if (r >= 0)
        r = landlock_render_egress(m, m->landlock_abi, &rules);
    if (r >= 0 && !(rules.filter = malloc(filter.len)))
        r = -ENOMEM;
    if (r < 0) {
        rules_done(&rules);
        return r;
    }
    memcpy(rules.filter, filter.data, filter.len);
    rules.filter_len = (uint32_t)filter.len;
    *ret = rules;
    return 0;
}
