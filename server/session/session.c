/* Runs in: daemon. Reads: trusted (its children's words come through the links). May block: no.
 *
 * The step machine of one session. Callbacks record what happened and call session_step; that alone
 * decides what comes next. */
#include "base/log.h"
#include "base/stop.h"
#include "session/parts.h"
#include "store/events.h"
#include "store/owed.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *const SESSION_STATE_NAMES[] = {"starting", "verifying", "ready",   "restarting",
                                           "stopping", "ended",     "refused", NULL};
const char *const APPROVALS_NAMES[] = {"ask", "auto", "full", NULL};

/* ---- References -------------------------------------------------------------------------------
 */

static void folders_free(struct policy_folder *folders, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(folders[i].id);
        free(folders[i].path);
        free(folders[i].real);
    }
}

static void session_free(struct closing *closing)
{
    struct session *s = container_of(closing, struct session, closing);
    folders_free(s->folders, s->n_folders);
    session_sites_free(s);
    publish_close(s);
    session_asks_free(s);
    policy_done(&s->policy);
    json_decref(s->receipt);
    strv_done(&s->file_roots);
    json_decref(s->env);
    json_decref(s->agent);
    json_decref(s->warnings);
    free(s->name);
    free(s->cwd);
    free(s);
}

void session_ref(struct session *s)
{
    s->refs++;
}

void session_unref(struct session *s)
{
    if (s && --s->refs == 0)
        closing_start(&s->closing);
}

const char *session_id(const struct session *s)
{
    return s->id;
}

enum session_state session_state(const struct session *s)
{
    return s->state;
}

struct watched *session_watched(struct session *s)
{
    return &s->watched;
}

const struct policy *session_policy(const struct session *s)
{
    const struct generation *g = session_generation(s);
    return g ? &g->policy : &s->policy;
}

enum provider session_provider(const struct session *s)
{
    return s->provider;
}

int64_t session_rev(const struct session *s)
{
    return s->rev;
}

/* ---- Records ----------------------------------------------------------------------------------
 */

/* FIRST: it may still come to nothing. Later the session is as it is, and the store owed. */
static int put(struct session *s, bool first)
{
    json_t *doc = session_to_json(s);
    if (!doc)
        return -ENOMEM;
    struct record r = {.kind = RECORD_SESSION,
                       .id = s->id,
                       .state = SESSION_STATE_NAMES[s->state],
                       .tier = TIER_NAMES[s->tier],
                       .text = s->name,
                       .doc = doc};
    int rc = 0;
    if (first)
        rc = record_put(s->ss->deps.db, &r);
    else
        owed_record(s->ss->deps.db, &r);
    json_decref(doc);
    return rc;
}

static void tell(const struct session *s, enum event_change change)
{
    events_emit(s->ss->deps.db,
                &(struct event){EVENT_SESSION, change, s->id, s->id, s->rev, NULL, NULL});
}

void session_changed(struct session *s)
{
    s->rev++;
    (void)put(s, false);
    tell(s, EVENT_UPDATED);
    watched_notify(&s->watched);
}

void session_touched(struct session *s)
{
    watched_notify(&s->watched);
}

static void audit(struct session *s, const struct actor *actor, const char *action,
                  const char *target, json_t *take_after, enum outcome outcome,
                  void (*give)(struct db *db, const struct audit_entry *e))
{
    json_t *enforcement = session_enforcement(s);
    struct audit_entry e = {.actor = actor,
                            .action = action,
                            .session_id = s->id,
                            .target = target,
                            .take_after = take_after,
                            .outcome = outcome,
                            .enforcement = enforcement};
    give(s->ss->deps.db, &e);
    json_decref(enforcement);
}

void session_audit(struct session *s, const struct actor *actor, const char *action,
                   const char *target, json_t *take_after, enum outcome outcome)
{
    audit(s, actor, action, target, take_after, outcome, owed_audit);
}

void session_audit_soon(struct session *s, const char *action, const char *target,
                        json_t *take_after, enum outcome outcome)
{
    audit(s, NULL, action, target, take_after, outcome, owed_audit_soon);
}

/* ---- Going on ---------------------------------------------------------------------------------
 */

struct generation *session_generation(const struct session *s)
{
    return s->now ? s->now : s->making;
}

void session_set_state(struct session *s, enum session_state state)
{
    if (s->state == state)
        return;
    s->state = state;
    log_info("session.state", "session=%s state=%s", s->id, SESSION_STATE_NAMES[state]);
    session_changed(s);
    if (state >= SESSION_STOPPING)
        session_asks_over(s);
    stop_point(SESSION_STATE_NAMES[state]);
}

json_t *session_failed_checks(const struct session *s)
{
    json_t *out = json_array(), *check;
    size_t i;
    json_array_foreach(json_object_get(s->receipt, "checks"), i, check)
    {
        if (json_is_true(json_object_get(check, "required")) &&
            !json_is_true(json_object_get(check, "ok")))
            (void)json_array_append(out, json_object_get(check, "id"));
    }
    return out;
}

