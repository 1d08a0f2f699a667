/* Runs in: daemon. Reads: trusted. May block: no.
 *
 * Signals to a command, and the clocks that send them: its time-outs, and KILL after a grace. */
#include "session/command_parts.h"
#include "wire/msg.h"
#include <errno.h>
#include <signal.h>

#define KILLS_MAX 15 /* one a second */

int command_send_signal(struct command *c, int signo, enum signal_to to)
{
    CLEANUP(pack_done) struct pack p = {0};
    pack_u32(&p, (uint32_t)signo);
    pack_u8(&p, (uint8_t)to);
    return channel_send(&c->ch, M_CMD_SIGNAL, &p, NULL, 0);
}

void command_set_clock(struct command *c)
{
    uint64_t now = clock_now_ms(), next = UINT64_MAX;
    if (!command_is_running(c))
        return;
    if (c->kill_at_ms)
        next = c->kill_at_ms;
    if (!c->is_timed_out && c->timeout_ms > 0 && c->started_ms + (uint64_t)c->timeout_ms < next)
        next = c->started_ms + (uint64_t)c->timeout_ms;
    if (!c->is_timed_out && c->idle_timeout_ms > 0 &&
        c->last_output_ms + (uint64_t)c->idle_timeout_ms < next)
        next = c->last_output_ms + (uint64_t)c->idle_timeout_ms;
    if (next == UINT64_MAX) {
        deadline_clear(&c->deadline);
        return;
    }
    deadline_set(&c->deadline, next > now ? next - now : 0);
}

/* TERM to the whole tree, KILL after GRACE_MS. */
static void begin_stop(struct command *c, int64_t grace_ms)
{
    uint64_t at = clock_now_ms() + (uint64_t)grace_ms;
    if (grace_ms > 0)
        (void)command_send_signal(c, SIGTERM, SIGNAL_TO_TREE);
    if (!c->kill_at_ms || at < c->kill_at_ms)
        c->kill_at_ms = at;
    command_set_clock(c);
}

static bool has_passed(uint64_t since, int64_t ms, uint64_t now)
{
    return ms > 0 && now >= since + (uint64_t)ms;
}

void command_clock_passed(struct deadline *d)
{
    struct command *c = container_of(d, struct command, deadline);
    uint64_t now = clock_now_ms();
    if (!command_is_running(c) || c->has_result)
        return;
    if (c->is_unsent) {
        command_fail_start(c, START_AT_LIMIT, (uint32_t)c->start_errno);
        return;
    }
    if (c->kill_at_ms && now >= c->kill_at_ms && c->n_kills++ == KILLS_MAX) {
        /* Whatever the reason: only the end of the whole sandbox is left. May free C. */
        generation_fail(c->generation, -ETIMEDOUT, "start a new session",
                        "a command could not be killed");
        return;
    }
    if (c->kill_at_ms && now >= c->kill_at_ms) {
        (void)command_send_signal(c, SIGKILL, SIGNAL_TO_TREE);
        c->kill_at_ms = now + 1000; /* again, until its end is told */
    }
    if (!c->is_timed_out && (has_passed(c->started_ms, c->timeout_ms, now) ||
                             has_passed(c->last_output_ms, c->idle_timeout_ms, now))) {
        c->is_timed_out = true;
        begin_stop(c, c->kill_grace_ms);
    }
    command_set_clock(c);
}

static int check_alive(const struct command *c, struct err *err)
{
    if (!command_is_ended(c) && !c->has_result)
        return 0;
    return err_set(err, -ESTALE, "command_ended", NULL, "the command is %s",
                   COMMAND_STATE_NAMES[c->state]);
}

int command_signal(struct command *c, int signo, bool to_group, struct err *err)
{
    int r = check_alive(c, err);
    if (r < 0)
        return r;
    if (c->state == COMMAND_QUEUED)
        return err_set(err, -EAGAIN, "command_ended", "wait until it runs", "it has not started");
    r = command_send_signal(c, signo, to_group ? SIGNAL_TO_GROUP : SIGNAL_TO_LEADER);
    return r < 0 ? err_set(err, r, "internal", NULL, "the signal could not be sent") : 0;
}

int command_stop(struct command *c, int64_t grace_ms, struct err *err)
{
    int r = check_alive(c, err);
    if (r < 0)
        return r;
    c->is_stopped = true;
    if (c->state == COMMAND_QUEUED)
        command_finish(c, COMMAND_KILLED);
    else
        begin_stop(c, grace_ms < 0 ? c->kill_grace_ms : grace_ms);
    return 0;
}
