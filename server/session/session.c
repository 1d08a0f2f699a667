/* Runs in: daemon. Reads: trusted (its children's words come through the links). May block: no.
 *
 * The step machine of one session. Callbacks record what happened and call session_step; that alone
 * decides what comes next. */
#include "base/log.h"
#include "session/parts.h"
#include "store/records.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *const SESSION_STATE_NAMES[] = {"starting", "verifying", "ready",   "restarting",
                                           "stopping", "ended",     "refused", NULL};
const char *const APPROVALS_NAMES[] = {"ask", "auto", "full", NULL};

/* ---- References -------------------------------------------------------------------------------
 */

static void session_free(struct closing *closing)
{
    struct session *s = container_of(closing, struct session, closing);
    for (size_t i = 0; i < s->n_folders; i++) {
        free(s->folders[i].id);
        free(s->folders[i].path);
        free(s->folders[i].real);
    }
    session_sites_free(s);
    policy_done(&s->policy);
    proof_done(&s->proof);
    strv_done(&s->file_roots);
    json_decref(s->env);
    json_decref(s->agent);
    json_decref(s->warnings);
    free(s->way_out_why);
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
    return &s->policy;
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

int session_put(struct session *s)
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
    if (s->state >= SESSION_ENDED)
        sessions_record(s->ss, &r);
    else
        rc = record_put(s->ss->deps.db, &r);
    json_decref(doc);
    return rc;
}

void session_changed(struct session *s)
{
    s->rev++;
    (void)session_put(s);
    watched_notify(&s->watched);
}

void session_touched(struct session *s)
{
    watched_notify(&s->watched);
}

void session_audit(struct session *s, const struct actor *actor, const char *action,
                   const char *target, json_t *take_after, enum outcome outcome)
{
    json_t *enforcement = session_enforcement(s);
    struct audit_entry e = {.actor = actor,
                            .action = action,
                            .session_id = s->id,
                            .target = target,
                            .take_after = take_after,
                            .outcome = outcome,
                            .enforcement = enforcement};
    int r = audit_add(s->ss->deps.db, &e);
    if (r < 0)
        log_error("audit.lost", "action=%s session=%s errno=%d", action, s->id, -r);
    json_decref(enforcement);
}

void session_warn(struct session *s, const char *code, const char *detail)
{
    log_warn("session.warning", "session=%s code=%s detail=%s", s->id, code, detail);
    (void)json_array_append_new(s->warnings,
                                json_pack("{s:s, s:s}", "code", code, "detail", detail));
}

/* ---- Going on ---------------------------------------------------------------------------------
 */

bool session_wants_egress(const struct session *s)
{
    return s->provider != PROVIDER_DIRECT && s->network != NET_NONE;
}

void session_fail(struct session *s, const struct err *err)
{
    if (!err_is_set(&s->failure))
        s->failure = *err;
    session_step(s);
}

static void fail_with(struct session *s, const char *hint, const char *detail)
{
    struct err err = {0};
    err_set(&err, -EIO, "session_refused", hint, "%s", detail);
    if (!err_is_set(&s->failure))
        s->failure = err;
}

static void set_state(struct session *s, enum session_state state)
{
    if (s->state == state)
        return;
    s->state = state;
    log_info("session.state", "session=%s state=%s", s->id, SESSION_STATE_NAMES[state]);
    session_changed(s);
}

static json_t *failed_checks(const struct session *s)
{
    json_t *out = json_array();
    for (size_t i = 0; s->has_proof && i < s->proof.n_checks; i++)
        if (s->proof.checks[i].required && !s->proof.checks[i].ok)
            (void)json_array_append_new(out, json_string(s->proof.checks[i].id));
    return out;
}

static void begin_down(struct session *s, enum down down);

static void refuse(struct session *s)
{
    bool was_ready = s->verified_at != 0;
    s->is_refused = true;
    s->end_reason = "refused";
    if (s->has_proof)
        session_audit(s, NULL, "wall.failed", s->failure.code,
                      json_pack("{s:o}", "checks", failed_checks(s)), OUTCOME_REFUSED);
    session_audit(s, NULL, was_ready ? "session.ended" : "session.refused", s->failure.detail, NULL,
                  OUTCOME_REFUSED);
    log_warn("session.refused", "session=%s detail=%s", s->id, s->failure.detail);
    set_state(s, SESSION_REFUSED);
    begin_down(s, DOWN_KILL);
}

static bool is_up(const struct session *s)
{
    return s->is_launched && (!session_wants_egress(s) || s->way_out == WAY_READY);
}

