/* Runs in: daemon. Reads: trusted. May block: briefly (provider_probe). */
#include "session/parts.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

#ifdef __APPLE__
#define PLATFORM "macos"
#else
#define PLATFORM "linux"
#endif

static json_t *provider_json(enum provider p, const char *state, const char *reason)
{
    json_t *out = json_pack("{s:s, s:s}", "id", PROVIDER_NAMES[p], "state", state);
    if (reason && *reason)
        (void)json_object_set_new(out, "reason", json_string(reason));
    return out;
}

static void add_fix(json_t *list, const char *text, const char *command)
{
    json_t *fix = json_pack("{s:s}", "text", text);
    if (command)
        (void)json_object_set_new(fix, "command", json_string(command));
    (void)json_array_append_new(list, fix);
}

/* The setting in force, as a session without wishes would get it. */
static enum provider chosen(const struct sessions *ss)
{
    return sessions_choose(ss, TIER_WALLED, false);
}

static bool any_optional_failed(const json_t *checks)
{
    size_t i;
    json_t *check;
    json_array_foreach(checks, i,
                       check) if (json_is_false(json_object_get(check, "ok")) &&
                                  json_is_false(json_object_get(check, "required"))) return true;
    return false;
}

static bool any_verifying(const struct sessions *ss)
{
    for (size_t i = 0; i < ss->n; i++)
        if (ss->items[i]->state == SESSION_VERIFYING)
            return true;
    return false;
}

static const char *state_word(const struct sessions *ss, bool can_wall, const json_t *checks)
{
    if (chosen(ss) == PROVIDER_DIRECT)
        return "off";
    if (!can_wall || (ss->last_checks && !ss->last_proof_ok))
        return "down";
    if (!ss->last_checks && any_verifying(ss))
        return "verifying";
    return any_optional_failed(checks) ? "degraded" : "up";
}

static json_t *providers_json(bool can_wall, const struct err *why)
{
    json_t *out = json_array();
    enum provider other =
        sessions_wall_provider() == PROVIDER_SEATBELT ? PROVIDER_BUBBLEWRAP : PROVIDER_SEATBELT;
    bool missing = !can_wall && strcmp(wall_bwrap_version(), "") == 0;
    (void)json_array_append_new(out, provider_json(sessions_wall_provider(),
                                                   can_wall  ? "available"
                                                   : missing ? "not_installed"
                                                             : "unusable",
                                                   why->detail));
    (void)json_array_append_new(
        out, provider_json(other, "not_installed", "belongs to another operating system"));
    (void)json_array_append_new(out, provider_json(PROVIDER_DIRECT, "available", NULL));
    return out;
}

json_t *sessions_status_json(struct sessions *ss)
{
    struct err why = {0};
    json_t *fix = json_array(), *checks = json_object_get(ss->last_checks, "checks");
    bool can_wall = provider_probe(sessions_wall_provider(), ss->deps.machine, &why) == 0;
    if (!can_wall)
        add_fix(fix, why.hint[0] ? why.hint : why.detail, NULL);
    else if (ss->last_checks && !ss->last_proof_ok)
        add_fix(fix, "The latest proof failed: look at the checks, then try again",
                "cordon status --why");
    if (chosen(ss) == PROVIDER_DIRECT)
        add_fix(fix, "Sessions over REST run without a wall until it is turned on",
                "cordon settings set sandbox_provider bubblewrap");
    bool refused = !can_wall || (ss->last_checks && !ss->last_proof_ok);
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:o, s:o, s:b, s:o}", "state", state_word(ss, can_wall, checks),
        "provider", PROVIDER_NAMES[chosen(ss)], "platform", PLATFORM, "version", ss->deps.version,
        "checks", checks ? json_incref(checks) : json_array(), "providers",
        providers_json(can_wall, &why), "sessions_refused", refused ? 1 : 0, "fix", fix);
}

/* ---- POST /status/check: a session of its own, in a folder of its own -------------------------
 */

struct check {
    struct watch watch;
    struct sessions *ss;
    struct session *s;
    char folder[sizeof SESSION_CHECK_FOLDER];
    void (*done)(json_t *status, void *arg);
    void *arg;
};

static void check_free(struct check *c)
{
    (void)rmdir(c->folder);
    free(c);
}

static void check_over(struct session *s, void *arg)
{
    struct check *c = arg;
    (void)s;
    watch_remove(&c->watch);
    c->done(sessions_status_json(c->ss), c->arg);
    check_free(c);
}

static void check_changed(struct watch *w)
{
    struct check *c = container_of(w, struct check, watch);
    if (session_state(c->s) == SESSION_READY)
        session_stop(c->s, 0, "checked", NULL);
}

int sessions_status_check(struct sessions *ss, void (*done)(json_t *status, void *arg), void *arg,
                          struct err *err)
{
    struct check *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(err, -ENOMEM, "internal", NULL, "out of memory");
    *c = (struct check){.ss = ss, .done = done, .arg = arg, .folder = SESSION_CHECK_FOLDER};
    int r = mkdtemp(c->folder) ? 0 : -errno;
    if (r < 0)
        err_set(err, r, "internal", NULL, "no folder can be made in /tmp: %s", strerror(-r));
    struct session_spec spec = {.n_folders = 1,
                                .tier = TIER_WALLED,
                                .network = NET_ALLOWLIST,
                                .require_wall = true,
                                .approvals = APPROVALS_FULL};
    static char *const no_env[] = {NULL};
    spec.folders[0] = (struct spec_folder){.path = c->folder, .access = ACCESS_RW};
    spec.caller_env = no_env;
    if (r == 0)
        r = session_create(ss, &spec, NULL, &c->s, err);
    if (r < 0) {
        check_free(c);
        return r;
    }
    c->watch.changed = check_changed;
    watch_add(session_watched(c->s), &c->watch);
    c->s->ended = check_over;
    c->s->ended_arg = c;
    return 0;
}
