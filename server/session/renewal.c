/* Runs in: daemon. Reads: trusted. May block: briefly (stat of folders inside folders).
 *
 * A new sandbox beside the one in force: made, proved, and only then does it take over. Where it
 * cannot be made, all stays as it was. */
#include "base/log.h"
#include "session/parts.h"
#include <errno.h>
#include <string.h>

#define GENERATIONS_MAX 8 /* of one session: those in which something still runs are kept */

struct shape session_shape(const struct session *s)
{
    return (struct shape){s->tier, s->network, s->folders, s->n_folders};
}

/* Its end, told once: ERR is NULL when the new sandbox took over or the session ends. */
void renewal_over(struct session *s, const struct err *err)
{
    struct renewal *rn = &s->renewal;
    struct err ended = {0};
    session_renewed_fn *done = TAKE(rn->done);
    if (!done)
        return;
    if (!err && s->down != DOWN_NOT) {
        (void)err_set(&ended, -ESTALE, "session_ended", NULL, "the session ended");
        err = &ended;
    }
    done(s, err, rn->arg);
}

/* ---- Beginning --------------------------------------------------------------------------------
 */

static int check_ready(const struct session *s, struct err *err)
{
    if (s->state == SESSION_READY && s->n_generations < GENERATIONS_MAX)
        return 0;
    if (s->state == SESSION_READY)
        return err_set(err, -E2BIG, "too_many", "stop what still runs in them, or use stop_running",
                       "%d sandboxes of the session have something running", GENERATIONS_MAX);
    if (s->state < SESSION_STOPPING || s->state == SESSION_REFUSED)
        return err_set(err, -EAGAIN, "session_not_ready", "wait until it is ready",
                       "the session is %s", SESSION_STATE_NAMES[s->state]);
    return err_set(err, -ESTALE, "session_ended", NULL, "the session is %s",
                   SESSION_STATE_NAMES[s->state]);
}

static int begin(struct session *s, const struct shape *shape, const struct renewal *rn,
                 struct err *err)
{
    struct policy policy = {0};
    int r = check_ready(s, err);
    if (r == 0)
        r = session_policy_make(s, shape, &policy, err);
    if (r < 0)
        return r;
    if (generation_new(s, &policy, &s->making) < 0)
        return err_set(err, -ENOMEM, "internal", NULL, "out of memory");
    s->n_generations++;
    s->renewal = *rn;
    log_info("session.renewal", "session=%s reason=%s", s->id, rn->reason);
    session_set_state(s, SESSION_RESTARTING);
    return 0;
}

int session_restart(struct session *s, bool stop_running, const struct actor *actor,
                    session_renewed_fn *done, void *arg, struct err *err)
{
    struct shape shape = session_shape(s);
    struct renewal rn = {.actor = actor ? *actor : s->ender,
                         .reason = "asked for",
                         .is_asked_for = true,
                         .stop_running = stop_running,
                         .done = done,
                         .arg = arg};
    return begin(s, &shape, &rn, err);
}

/* ---- Going on ---------------------------------------------------------------------------------
 */

static void take_over(struct session *s)
{
    struct generation *before = s->now;
    s->now = TAKE(s->making);
    before->next = s->old;
    s->old = before;
    session_audit(s, &s->renewal.actor, "session.restarted", s->renewal.reason, NULL, OUTCOME_OK);
    if (s->renewal.stop_running)
        session_commands_stop(s, before);
    session_be_ready(s);
    renewal_over(s, NULL);
    session_generations_drop_idle(s);
}

static void give_up(struct session *s)
{
    struct generation *g = s->making;
    struct err err = {0};
    (void)err_set(&err, -EIO, "wall_unavailable", g->failure.hint, "%s", g->failure.detail);
    session_audit(s, &s->renewal.actor, "wall.failed", s->renewal.reason,
                  g->was_disproved ? json_pack("{s:o}", "checks", session_failed_checks(s)) : NULL,
                  OUTCOME_REFUSED);
    log_warn("session.renewal", "session=%s failed=%s", s->id, g->failure.detail);
    s->making = NULL;
    g->next = s->old;
    s->old = g;
    session_set_state(s, SESSION_READY);
    renewal_over(s, &err);
    if (s->now->state == GEN_PROVED)
        session_commands_ready(s);
    session_step(s); /* G is dropped */
}

void renewal_step(struct session *s)
{
    if (s->making->state == GEN_PROVED)
        take_over(s);
    else if (s->making->state == GEN_FAILED)
        give_up(s);
}