static void become_ready(struct session *s)
{
    deadline_clear(&s->deadline);
    if (s->has_proof) {
        s->verified_at = s->proof.verified_at;
        session_audit(s, NULL, "wall.verified", PROVIDER_NAMES[s->provider], NULL, OUTCOME_OK);
    }
    s->proved_ms = clock_now_ms();
    set_state(s, SESSION_READY);
    session_commands_ready(s);
}

static void step_starting(struct session *s)
{
    struct err err = {0};
    if (s->way_out == WAY_DEAD)
        fail_with(s, "see the daemon's log", s->way_out_why ? s->way_out_why : "no egress");
    if (err_is_set(&s->failure)) {
        refuse(s);
        return;
    }
    if (!is_up(s))
        return;
    if (s->provider == PROVIDER_DIRECT) {
        become_ready(s);
        return;
    }
    set_state(s, SESSION_VERIFYING);
    if (proof_run_start(s, &err) < 0)
        session_fail(s, &err);
}

static void judge(struct session *s)
{
    s->proof.landlock_abi = wall_landlock_abi(s->wall);
    bool ok = proof_judge(&s->proof);
    proof_run_clear(s);
    json_decref(s->ss->last_checks);
    s->ss->last_checks = session_proof_json(s);
    s->ss->last_proof_ok = ok;
    if (ok) {
        become_ready(s);
        return;
    }
    struct str why = {0};
    const char *hint = "cordon status --why";
    for (size_t i = 0; i < s->proof.n_checks; i++)
        if (s->proof.checks[i].required && !s->proof.checks[i].ok)
            (void)str_printf(&why, "%s%s: %s", why.len ? "; " : "", s->proof.checks[i].id,
                             s->proof.checks[i].detail);
    fail_with(s, hint, why.len ? str_c(&why) : "the proof has no answer");
    str_done(&why);
    refuse(s);
}

static void step_verifying(struct session *s)
{
    if (s->way_out == WAY_DEAD)
        fail_with(s, "see the daemon's log", s->way_out_why ? s->way_out_why : "no egress");
    if (err_is_set(&s->failure)) {
        refuse(s);
        return;
    }
    if (!s->has_proof && is_up(s)) { /* verify again waited for a new egress */
        struct err err = {0};
        if (proof_run_start(s, &err) < 0)
            session_fail(s, &err);
        return;
    }
    if (s->has_proof && proof_run_is_over(s))
        judge(s);
}

static void step_ready(struct session *s)
{
    if (err_is_set(&s->failure)) { /* the wall died, or its runner talked nonsense */
        s->end_reason = "wall_died";
        log_warn("session.died", "session=%s detail=%s", s->id, s->failure.detail);
        set_state(s, SESSION_STOPPING);
        begin_down(s, DOWN_KILL);
    }
}

/* ---- The end ----------------------------------------------------------------------------------
 */

static bool anything_lives(const struct session *s)
{
    return s->n_running + s->n_tails > 0;
}

static void one_down(struct session *s)
{
    s->n_down--;
    session_step(s);
}

static void part_closed(void *arg)
{
    one_down(arg);
}

/* In a thread: reads the path alone, which stays until private_removed. */
static void remove_private(uv_work_t *work)
{
    struct session *s = container_of(work, struct session, removal);
    int r = private_remove(s->private_dir);
    if (r < 0)
        log_error("session.private", "session=%s path=%s errno=%d", s->id, s->private_dir, -r);
}

static void drop_private(struct session *s)
{
    fd_done(&s->private_lock);
    free(TAKE(s->private_dir));
}

static void private_removed(uv_work_t *work, int status)
{
    struct session *s = container_of(work, struct session, removal);
    if (status < 0)
        remove_private(work);
    drop_private(s);
    one_down(s);
}

static void down_term(struct session *s)
{
    if (!anything_lives(s) || !s->runner || s->stop_grace_ms == 0) {
        begin_down(s, DOWN_KILL);
        return;
    }
    (void)runner_link_term_all(s->runner);
    deadline_set(&s->deadline, s->stop_grace_ms);
}

static void down_kill(struct session *s)
{
    deadline_clear(&s->deadline);
    s->n_down = 1; /* ours, so that no callback ends it while we are here */
    runner_link_close(TAKE(s->runner));
    if (s->wall) {
        s->n_down++;
        wall_close(TAKE(s->wall), part_closed, s);
    }
    if (s->egress) {
        s->n_down++;
        egress_link_close(TAKE(s->egress), part_closed, s);
    }
    one_down(s);
}

