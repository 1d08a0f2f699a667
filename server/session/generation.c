/* Runs in: daemon. Reads: trusted (its children's words come through the links). May block: no. */
#include "session/generation.h"
#include "base/log.h"
#include "sandbox/provider.h"
#include "session/parts.h"
#include "store/events.h"
#include <errno.h>
#include <string.h>

static bool generation_wants_egress(const struct generation *g)
{
    return g->s->provider != PROVIDER_DIRECT && g->policy.network != NET_NONE;
}

static void note_failure(struct generation *g, int r, const char *hint, const char *detail)
{
    if (!err_is_set(&g->failure))
        (void)err_set(&g->failure, r, "session_refused", hint, "%s", detail);
}

void generation_fail(struct generation *g, int r, const char *hint, const char *detail)
{
    note_failure(g, r, hint, detail);
    generation_step(g);
}

static bool is_up(const struct generation *g)
{
    return g->is_launched && (!generation_wants_egress(g) || g->way_out == WAY_READY);
}

/* ---- Going on ---------------------------------------------------------------------------------
 */

static void begin_proof(struct generation *g)
{
    struct err err = {0};
    g->state = GEN_PROVING;
    if (proof_run_start(g, &err) < 0 && !err_is_set(&g->failure))
        g->failure = err;
}

static void be_proved(struct generation *g)
{
    deadline_clear(&g->deadline);
    g->state = GEN_PROVED;
}

static void step_starting(struct generation *g)
{
    if (!is_up(g))
        return;
    if (g->s->provider == PROVIDER_DIRECT)
        be_proved(g);
    else
        begin_proof(g);
}

static void judge(struct generation *g)
{
    struct sessions *ss = g->s->ss;
    g->proof.landlock_abi = wall_landlock_abi(g->wall);
    g->proof.held = wall_group_holds(g->wall);
    bool ok = proof_judge(&g->proof);
    json_t *receipt = proof_to_json(&g->proof);
    json_t *last = json_object_get(ss->last_checks, "checks");
    if (ok != ss->last_proof_ok || !json_equal(last, json_object_get(receipt, "checks")))
        events_emit(ss->deps.db,
                    &(struct event){EVENT_WALL, EVENT_UPDATED, "wall", NULL, 0, NULL, NULL});
    json_decref(g->s->receipt);
    g->s->receipt = receipt;
    json_decref(ss->last_checks);
    ss->last_checks = json_incref(receipt);
    ss->last_proof_ok = ok;
    if (ok) {
        g->verified_at = g->proof.verified_at;
        be_proved(g);
    } else {
        g->was_disproved = true;
        CLEANUP(str_done) struct str why = {0};
        for (size_t i = 0; i < g->proof.n_checks; i++)
            if (g->proof.checks[i].required && !g->proof.checks[i].ok)
                (void)str_printf(&why, "%s%s: %s", why.len ? "; " : "", g->proof.checks[i].id,
                                 g->proof.checks[i].detail);
        note_failure(g, -EIO, "cordon status --why",
                     why.len ? str_c(&why) : "the proof has no answer");
    }
    proof_run_clear(g);
}

static void step_proving(struct generation *g)
{
    if (!g->has_proof && is_up(g)) /* proving again waited for a new egress */
        begin_proof(g);
    else if (g->has_proof && proof_run_is_over(g))
        judge(g);
}

void generation_step(struct generation *g)
{
    if (g->state >= GEN_FAILED)
        return;
    if (g->way_out == WAY_DEAD && g->state < GEN_PROVED)
        note_failure(g, -EIO, "see the daemon's log",
                     g->way_out_why ? g->way_out_why : "no egress");
    if (g->state == GEN_STARTING && !err_is_set(&g->failure))
        step_starting(g);
    else if (g->state == GEN_PROVING && !err_is_set(&g->failure))
        step_proving(g);
    if (err_is_set(&g->failure)) {
        deadline_clear(&g->deadline);
        g->state = GEN_FAILED;
    }
    session_step(g->s);
}

static void deadline_passed(struct deadline *d)
{
    struct generation *g = container_of(d, struct generation, deadline);
    if (g->state >= GEN_PROVED)
        return;
    generation_fail(g, -ETIMEDOUT, "look at the load of the machine, then try again",
                    "the wall was not up in time");
}

/* ---- What its parts report --------------------------------------------------------------------
 */

static void runner_ended(int r, void *arg)
{
    generation_fail(arg, -EIO, "see the daemon's log",
                    r == -EBADMSG ? "the runner sent nonsense" : "the runner ended");
}

static int runner_start_failed(uint32_t id, enum start_stage stage, uint32_t error, void *arg)
{
    return command_start_failed(arg, id, stage, error);
}

