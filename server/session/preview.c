/* Runs in: daemon. Reads: trusted. May block: briefly (stat of the folders named).
 *
 * What a session would be allowed, without making it; and the compiled rules as text. */
#include "session/parts.h"
#include <errno.h>
#include <string.h>

#define PREVIEW_PRIVATE "/tmp/cordon-preview"

static int render_text(const struct session *s, const struct policy *policy, const char *render,
                       char **ret, struct err *err)
{
    if (strcmp(render, "seatbelt") == 0)
        return err_member(err, -ENOTSUP, "query_invalid", "/render",
                          "seatbelt: not in this version");
    return provider_describe(s->provider == PROVIDER_DIRECT ? sessions_wall_provider()
                                                            : s->provider,
                             policy, s->ss->deps.machine, render, ret, err);
}

int session_policy_render(struct session *s, const char *render, char **ret_text, struct err *err)
{
    return render_text(s, session_policy(s), render, ret_text, err);
}

/* GET /policy asks for the machine's: what a session has before it is given any folder. */
static int preview_spec(struct session *s, const struct session_spec *spec, struct err *err)
{
    return spec->n_folders > 0 ? spec_apply(s, spec, err) : spec_apply_machine(s, spec, err);
}

int sessions_policy_preview(struct sessions *ss, const struct session_spec *spec,
                            const char *render, json_t **ret_json, char **ret_text, struct err *err)
{
    struct session *s = session_alloc(ss, NULL);
    if (!s)
        return err_set(err, -ENOMEM, "internal", NULL, "out of memory");
    struct policy policy = {0};
    s->caller_env = spec->caller_env;
    int r = preview_spec(s, spec, err);
    /* Rules are asked for: those of the wall, which `cordon run` puts up whatever is set. */
    if (r == 0 && render && s->provider == PROVIDER_DIRECT && s->tier != TIER_OPEN)
        s->provider = sessions_wall_provider();
    if (r == 0 && s->provider != PROVIDER_DIRECT && !(s->private_dir = strdup(PREVIEW_PRIVATE)))
        r = err_set(err, -ENOMEM, "internal", NULL, "out of memory");
    struct shape shape = session_shape(s);
    if (r == 0)
        r = session_policy_make(s, &shape, &policy, err);
    if (r == 0 && render)
        r = render_text(s, &policy, render, ret_text, err);
    else if (r == 0) {
        *ret_json = policy_to_json(&policy, ss->deps.machine, s->provider, session_hosts(s));
        r = *ret_json ? 0 : err_set(err, -ENOMEM, "internal", NULL, "out of memory");
    }
    policy_done(&policy);
    free(TAKE(s->private_dir));
    session_unref(s);
    return r;
}