static void down_remove(struct session *s)
{
    session_commands_over(s);
    proof_run_clear(s);
    s->n_down = 1;
    if (s->private_dir) {
        s->n_down++;
        if (uv_queue_work(s->ss->deps.loop, &s->removal, remove_private, private_removed) < 0) {
            remove_private(&s->removal);
            drop_private(s);
            s->n_down--;
        }
    }
    one_down(s);
}

static void down_over(struct session *s)
{
    struct sessions *ss = s->ss;
    (void)sites_of_session_delete(ss->deps.db, s->id);
    s->ended_at = clock_wall_ms();
    if (!s->is_refused) {
        session_audit(s, &s->ender, "session.ended", s->end_reason, NULL, OUTCOME_OK);
        set_state(s, SESSION_ENDED);
    } else {
        session_changed(s);
    }
    if (s->ended)
        s->ended(s, s->ended_arg);
    sessions_remove(ss, s); /* may free S */
}

static void begin_down(struct session *s, enum down down)
{
    s->down = down;
    switch (down) {
    case DOWN_TERM:
        down_term(s);
        return;
    case DOWN_KILL:
        down_kill(s);
        return;
    case DOWN_REMOVE:
        down_remove(s);
        return;
    case DOWN_OVER:
        down_over(s);
        return;
    case DOWN_NOT:
        return;
    }
}

static void step_down(struct session *s)
{
    switch (s->down) {
    case DOWN_TERM:
        if (!anything_lives(s) || err_is_set(&s->failure))
            begin_down(s, DOWN_KILL);
        return;
    case DOWN_KILL:
        if (s->n_down == 0)
            begin_down(s, DOWN_REMOVE);
        return;
    case DOWN_REMOVE:
        if (s->n_down == 0)
            begin_down(s, DOWN_OVER);
        return;
    case DOWN_OVER:
    case DOWN_NOT:
        return;
    }
}

void session_step(struct session *s)
{
    if (s->down != DOWN_NOT) {
        step_down(s);
        return;
    }
    if (s->wants_stop) {
        set_state(s, SESSION_STOPPING);
        begin_down(s, DOWN_TERM);
        return;
    }
    switch (s->state) {
    case SESSION_STARTING:
        step_starting(s);
        return;
    case SESSION_VERIFYING:
        step_verifying(s);
        return;
    case SESSION_READY:
        step_ready(s);
        return;
    case SESSION_RESTARTING:
    case SESSION_STOPPING:
    case SESSION_ENDED:
    case SESSION_REFUSED:
        return;
    }
}

static void deadline_passed(struct deadline *d)
{
    struct session *s = container_of(d, struct session, deadline);
    if (s->down == DOWN_TERM) {
        begin_down(s, DOWN_KILL);
        return;
    }
    if (s->state <= SESSION_VERIFYING && !err_is_set(&s->failure))
        fail_with(s, "look at the load of the machine, then try again",
                  "the wall was not up in time");
    session_step(s);
}

/* ---- What its parts report --------------------------------------------------------------------
 */

static void runner_ended(int r, void *arg)
{
    struct session *s = arg;
    fail_with(s, "see the daemon's log",
              r == -EBADMSG ? "the runner sent nonsense" : "the runner ended");
    session_step(s);
}

static int runner_start_failed(uint32_t id, enum start_stage stage, uint32_t error, void *arg)
{
    return command_start_failed(arg, id, stage, error);
}

static void wall_died(struct wall *w, int status, void *arg)
{
    struct session *s = arg;
    (void)w;
    (void)status;
    fail_with(s, "see the daemon's log", "the wall's process ended");
    session_step(s);
}

static void wall_launched(struct wall *w, int r, const struct err *err, void *arg)
{
    static const struct runner_events events = {runner_ended, runner_start_failed};
    struct session *s = arg;
    size_t n_doors = 0;
    s->launched_ms = clock_now_ms();
    if (r < 0) {
        if (!err_is_set(&s->failure) && err)
            s->failure = *err;
        fail_with(s, "cordon status --why", "the wall could not be put up");
        session_step(s);
        return;
    }
    wall_on_death(w, wall_died, s);
    r = runner_link_new(s->ss->deps.loop, wall_take_control(w), &events, s, &s->runner);
    if (r == 0 && s->egress) {
        const int *doors = wall_doors(w, &n_doors);
        r = egress_link_doors(s->egress, doors, n_doors);
    }
    s->is_launched = true;
    if (r < 0)
        fail_with(s, NULL, strerror(-r));
    session_step(s);
}

/* ---- Making one -------------------------------------------------------------------------------
 */

