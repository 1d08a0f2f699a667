/* Runs in: daemon. Reads: hostile (frames of a command's supervisor). May block: no.
 *
 * How a command ends: its process does, then its output is read, then all is recorded. What it left
 * running is its tail, which lives until the session ends. */
#include "base/log.h"
#include "session/command_parts.h"
#include "wire/msg.h"
#include <errno.h>
#include <signal.h>
#include <string.h>

/* ---- The end ----------------------------------------------------------------------------------
 */

static void sink_gone(struct output *o, void *arg)
{
    struct session *s = arg;
    for (struct output **at = &s->sinks; *at; at = output_next(*at)) {
        if (*at != o)
            continue;
        *at = *output_next(o);
        s->n_sinks--;
        return;
    }
}

static void let_go_of_output(struct command *c)
{
    struct session *s = c->session;
    struct output *o = TAKE(c->output);
    if (!o)
        return;
    if (output_is_over(o) || s->n_sinks >= SESSION_SINKS || s->down >= DOWN_REMOVE) {
        output_close(o);
        return;
    }
    output_to_sink(o, sink_gone, s);
    *output_next(o) = s->sinks;
    s->sinks = o;
    s->n_sinks++;
}

static void end_spool(struct command *c)
{
    json_t *doc = json_pack("{s:s}", "state", COMMAND_STATE_NAMES[c->state]);
    if (!c->spool) {
        json_decref(doc);
        return;
    }
    if (c->state == COMMAND_FAILED)
        (void)json_object_set_new(doc, "start_error", command_start_error_json(c));
    else
        (void)json_object_set_new(doc, "result", command_result_json(c));
    char *text = json_dumps(doc, JSON_COMPACT);
    uint64_t at = c->started_ms ? c->ended_ms - c->started_ms : 0;
    int r = text ? spool_end(c->spool, at, text) : -ENOMEM;
    if (r < 0)
        log_warn("command.spool", "command=%s errno=%d", c->id, -r);
    free(text);
    json_decref(doc);
    c->output_counts = json_pack("{s:I, s:I, s:i, s:I, s:I}", "stdout_bytes",
                                 (json_int_t)spool_bytes(c->spool, SPOOL_STDOUT), "stderr_bytes",
                                 (json_int_t)spool_bytes(c->spool, SPOOL_STDERR), "pty_bytes", 0,
                                 "dropped_bytes", (json_int_t)spool_dropped(c->spool), "next_seq",
                                 (json_int_t)spool_next_seq(c->spool));
    spool_free(TAKE(c->spool));
}

static void keep_tail(struct command *c)
{
    struct session *s = c->session;
    if (c->ch.fd < 0 || c->ch.is_ended) {
        command_unlist(c);
        return;
    }
    c->has_tail = true;
    if (++s->n_tails > SESSION_TAILS) /* more than a session may leave behind */
        (void)command_send_signal(c, SIGKILL, SIGNAL_TO_TREE);
}

void command_finish(struct command *c, enum command_state state)
{
    struct session *s = c->session;
    if (command_is_ended(c))
        return;
    unsigned *count = c->state == COMMAND_QUEUED ? &s->n_queued : &s->n_running;
    (*count)--;
    c->state = state;
    c->ended_at = clock_wall_ms();
    c->ended_ms = clock_now_ms();
    if (!c->started_ms)
        c->started_ms = c->ended_ms;
    deadline_clear(&c->deadline);
    command_input_close(c);
    let_go_of_output(c);
    end_spool(c);
    command_record_end(c);
    command_ref(c);
    keep_tail(c);
    watched_notify(&c->watched);
    session_touched(s);
    command_unref(c);
    sessions_command_ended(s->ss);
    if (s->down == DOWN_TERM)
        session_step(s);
}

/* Why it ended, once its process has and its output is read. */
enum command_state command_end_state(const struct command *c)
{
    if (c->is_timed_out)
        return COMMAND_TIMED_OUT;
    if (!c->has_result)
        return c->session->wants_stop || c->is_stopped ? COMMAND_KILLED : COMMAND_LOST;
    return c->is_stopped || c->result.is_signaled ? COMMAND_KILLED : COMMAND_EXITED;
}

void command_output_finished(void *arg)
{
    struct command *c = arg;
    command_finish(c, command_end_state(c));
}

/* It never ran. */
void command_fail_start(struct command *c, enum start_stage stage, uint32_t error)
{
    c->start_stage = stage;
    c->start_errno = (int)error;
    command_finish(c, COMMAND_FAILED);
}

