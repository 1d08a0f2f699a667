/* Runs in: daemon. Reads: trusted. May block: no (the private folder is removed in a thread).
 *
 * The end of a session: TERM and a grace, then all its sandboxes are killed and reaped, then the
 * private folder is removed; only then is it ended. */
#include "base/log.h"
#include "base/stop.h"
#include "session/parts.h"

static bool anything_lives(const struct session *s)
{
    return s->n_running + s->n_tails > 0;
}

/* In a thread: reads the path alone, which stays until private_removed. */
static void remove_private(uv_work_t *work)
{
    struct session *s = container_of(work, struct session, removal);
    int r = private_remove(s->private_dir);
    if (r < 0)
        log_error("session.private", "session=%s path=%s errno=%d", s->id, s->private_dir, -r);
}

void session_private_drop(struct session *s)
{
    fd_done(&s->private_lock);
    free(TAKE(s->private_dir));
}

static void one_down(struct session *s)
{
    s->n_down--;
    session_step(s);
}

/* A process of a web call was reaped. */
void session_web_gone(struct session *s)
{
    if (s->down == DOWN_KILL)
        one_down(s);
}

static void private_removed(uv_work_t *work, int status)
{
    struct session *s = container_of(work, struct session, removal);
    if (status < 0)
        remove_private(work);
    session_private_drop(s);
    one_down(s);
}

static void term(struct generation *g)
{
    if (g && g->runner)
        (void)runner_link_term_all(g->runner);
}

static void down_term(struct session *s)
{
    if (!anything_lives(s) || s->stop_grace_ms == 0) {
        ending_begin(s, DOWN_KILL);
        return;
    }
    term(s->now);
    term(s->making);
    for (struct generation *g = s->old; g; g = g->next)
        term(g);
    deadline_set(&s->deadline, s->stop_grace_ms);
}

/* The end of each generation is told by session_generation_gone. */
static void down_kill(struct session *s)
{
    deadline_clear(&s->deadline);
    renewal_over(s, NULL);
    nested_stop(&s->nested);
    publish_close(s);
    s->n_down = 1; /* ours, so that no callback ends it while we are here */
    s->n_down += web_calls_over(s);
    generation_close(s->making);
    generation_close(s->now);
    for (struct generation *g = s->old, *next; g; g = next) {
        next = g->next; /* G may leave the list at once */
        generation_close(g);
    }
    one_down(s);
}

static void down_remove(struct session *s)
{
    session_commands_over(s, NULL);
    s->n_down = 1;
    if (s->private_dir) {
        s->n_down++;
        if (uv_queue_work(s->ss->deps.loop, &s->removal, remove_private, private_removed) < 0) {
            remove_private(&s->removal);
            session_private_drop(s);
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
    session_refusals_said(s);
    if (!s->is_refused) {
        session_audit(s, &s->ender, "session.ended", s->end_reason, NULL, OUTCOME_OK);
        session_set_state(s, SESSION_ENDED);
    } else {
        session_changed(s);
    }
    if (s->ended)
        s->ended(s, s->ended_arg);
    sessions_remove(ss, s); /* may free S */
}

void ending_begin(struct session *s, enum down down)
{
    static const char *const POINTS[] = {[DOWN_NOT] = "",
                                         [DOWN_TERM] = "down-term",
                                         [DOWN_KILL] = "down-kill",
                                         [DOWN_REMOVE] = "down-remove",
                                         [DOWN_OVER] = "down-over"};
    s->down = down;
    stop_point(POINTS[down]);
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

static bool lost_its_wall(const struct session *s)
{
    return s->now && s->now->state == GEN_FAILED;
}

void ending_step(struct session *s)
{
    switch (s->down) {
    case DOWN_TERM:
        if (!anything_lives(s) || lost_its_wall(s))
            ending_begin(s, DOWN_KILL);
        return;
    case DOWN_KILL:
        if (s->n_down == 0 && s->n_generations == 0)
            ending_begin(s, DOWN_REMOVE);
        return;
    case DOWN_REMOVE:
        if (s->n_down == 0)
            ending_begin(s, DOWN_OVER);
        return;
    case DOWN_OVER:
    case DOWN_NOT:
        return;
    }
}