static void refuse(struct session *s, const struct generation *g)
{
    s->failure = g->failure;
    s->is_refused = true;
    s->end_reason = "refused";
    if (g->was_disproved)
        session_audit(s, NULL, "wall.failed", s->failure.code,
                      json_pack("{s:o}", "checks", session_failed_checks(s)), OUTCOME_REFUSED);
    session_audit(s, NULL, s->verified_at ? "session.ended" : "session.refused", s->failure.detail,
                  NULL, OUTCOME_REFUSED);
    log_warn("session.refused", "session=%s detail=%s", s->id, s->failure.detail);
    session_set_state(s, SESSION_REFUSED);
    ending_begin(s, DOWN_KILL);
}

void session_be_ready(struct session *s)
{
    s->verified_at = s->now->verified_at;
    if (s->verified_at)
        session_audit(s, NULL, "wall.verified", PROVIDER_NAMES[s->provider], NULL, OUTCOME_OK);
    if (s->provider != PROVIDER_DIRECT)
        nested_watch(&s->nested, &s->now->policy);
    session_set_state(s, SESSION_READY);
    session_ports_follow(s); /* before any command is started */
    session_commands_ready(s);
}

/* The first sandbox, or the one in force proved again. */
static void step_proof(struct session *s)
{
    struct generation *g = session_generation(s);
    switch (g->state) {
    case GEN_STARTING:
    case GEN_CLOSING:
        return;
    case GEN_PROVING:
        session_set_state(s, SESSION_VERIFYING);
        return;
    case GEN_PROVED:
        s->now = g;
        s->making = NULL;
        session_be_ready(s);
        return;
    case GEN_FAILED:
        refuse(s, g);
        return;
    }
}

/* The wall in force died, or its runner talked nonsense. */
static void die(struct session *s)
{
    s->failure = s->now->failure;
    s->end_reason = "wall_died";
    log_warn("session.died", "session=%s detail=%s", s->id, s->failure.detail);
    session_set_state(s, SESSION_STOPPING);
    ending_begin(s, DOWN_KILL);
}

void session_generations_drop_idle(struct session *s)
{
    for (struct generation *g = s->old, *next; g; g = next) {
        next = g->next; /* G may leave the list at once */
        if (g->n_users == 0 || g->state == GEN_FAILED)
            generation_close(g);
    }
}

static void unlist(struct session *s, const struct generation *g)
{
    for (struct generation **at = &s->old; *at; at = &(*at)->next) {
        if (*at != g)
            continue;
        *at = g->next;
        return;
    }
}

void session_generation_gone(struct session *s, struct generation *g)
{
    session_commands_over(s, g);
    if (g == session_generation(s)) { /* what held stays to be shown */
        policy_done(&s->policy);
        s->policy = g->policy;
        g->policy = (struct policy){0};
    }
    if (s->now == g)
        s->now = NULL;
    if (s->making == g)
        s->making = NULL;
    unlist(s, g);
    s->n_generations--;
    session_step(s);
}

void session_step(struct session *s)
{
    if (s->down != DOWN_NOT) {
        ending_step(s);
        return;
    }
    if (s->wants_stop) {
        session_set_state(s, SESSION_STOPPING);
        ending_begin(s, DOWN_TERM);
        return;
    }
    session_generations_drop_idle(s);
    switch (s->state) {
    case SESSION_STARTING:
    case SESSION_VERIFYING:
        step_proof(s);
        return;
    case SESSION_READY:
        if (s->now->state == GEN_FAILED)
            die(s);
        return;
    case SESSION_RESTARTING:
        renewal_step(s);
        return;
    case SESSION_STOPPING:
    case SESSION_ENDED:
    case SESSION_REFUSED:
        return;
    }
}

static void deadline_passed(struct deadline *d)
{
    struct session *s = container_of(d, struct session, deadline);
    if (s->down == DOWN_TERM)
        ending_begin(s, DOWN_KILL);
}

/* ---- Making one -------------------------------------------------------------------------------
 */

static int make_recorded(struct session *s, struct err *err)
{
    if (db_is_full(s->ss->deps.db))
        return err_set(err, -ENOSPC, "disk_full", "free some space for the state folder",
                       "nothing can be recorded, so nothing is started");
    json_t *enforcement = session_enforcement(s);
    int r = audit_add(s->ss->deps.db, &(struct audit_entry){.actor = &s->creator,
                                                            .action = "session.created",
                                                            .session_id = s->id,
                                                            .target = s->folders[0].path,
                                                            .outcome = OUTCOME_OK,
                                                            .enforcement = enforcement});
    json_decref(enforcement);
    if (r == 0)
        r = put(s, true);
    if (r == 0)
        r = session_sites_put(s);
    if (r == 0)
        r = db_commit(s->ss->deps.db);
    if (r < 0)
        return err_set(err, r, "disk_full", "free some space for the state folder",
                       "nothing can be recorded, so nothing is started");
    tell(s, EVENT_CREATED);
    return 0;
}