/* The end of its process was not told: the wall went down. */
void command_cut_off(struct command *c)
{
    if (!c->has_result && c->session->wants_stop) {
        c->result.is_signaled = true;
        c->result.code = SIGKILL;
    }
    if (c->output)
        output_finish(c->output); /* reads what is there; finish() may come now or soon */
}

int command_start_failed(struct generation *g, uint32_t id, enum start_stage stage, uint32_t error)
{
    for (struct command *c = g->s->commands; c; c = c->next) {
        if (c->generation != g || c->start_id != id || !command_is_running(c) || c->has_result)
            continue;
        channel_stop(&c->ch);
        command_fail_start(c, stage, error);
        return 0;
    }
    return -EBADMSG;
}

/* ---- What its supervisor says -----------------------------------------------------------------
 */

static int take_started(struct command *c, struct unpack *u)
{
    (void)unpack_u32(u);
    int r = unpack_end(u);
    if (r < 0 || c->state != COMMAND_STARTING)
        return -EBADMSG;
    c->state = COMMAND_RUNNING;
    command_tell(c, EVENT_UPDATED);
    watched_notify(&c->watched);
    return 0;
}

static int take_failed(struct command *c, struct unpack *u)
{
    uint8_t stage = unpack_u8(u);
    uint32_t error = unpack_u32(u);
    int r = unpack_end(u);
    if (r < 0 || c->state != COMMAND_STARTING || stage > START_AT_LIMIT)
        return -EBADMSG;
    channel_stop(&c->ch);
    command_fail_start(c, (enum start_stage)stage, error);
    return 0;
}

/* What stood in its way while it ran: the limits are of all that runs in the wall. */
static const char *group_limit_hit(const struct command *c)
{
    struct wall_hits now;
    if (!c->generation || !c->generation->wall)
        return NULL;
    wall_count_hits(c->generation->wall, &now);
    if (now.memory > c->hits.memory)
        return "memory";
    if (now.processes > c->hits.processes)
        return "processes";
    return now.cpu > c->hits.cpu ? "cpu" : NULL;
}

static const char *limit_hit(const struct command *c)
{
    if (c->is_timed_out)
        return "time";
    if (c->is_output_lost)
        return "output";
    if (c->result.is_signaled && c->result.code == SIGXCPU)
        return "cpu";
    if (c->result.is_signaled && c->result.code == SIGXFSZ)
        return "files";
    return group_limit_hit(c);
}

static int take_exit(struct command *c, struct unpack *u)
{
    struct command_result *res = &c->result;
    uint8_t signaled = unpack_u8(u);
    uint32_t code = unpack_u32(u);
    res->cpu_us = unpack_u64(u);
    res->max_rss_bytes = unpack_u64(u);
    CLEANUP(freep) char *cwd = unpack_str(u, PATH_MAX);
    int r = unpack_end(u);
    if (r < 0 || c->state != COMMAND_RUNNING || c->has_result || signaled > 1 || code > 255)
        return -EBADMSG;
    c->has_result = true;
    res->is_signaled = signaled;
    res->code = (int)code;
    res->cwd = TAKE(cwd);
    res->limit = limit_hit(c);
    output_finish(c->output);
    return 0;
}

int command_got(struct channel *ch, const struct frame *f)
{
    struct command *c = container_of(ch, struct command, ch);
    struct unpack u = unpack_from(f->payload, f->len);
    switch (f->kind) {
    case M_CMD_STARTED:
        return take_started(c, &u);
    case M_CMD_FAILED:
        return take_failed(c, &u);
    case M_CMD_EXIT:
        return take_exit(c, &u);
    case M_CMD_GONE:
        return f->len == 0 && c->has_result ? 0 : -EBADMSG; /* the end of file follows */
    default:
        return -EBADMSG;
    }
}

void command_channel_ended(struct channel *ch, int r)
{
    struct command *c = container_of(ch, struct command, ch);
    struct session *s = c->session;
    if (r < 0 && r != -ECONNRESET && c->generation) {
        generation_fail(c->generation, r, "see the daemon's log",
                        "a command's supervisor sent nonsense");
        return;
    }
    if (c->has_tail) {
        c->has_tail = false;
        s->n_tails--;
        command_unlist(c);
        if (s->down == DOWN_TERM)
            session_step(s);
        return;
    }
    if (!command_is_ended(c) && !c->has_result)
        command_cut_off(c);
}

void command_wrote(void *arg)
{
    struct command *c = arg;
    c->last_output_ms = clock_now_ms();
    watched_notify(&c->watched);
}

void command_output_failed(int r, void *arg)
{
    struct command *c = arg;
    log_warn("command.output", "command=%s errno=%d", c->id, -r);
    c->is_output_lost = true;
    (void)command_stop(c, c->kill_grace_ms, NULL);
}