static int launch(struct session *s, struct err *err)
{
    struct wall_request rq = {.policy = &s->policy,
                              .machine = s->ss->deps.machine,
                              .want_doors = session_wants_egress(s),
                              .deadline_ms = SESSION_START_MS};
    int r = wall_launch(s->ss->deps.loop, s->provider, &rq, wall_launched, s, &s->wall, err);
    if (r == 0 && session_wants_egress(s))
        r = egress_link_new(s, &s->egress, err);
    return r;
}

static int make_recorded(struct session *s, struct err *err)
{
    if (db_is_full(s->ss->deps.db))
        return err_set(err, -ENOSPC, "disk_full", "free some space for the state folder",
                       "nothing can be recorded, so nothing is started");
    session_audit(s, &s->creator, "session.created", s->folders[0].path, NULL, OUTCOME_OK);
    int r = session_put(s);
    if (r == 0)
        r = session_sites_put(s);
    if (r == 0)
        r = db_commit(s->ss->deps.db);
    return r < 0 ? err_set(err, r, "disk_full", "free some space for the state folder",
                           "nothing can be recorded, so nothing is started")
                 : 0;
}

static void add_warnings(struct session *s)
{
    for (size_t i = 0; i < s->policy.warnings.n; i++) {
        const char *text = s->policy.warnings.items[i], *colon = strstr(text, ": ");
        char code[40];
        (void)snprintf(code, sizeof code, "%.*s", colon ? (int)(colon - text) : 0, text);
        session_warn(s, colon ? code : "path_dropped", colon ? colon + 2 : text);
    }
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
    s->created_ms = clock_now_ms();
    s->warnings = json_array();
    s->stop_grace_ms = SESSION_GRACE_MS;
    s->ender = (struct actor){.kind = ACTOR_DAEMON, .peer_uid = -1};
    s->creator = actor ? *actor : s->ender;
    id_new("ses", s->id);
    closing_init(&s->closing, session_free);
    deadline_init(ss->deps.loop, &s->deadline, &s->closing, deadline_passed);
    return s;
}

static int prepare(struct session *s, const struct session_spec *spec, struct err *err)
{
    int r = spec_apply(s, spec, err);
    if (r == 0 && s->provider != PROVIDER_DIRECT)
        r = private_new(&s->private_dir, &s->private_lock, err);
    if (r == 0)
        r = session_policy_make(s, spec->caller_env, err);
    if (r == 0) {
        add_warnings(s);
        r = make_recorded(s, err);
    }
    if (r < 0 && s->private_dir) {
        remove_private(&s->removal);
        drop_private(s);
    }
    return r;
}

int session_create(struct sessions *ss, const struct session_spec *spec, const struct actor *actor,
                   struct session **ret, struct err *err)
{
    struct err why = {0};
    if (ss->is_stopping)
        return err_set(err, -ECANCELED, "shutting_down", NULL, "the daemon is going down");
    if (ss->n >= SESSIONS_MAX)
        return err_set(err, -E2BIG, "too_many", "stop a session", "%d sessions are alive",
                       SESSIONS_MAX);
    struct session *s = session_alloc(ss, actor);
    if (!s)
        return err_set(err, -ENOMEM, "internal", NULL, "out of memory");
    int r = prepare(s, spec, err);
    if (r < 0) {
        session_unref(s);
        return r;
    }
    ss->items[ss->n++] = s;
    deadline_set(&s->deadline, SESSION_START_MS);
    if (launch(s, &why) < 0) {
        /* Told on the loop, so that the caller sees a session that starts and is then refused. */
        fail_with(s, why.hint, err_is_set(&why) ? why.detail : "the wall could not be started");
        deadline_set(&s->deadline, 0);
    }
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
    if (s->state > SESSION_READY)
        return err_set(err, -ESTALE, "session_ended", NULL, "the session is %s",
                       SESSION_STATE_NAMES[s->state]);
    if (s->state != SESSION_READY)
        return 0; /* it is being proved as it is */
    proof_done(&s->proof);
    s->proof = (struct proof){0};
    s->has_proof = false;
    if (s->way_out == WAY_DEAD) { /* a new one, on the daemon's copies of the doors */
        size_t n = 0;
        const int *doors = wall_doors(s->wall, &n);
        egress_link_close(TAKE(s->egress), NULL, NULL);
        int r = egress_link_new(s, &s->egress, err);
        if (r == 0)
            r = egress_link_doors(s->egress, doors, n);
        if (r < 0)
            return err_set(err, r, "internal", NULL, "the egress could not be started");
    }
    deadline_set(&s->deadline, SESSION_START_MS);
    set_state(s, SESSION_VERIFYING);
    session_step(s);
    return 0;
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
    return change(s, actor, "approvals", APPROVALS_NAMES[a]);
}