struct session *session_alloc(struct sessions *ss, const struct actor *actor)
{
    struct session *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->ss = ss;
    s->refs = 1;
    s->rev = 1;
    s->private_lock = -1;
    s->created_at = clock_wall_ms();
    s->warnings = json_array();
    s->stop_grace_ms = SESSION_GRACE_MS;
    s->ender = (struct actor){.kind = ACTOR_DAEMON, .peer_uid = -1};
    s->creator = actor ? *actor : s->ender;
    id_new("ses", s->id);
    closing_init(&s->closing, session_free);
    deadline_init(ss->deps.loop, &s->deadline, &s->closing, deadline_passed);
    renewal_init(s);
    session_asks_init(s);
    return s;
}

static int prepare(struct session *s, const struct session_spec *spec, struct policy *ret,
                   struct err *err)
{
    int r = spec_apply(s, spec, err);
    if (r == 0)
        r = publish_open(s, err);
    if (r == 0 && s->provider != PROVIDER_DIRECT)
        r = private_new(&s->private_dir, &s->private_lock, err);
    stop_point("private-made");
    struct shape shape = session_shape(s);
    if (r == 0)
        r = session_policy_make(s, &shape, ret, err);
    if (r == 0) {
        session_warn_of(s, ret);
        r = make_recorded(s, err);
    }
    return r;
}

static int make(struct session *s, const struct session_spec *spec, struct err *err)
{
    struct policy policy = {0};
    int r = prepare(s, spec, &policy, err);
    if (r == 0 && (r = generation_new(s, &policy, &s->making)) < 0)
        (void)err_set(err, r, "internal", NULL, "out of memory");
    policy_done(&policy);
    if (r < 0 && s->private_dir) {
        (void)private_remove(s->private_dir);
        session_private_drop(s);
    }
    return r;
}

int session_create(struct sessions *ss, const struct session_spec *spec, const struct actor *actor,
                   struct session **ret, struct err *err)
{
    if (ss->is_stopping)
        return err_set(err, -ECANCELED, "shutting_down", NULL, "the daemon is going down");
    if (ss->n >= SESSIONS_MAX)
        return err_set(err, -E2BIG, "too_many", "stop a session", "%d sessions are alive",
                       SESSIONS_MAX);
    struct session *s = session_alloc(ss, actor);
    if (!s)
        return err_set(err, -ENOMEM, "internal", NULL, "out of memory");
    s->caller_env = spec->caller_env;
    int r = make(s, spec, err);
    if (r < 0) {
        publish_close(s); /* now: the next request may want the ports */
        session_unref(s);
        return r;
    }
    s->n_generations = 1;
    ss->items[ss->n++] = s;
    *ret = s;
    return 0;
}

/* ---- What clients change ----------------------------------------------------------------------
 */

void session_stop(struct session *s, uint64_t grace_ms, const char *reason,
                  const struct actor *actor)
{
    if (s->down == DOWN_TERM && grace_ms < s->stop_grace_ms) { /* a second, less patient one */
        s->stop_grace_ms = grace_ms;
        deadline_set(&s->deadline, grace_ms);
    }
    if (s->wants_stop || s->down != DOWN_NOT)
        return;
    s->wants_stop = true;
    s->stop_grace_ms = grace_ms;
    s->end_reason = reason;
    if (actor)
        s->ender = *actor;
    session_step(s);
}

int session_verify(struct session *s, struct err *err)
{
    if (s->provider == PROVIDER_DIRECT)
        return err_set(err, -EINVAL, "session_not_ready", "make a session with require_wall",
                       "this session has no wall to prove");
    if (s->state > SESSION_RESTARTING)
        return err_set(err, -ESTALE, "session_ended", NULL, "the session is %s",
                       SESSION_STATE_NAMES[s->state]);
    if (s->state != SESSION_READY)
        return 0; /* it is being proved as it is */
    session_set_state(s, SESSION_VERIFYING);
    int r = generation_prove_again(s->now, err);
    if (r < 0)
        session_set_state(s, SESSION_READY);
    return r;
}

static int change(struct session *s, const struct actor *actor, const char *member,
                  const char *value)
{
    session_audit(s, actor, "session.changed", s->name, json_pack("{s:s}", member, value),
                  OUTCOME_OK);
    session_changed(s);
    return 0;
}

int session_rename(struct session *s, const char *name, const struct actor *actor)
{
    char *copy = strdup(name);
    if (!copy)
        return -ENOMEM;
    free(s->name);
    s->name = copy;
    return change(s, actor, "name", name);
}

int session_set_approvals(struct session *s, enum approvals a, const struct actor *actor)
{
    s->approvals = a;
    session_asks_recheck(s);
    return change(s, actor, "approvals", APPROVALS_NAMES[a]);
}