static void wall_died(struct wall *w, int status, void *arg)
{
    (void)w;
    (void)status;
    generation_fail(arg, -EIO, "see the daemon's log", "the wall's process ended");
}

static void wall_launched(struct wall *w, int r, const struct err *err, void *arg)
{
    static const struct runner_events events = {runner_ended, runner_start_failed};
    struct generation *g = arg;
    size_t n_doors = 0;
    if (r < 0) {
        if (!err_is_set(&g->failure) && err)
            g->failure = *err;
        generation_fail(g, r, "cordon status --why", "the wall could not be put up");
        return;
    }
    wall_on_death(w, wall_died, g);
    if (generation_wants_egress(g) && !wall_has_redirect(w))
        session_warn_unredirected(g->s);
    r = runner_link_new(g->s->ss->deps.loop, wall_take_control(w), &events, g, &g->runner);
    if (r == 0 && g->egress) {
        const int *doors = wall_doors(w, &n_doors);
        r = egress_link_doors(g->egress, doors, n_doors);
    }
    g->is_launched = true;
    if (r < 0)
        note_failure(g, r, NULL, strerror(-r));
    generation_step(g);
}

/* ---- Its life ---------------------------------------------------------------------------------
 */

static void generation_free(struct closing *closing)
{
    struct generation *g = container_of(closing, struct generation, closing);
    policy_done(&g->policy);
    fd_close(g->names);
    generation_ports_free(g);
    free(g->way_out_why);
    free(g);
}

static int launch(struct generation *g, struct err *err)
{
    const struct session *s = g->s;
    struct wall_request rq = {.policy = &g->policy,
                              .machine = s->ss->deps.machine,
                              .want_doors = generation_wants_egress(g),
                              .want_redirect = true,
                              .deadline_ms = SESSION_START_MS};
    int r = wall_launch(s->ss->deps.loop, s->provider, &rq, wall_launched, g, &g->wall, err);
    if (r == 0 && rq.want_doors)
        r = egress_link_new(g, &g->egress, err);
    return r;
}

int generation_new(struct session *s, struct policy *take_policy, struct generation **ret)
{
    struct err err = {0};
    struct generation *g = calloc(1, sizeof *g);
    if (!g) {
        policy_done(take_policy);
        return -ENOMEM;
    }
    g->s = s;
    g->names = -1;
    g->policy = *take_policy;
    *take_policy = (struct policy){0};
    closing_init(&g->closing, generation_free);
    deadline_init(s->ss->deps.loop, &g->deadline, &g->closing, deadline_passed);
    deadline_init(s->ss->deps.loop, &g->revival, &g->closing, way_out_revive);
    deadline_set(&g->deadline, SESSION_START_MS);
    if (launch(g, &err) < 0) {
        /* Told on the loop, so that the caller sees one that starts and then fails. */
        note_failure(g, -EIO, err.hint,
                     err_is_set(&err) ? err.detail : "the wall could not be started");
        deadline_set(&g->deadline, 0);
    }
    *ret = g;
    return 0;
}

int generation_egress_again(struct generation *g, struct err *err)
{
    size_t n = 0;
    const int *doors = wall_doors(g->wall, &n); /* the daemon's copies */
    egress_link_close(TAKE(g->egress), NULL, NULL);
    int r = egress_link_new(g, &g->egress, err);
    if (r == 0)
        r = egress_link_doors(g->egress, doors, n);
    return r < 0 ? err_set(err, r, "internal", NULL, "the egress could not be started") : 0;
}

int generation_prove_again(struct generation *g, struct err *err)
{
    int r = g->way_out == WAY_DEAD ? generation_egress_again(g, err) : 0;
    if (r < 0)
        return r;
    deadline_clear(&g->revival);
    g->n_revivals = 0;
    deadline_set(&g->deadline, SESSION_START_MS);
    g->state = GEN_PROVING;
    generation_step(g);
    return 0;
}

void generation_left(struct generation *g)
{
    if (--g->n_users == 0)
        session_step(g->s);
}

static void one_down(void *arg)
{
    struct generation *g = arg;
    if (--g->n_down > 0)
        return;
    session_generation_gone(g->s, g);
    closing_start(&g->closing);
}

void generation_close(struct generation *g)
{
    if (!g || g->state == GEN_CLOSING)
        return;
    g->state = GEN_CLOSING;
    g->n_down = 1; /* ours, so that no callback ends it while we are here */
    deadline_clear(&g->deadline);
    deadline_clear(&g->revival);
    runner_link_close(TAKE(g->runner));
    proof_run_clear(g);
    if (g->wall) {
        g->n_down++;
        wall_close(TAKE(g->wall), one_down, g);
    }
    if (g->egress) {
        g->n_down++;
        egress_link_close(TAKE(g->egress), one_down, g);
    }
    one_down(g);
}
