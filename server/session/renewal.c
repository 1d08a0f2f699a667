/* Runs in: daemon. Reads: trusted. May block: briefly (lstat of folders inside folders).
 *
 * A new sandbox beside the one in force: made, proved, and only then does it take over. Where it
 * cannot be made, all stays as it was; but when it is due because a folder inside another was
 * replaced, nothing new starts behind the old wall, which no longer keeps what it should. */
#include "base/log.h"
#include "session/parts.h"
#include <errno.h>
#include <string.h>

#define GENERATIONS_MAX 8    /* of one session: those in which something still runs are kept */
#define REPLACED_MS     3000 /* how long a replaced folder may take to be there and stay */
#define LOOK_MS         20

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
    deadline_clear(&rn->clock);
    if (!done)
        return;
    if (!err && s->down != DOWN_NOT) {
        (void)err_set(&ended, -ESTALE, "session_ended", NULL, "the session ended");
        err = &ended;
    }
    done(s, err, rn->arg);
}

/* ---- Making it --------------------------------------------------------------------------------
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

/* -ENOENT: a folder is not there now, and may come. */
static int make(struct session *s, struct err *err)
{
    struct policy_folder folders[SESSION_FOLDERS];
    struct policy policy = {0};
    struct shape shape = session_shape(s);
    memcpy(folders, s->folders, sizeof folders); /* their texts are borrowed */
    int r = nested_look(folders, s->n_folders);
    if (r < 0)
        return err_set(err, r, "wall_unavailable", "make it again, or end the session",
                       "a folder of the session that lies inside another is gone");
    shape.folders = folders;
    r = session_policy_make(s, &shape, &policy, err);
    if (r < 0)
        return -EINVAL;
    if (generation_new(s, &policy, &s->making) < 0)
        return err_set(err, -ENOMEM, "internal", NULL, "out of memory");
    s->n_generations++;
    return 0;
}

static void give_up(struct session *s, const struct err *why, json_t *take_after)
{
    struct err err = {0};
    (void)err_set(&err, -EIO, "wall_unavailable", why->hint, "%s", why->detail);
    session_audit(s, &s->renewal.actor, "wall.failed", s->renewal.reason, take_after,
                  OUTCOME_REFUSED);
    log_warn("session.renewal", "session=%s failed=%s", s->id, why->detail);
    (void)nested_look(s->folders, s->n_folders); /* what is missing is shown */
    session_set_state(s, SESSION_READY);
    bool is_due = !s->renewal.is_asked_for;
    renewal_over(s, &err);
    if (s->now->state == GEN_FAILED || s->state != SESSION_READY)
        return;
    if (is_due)
        session_commands_refuse(s);
    else
        session_commands_ready(s);
}

static void try_again(struct session *s)
{
    struct err err = {0};
    int r = make(s, &err);
    if (r == -ENOENT && clock_now_ms() < s->renewal.until_ms)
        deadline_set(&s->renewal.clock, LOOK_MS);
    else if (r < 0) {
        give_up(s, &err, NULL);
        session_step(s);
    }
}

static void clock_passed(struct deadline *d)
{
    struct session *s = container_of(d, struct session, renewal.clock);
    if (s->state == SESSION_RESTARTING && !s->making)
        try_again(s);
}

static int begin(struct session *s, const struct actor *actor, const char *reason, struct err *err)
{
    int r = check_ready(s, err);
    if (r < 0)
        return r;
    struct renewal *rn = &s->renewal;
    rn->actor = actor ? *actor : (struct actor){.kind = ACTOR_DAEMON, .peer_uid = -1};
    rn->reason = reason;
    rn->is_asked_for = rn->stop_running = false;
    rn->done = NULL;
    rn->until_ms = clock_now_ms() + REPLACED_MS;
    log_info("session.renewal", "session=%s reason=%s", s->id, reason);
    session_set_state(s, SESSION_RESTARTING);
    deadline_set(&rn->clock, 0); /* on the loop, so that the caller hears of it first */
    return 0;
}

int session_restart(struct session *s, bool stop_running, const struct actor *actor,
                    session_renewed_fn *done, void *arg, struct err *err)
{
    int r = begin(s, actor, "asked for", err);
    if (r < 0)
        return r;
    s->renewal.is_asked_for = true;
    s->renewal.stop_running = stop_running;
    s->renewal.done = done;
    s->renewal.arg = arg;
    return 0;
}

int renewal_begin_if_due(struct session *s, struct err *err)
{
    if (s->state == SESSION_RESTARTING) /* who comes later waits as long as who came first */
        s->renewal.until_ms = clock_now_ms() + REPLACED_MS;
    if (s->state != SESSION_READY || s->provider == PROVIDER_DIRECT ||
        !nested_is_replaced(&s->now->policy))
        return 0;
    return begin(s, NULL, "a folder inside another was replaced", err);
}

static void nested_touched(struct nested *n)
{
    struct err err = {0};
    struct session *s = container_of(n, struct session, nested);
    (void)renewal_begin_if_due(s, &err);
}

void renewal_init(struct session *s)
{
    deadline_init(s->ss->deps.loop, &s->renewal.clock, &s->closing, clock_passed);
    nested_init(&s->nested, s->ss->deps.loop, &s->closing, nested_touched);
}

/* ---- Going on ---------------------------------------------------------------------------------
 */

static void keep_what_was_granted(struct session *s)
{
    const struct policy *p = &s->now->policy;
    for (size_t i = 0; i < s->n_folders && i < p->n_folders; i++) {
        s->folders[i].dev = p->folders[i].dev;
        s->folders[i].ino = p->folders[i].ino;
        s->folders[i].born_ns = p->folders[i].born_ns;
        s->folders[i].missing = p->folders[i].missing;
    }
}

static void take_over(struct session *s)
{
    struct generation *before = s->now;
    s->now = TAKE(s->making);
    before->next = s->old;
    s->old = before;
    keep_what_was_granted(s);
    session_audit(s, &s->renewal.actor, "session.restarted", s->renewal.reason, NULL, OUTCOME_OK);
    if (s->renewal.stop_running)
        session_commands_stop(s, before);
    session_be_ready(s);
    renewal_over(s, NULL);
    session_generations_drop_idle(s);
}

static void not_made(struct session *s)
{
    struct generation *g = TAKE(s->making);
    if (g->state == GEN_PROVED)
        (void)err_set(&g->failure, -ESTALE, "session_refused", NULL,
                      "a folder inside another was replaced meanwhile");
    g->next = s->old; /* dropped with the next step: nothing runs in it */
    s->old = g;
    if (nested_is_replaced(&g->policy) && clock_now_ms() < s->renewal.until_ms) {
        deadline_set(&s->renewal.clock, LOOK_MS); /* replaced once more while it was made */
        return;
    }
    give_up(s, &g->failure,
            g->was_disproved ? json_pack("{s:o}", "checks", session_failed_checks(s)) : NULL);
}

void renewal_step(struct session *s)
{
    if (!s->making)
        return;
    bool is_late = nested_is_replaced(&s->making->policy); /* replaced since it was begun */
    if (s->making->state == GEN_PROVED && !is_late)
        take_over(s);
    else if (s->making->state == GEN_PROVED || s->making->state == GEN_FAILED) {
        not_made(s);
        session_step(s);
    }
}
