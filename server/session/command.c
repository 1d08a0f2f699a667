/* Runs in: daemon. Reads: hostile (frames of a command's supervisor). May block: no.
 *
 * The life of one command: queued -> starting -> running -> exited | killed | timed_out | failed |
 * lost. It ends when its process ends; what it left running is its tail, which lives until the
 * session ends. */
#include "base/log.h"
#include "session/command_parts.h"
#include "store/records.h"
#include "wire/msg.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define OUTPUT_CAP_MAX ((int64_t)1 << 30)
#define OUTPUT_CAP_MIN ((int64_t)64 << 10)
#define TARGET_BYTES   512 /* of the words, in an audit row */

/* ---- References and lists ---------------------------------------------------------------------
 */

static void command_free(struct closing *closing)
{
    struct command *c = container_of(closing, struct command, closing);
    channel_done(&c->ch);
    fd_close(c->input.fd);
    str_done(&c->input.buffer);
    spool_free(c->spool);
    strv_done(&c->argv);
    strv_done(&c->start_argv);
    strv_done(&c->start_env);
    free(c->shell);
    free(c->cwd);
    json_decref(c->env);
    json_decref(c->env_names);
    json_decref(c->origin);
    json_decref(c->enforcement);
    json_decref(c->output_counts);
    free(c->result.cwd);
    for (size_t i = 0; i < c->n_blocked; i++) {
        free(c->blocked[i].rule);
        free(c->blocked[i].hint);
    }
    free(c->blocked);
    session_unref(c->session);
    free(c);
}

void command_ref(struct command *c)
{
    c->refs++;
}

void command_unref(struct command *c)
{
    if (!c || --c->refs > 0)
        return;
    output_close(c->output);
    c->output = NULL;
    channel_stop(&c->ch);
    closing_start(&c->closing);
}

void command_spec_done(struct command_spec *spec)
{
    strv_done(&spec->argv);
    free(spec->shell);
    free(spec->cwd);
    json_decref(spec->env);
    json_decref(spec->origin_json);
    memset(spec, 0, sizeof *spec);
}

const char *command_id(const struct command *c)
{
    return c->id;
}

struct session *command_session(struct command *c)
{
    return c->session;
}

struct watched *command_watched(struct command *c)
{
    return &c->watched;
}

bool command_is_ended(const struct command *c)
{
    return c->state >= COMMAND_EXITED;
}

bool command_is_running(const struct command *c)
{
    return c->state == COMMAND_STARTING || c->state == COMMAND_RUNNING;
}

struct command *command_next(struct command *c)
{
    return c->next;
}

struct command *command_find(struct session *s, const char *id)
{
    for (struct command *c = s->commands; c; c = c->next)
        if (strcmp(c->id, id) == 0)
            return c;
    return NULL;
}

static void unlist(struct command *c)
{
    for (struct command **at = &c->session->commands; *at; at = &(*at)->next) {
        if (*at != c)
            continue;
        *at = c->next;
        command_unref(c);
        return;
    }
}

/* ---- Records ----------------------------------------------------------------------------------
 */

static int put_record(struct command *c)
{
    json_t *doc = command_to_json(c);
    if (!doc)
        return -ENOMEM;
    struct record r = {.kind = RECORD_COMMAND,
                       .id = c->id,
                       .session_id = c->session->id,
                       .state = COMMAND_STATE_NAMES[c->state],
                       .tier = TIER_NAMES[c->session->tier],
                       .text = json_string_value(json_object_get(doc, "display")),
                       .doc = doc};
    int rc = 0;
    if (command_is_ended(c))
        sessions_record(c->session->ss, &r);
    else
        rc = record_put(c->session->ss->deps.db, &r);
    json_decref(doc);
    return rc;
}

/* The first words, never cut in the middle of a character. */
static void put_target(const struct command *c, char ret[static TARGET_BYTES])
{
    struct str text = {0};
    for (size_t i = 0; i < c->argv.n && text.len < TARGET_BYTES; i++)
        (void)str_printf(&text, "%s%s", i ? " " : "", c->argv.items[i]);
    const char *from = c->shell ? c->shell : str_c(&text);
    size_t n = strlen(from);
    if (n >= TARGET_BYTES)
        for (n = TARGET_BYTES - 1; n > 0 && ((unsigned char)from[n] & 0xc0) == 0x80; n--)
            ;
    memcpy(ret, from, n);
    ret[n] = '\0';
    str_done(&text);
}

static json_t *ended_after(const struct command *c)
{
    json_t *after = json_pack("{s:s, s:I}", "state", COMMAND_STATE_NAMES[c->state], "elapsed_ms",
                              (json_int_t)(c->ended_ms - c->started_ms));
    if (c->has_result)
        (void)json_object_set_new(after, c->result.is_signaled ? "signal" : "exit_code",
                                  json_integer(c->result.code));
    if (c->n_blocked)
        (void)json_object_set_new(after, "blocked", json_integer((json_int_t)c->n_blocked));
    return after;
}

static int put_audit(struct command *c, const char *action, json_t *take_after,
                     enum outcome outcome)
{
    char target[TARGET_BYTES];
    put_target(c, target);
    struct audit_entry e = {.actor = &c->actor,
                            .action = action,
                            .session_id = c->session->id,
                            .command_id = c->id,
                            .target = target,
                            .take_after = take_after,
                            .outcome = outcome,
                            .enforcement = c->enforcement};
    return audit_add(c->session->ss->deps.db, &e);
}

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
        unlist(c);
        return;
    }
    c->has_tail = true;
    if (++s->n_tails > SESSION_TAILS) /* more than a session may leave behind */
        (void)command_send_signal(c, SIGKILL, SIGNAL_TO_TREE);
}

static void finish(struct command *c, enum command_state state)
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
    if (put_audit(c, "command.ended", ended_after(c),
                  state == COMMAND_EXITED ? OUTCOME_OK : OUTCOME_ERROR) < 0)
        log_error("audit.lost", "action=command.ended command=%s", c->id);
    (void)put_record(c);
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
static enum command_state end_state(const struct command *c)
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
    finish(c, end_state(c));
}

/* It never ran. */
static void fail_start(struct command *c, enum start_stage stage, uint32_t error)
{
    c->start_stage = stage;
    c->start_errno = (int)error;
    finish(c, COMMAND_FAILED);
}

/* The end of its process was not told: the wall went down. */
static void cut_off(struct command *c)
{
    if (!c->has_result && c->session->wants_stop) {
        c->result.is_signaled = true;
        c->result.code = SIGKILL;
    }
    if (c->output)
        output_finish(c->output); /* reads what is there; finish() may come now or soon */
}

int command_start_failed(struct session *s, uint32_t id, enum start_stage stage, uint32_t error)
{
    for (struct command *c = s->commands; c; c = c->next) {
        if (c->start_id != id || !command_is_running(c) || c->has_result)
            continue;
        channel_stop(&c->ch);
        fail_start(c, stage, error);
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
    fail_start(c, (enum start_stage)stage, error);
    return 0;
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
    return NULL;
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
    if (r < 0 && r != -ECONNRESET) {
        struct err err = {0};
        err_set(&err, r, "session_refused", "see the daemon's log",
                "a command's supervisor sent nonsense");
        session_fail(s, &err);
        return;
    }
    if (c->has_tail) {
        c->has_tail = false;
        s->n_tails--;
        unlist(c);
        if (s->down == DOWN_TERM)
            session_step(s);
        return;
    }
    if (!command_is_ended(c) && !c->has_result)
        cut_off(c);
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

/* ---- Signals and clocks -----------------------------------------------------------------------
 */

int command_send_signal(struct command *c, int signo, enum signal_to to)
{
    CLEANUP(pack_done) struct pack p = {0};
    pack_u32(&p, (uint32_t)signo);
    pack_u8(&p, (uint8_t)to);
    return channel_send(&c->ch, M_CMD_SIGNAL, &p, NULL, 0);
}

static void set_clock(struct command *c)
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
    set_clock(c);
}

static bool has_passed(uint64_t since, int64_t ms, uint64_t now)
{
    return ms > 0 && now >= since + (uint64_t)ms;
}

static void clock_passed(struct deadline *d)
{
    struct command *c = container_of(d, struct command, deadline);
    uint64_t now = clock_now_ms();
    if (!command_is_running(c) || c->has_result)
        return;
    if (c->is_unsent) {
        fail_start(c, START_AT_LIMIT, (uint32_t)c->start_errno);
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
    set_clock(c);
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
        finish(c, COMMAND_KILLED);
    else
        begin_stop(c, grace_ms < 0 ? c->kill_grace_ms : grace_ms);
    return 0;
}

/* ---- Making one -------------------------------------------------------------------------------
 */

static int64_t setting(const struct session *s, const char *key, int64_t asked)
{
    return asked >= 0 ? asked : settings_int(s->ss->deps.settings, key);
}

static int fill(struct command *c, const struct command_spec *spec)
{
    const struct session *s = c->session;
    int64_t cap = setting(s, "limits.output_bytes", spec->max_output_bytes);
    c->max_output_bytes = cap <= 0 || cap > OUTPUT_CAP_MAX ? OUTPUT_CAP_MAX
                          : cap < OUTPUT_CAP_MIN           ? OUTPUT_CAP_MIN
                                                           : cap;
    c->timeout_ms = setting(s, "limits.command_timeout_ms", spec->timeout_ms);
    c->idle_timeout_ms = spec->idle_timeout_ms;
    c->kill_grace_ms = spec->kill_grace_ms >= 0 ? spec->kill_grace_ms : SESSION_GRACE_MS;
    c->stdin_pipe = spec->stdin_pipe;
    c->kill_on_disconnect = spec->kill_on_disconnect;
    c->env = json_incref(spec->env);
    c->env_names = env_names(spec->env);
    c->origin = spec->origin_json
                    ? json_incref(spec->origin_json)
                    : json_pack("{s:s}", "kind", spec->origin_name ? spec->origin_name : "agent");
    c->enforcement = session_enforcement(s);
    if (spec->shell && !(c->shell = strdup(spec->shell)))
        return -ENOMEM;
    return c->env_names && c->origin && c->enforcement ? strv_copy(&c->argv, &spec->argv) : -ENOMEM;
}

static int check_session(const struct session *s, struct err *err)
{
    if (s->state >= SESSION_STOPPING && s->state != SESSION_REFUSED)
        return err_set(err, -ESTALE, "session_ended", NULL, "the session is %s",
                       SESSION_STATE_NAMES[s->state]);
    if (s->state == SESSION_REFUSED)
        return err_set(err, -ESTALE, "session_not_ready", NULL, "the session was refused");
    if (s->state == SESSION_READY && s->n_running >= SESSION_COMMANDS)
        return err_set(err, -E2BIG, "too_many", "wait for one to end",
                       "%d commands are running in the session", SESSION_COMMANDS);
    if (s->state != SESSION_READY && s->n_queued >= SESSION_QUEUED)
        return err_set(err, -E2BIG, "too_many", "wait until the session is ready",
                       "%d commands are queued", SESSION_QUEUED);
    if (s->ss->is_stopping)
        return err_set(err, -ECANCELED, "shutting_down", NULL, "the daemon is going down");
    if (db_is_full(s->ss->deps.db))
        return err_set(err, -ENOSPC, "disk_full", "free some space for the state folder",
                       "nothing can be recorded, so nothing is started");
    return 0;
}

/* What cannot be recorded is not started. */
static int record_start(struct command *c, struct err *err)
{
    int r = 0;
    if (c->state == COMMAND_STARTING)
        r = put_audit(c, "command.started", NULL, OUTCOME_OK);
    if (r == 0)
        r = put_record(c);
    if (r == 0)
        r = db_commit(c->session->ss->deps.db);
    return r < 0 ? err_set(err, r, "disk_full", "free some space for the state folder",
                           "the command cannot be recorded, so it is not started")
                 : 0;
}

static void set_off(struct command *c)
{
    c->state = COMMAND_STARTING;
    c->started_at = clock_wall_ms();
    c->started_ms = c->last_output_ms = clock_now_ms();
}

static struct command *command_alloc(struct session *s, const struct actor *actor)
{
    struct command *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->refs = 1;
    c->session = s;
    session_ref(s);
    c->actor = actor ? *actor : (struct actor){.kind = ACTOR_DAEMON, .peer_uid = -1};
    id_new("cmd", c->id);
    channel_init(&c->ch);
    command_input_init(c);
    closing_init(&c->closing, command_free);
    deadline_init(s->ss->deps.loop, &c->deadline, &c->closing, clock_passed);
    return c;
}

static int prepare(struct command *c, const struct command_spec *spec, struct err *err)
{
    const char *spool_dir = c->session->ss->deps.spool_dir;
    int r = fill(c, spec);
    if (r < 0)
        return err_set(err, r, "internal", NULL, "out of memory");
    r = command_check_cwd(c, spec->cwd, &c->cwd, err);
    if (r == 0)
        r = command_words(c, err);
    if (r < 0)
        return r;
    r = spool_new(spool_dir, c->id, (uint64_t)c->max_output_bytes, &c->spool, err);
    if (r < 0)
        return err_set(err, r, "disk_full", "free some space for the state folder",
                       "no room for the command's output");
    if (c->session->state == SESSION_READY)
        set_off(c);
    r = record_start(c, err);
    if (r < 0) {
        spool_free(TAKE(c->spool));
        (void)spool_delete(spool_dir, c->id);
    }
    return r;
}

static void list(struct command *c)
{
    struct session *s = c->session;
    c->next = s->commands;
    s->commands = c;
    if (c->state == COMMAND_QUEUED)
        s->n_queued++;
    else
        s->n_running++;
}

/* A failure is told on the loop, so that whoever made the command gets to see it first. */
static void start_now(struct command *c)
{
    int r = command_launch(c);
    if (r < 0) {
        channel_stop(&c->ch);
        c->is_unsent = true;
        c->start_errno = -r;
        deadline_set(&c->deadline, 0);
    } else {
        set_clock(c);
    }
    session_touched(c->session);
}

int command_create(struct session *s, const struct command_spec *spec, const struct actor *actor,
                   struct command **ret, struct err *err)
{
    int r = check_session(s, err);
    if (r < 0)
        return r;
    struct command *c = command_alloc(s, actor);
    if (!c)
        return err_set(err, -ENOMEM, "internal", NULL, "out of memory");
    r = prepare(c, spec, err);
    if (r < 0) {
        command_unref(c);
        return r;
    }
    list(c);
    if (c->state == COMMAND_STARTING)
        start_now(c);
    *ret = c;
    return 0;
}

/* ---- What the session tells its commands ------------------------------------------------------
 */

static struct command *oldest_queued(struct session *s)
{
    struct command *found = NULL;
    for (struct command *c = s->commands; c; c = c->next)
        if (c->state == COMMAND_QUEUED)
            found = c;
    return found;
}

void session_commands_ready(struct session *s)
{
    struct command *c;
    while (s->state == SESSION_READY && (c = oldest_queued(s))) {
        struct err err = {0};
        s->n_queued--;
        s->n_running++;
        set_off(c);
        json_decref(c->enforcement);
        c->enforcement = session_enforcement(s);
        if (record_start(c, &err) < 0) {
            fail_start(c, START_AT_LIMIT, ENOSPC);
            continue;
        }
        start_now(c);
        watched_notify(&c->watched);
    }
}

static void over(struct command *c)
{
    struct session *s = c->session;
    if (c->state == COMMAND_QUEUED && !s->wants_stop) {
        fail_start(c, START_AT_WALL, ECANCELED);
        return;
    }
    if (!command_is_ended(c)) {
        command_ref(c);
        channel_stop(&c->ch);
        if (c->state != COMMAND_QUEUED)
            cut_off(c);
        finish(c, c->state == COMMAND_QUEUED ? COMMAND_KILLED : end_state(c));
        command_unref(c);
        return;
    }
    channel_stop(&c->ch);
    if (c->has_tail) {
        c->has_tail = false;
        s->n_tails--;
    }
    unlist(c);
}

void session_commands_over(struct session *s)
{
    while (s->commands) {
        struct command *c = s->commands;
        over(c);
        if (s->commands == c) /* it must not stay */
            unlist(c);
    }
    while (s->sinks) {
        struct output *o = s->sinks;
        s->sinks = *output_next(o);
        output_close(o);
    }
    s->n_sinks = 0;
}

static struct blocked_host *blocked_at(struct command *c, const char *host, uint16_t port,
                                       const char *reason)
{
    for (size_t i = 0; i < c->n_blocked; i++)
        if (c->blocked[i].port == port && strcmp(c->blocked[i].host, host) == 0 &&
            strcmp(c->blocked[i].reason, reason) == 0)
            return &c->blocked[i];
    if (c->n_blocked == COMMAND_BLOCKED_MAX)
        return NULL;
    struct blocked_host *grown = realloc(c->blocked, (c->n_blocked + 1) * sizeof *grown);
    if (!grown)
        return NULL;
    c->blocked = grown;
    struct blocked_host *b = &grown[c->n_blocked++];
    memset(b, 0, sizeof *b);
    (void)snprintf(b->host, sizeof b->host, "%s", host);
    (void)snprintf(b->reason, sizeof b->reason, "%s", reason);
    b->port = port;
    return b;
}

static void note_blocked(struct command *c, const char *host, uint16_t port, const char *reason)
{
    json_t *note = json_pack("{s:s, s:s, s:i, s:s}", "kind", "blocked", "host", host, "port",
                             (int)port, "reason", reason);
    char *text = json_dumps(note, JSON_COMPACT);
    if (text && c->spool)
        (void)spool_note(c->spool, clock_now_ms() - c->started_ms, text);
    free(text);
    json_decref(note);
    watched_notify(&c->watched);
}

void command_blocked(struct command *c, const char *host, uint16_t port, const char *reason,
                     const char *rule, const char *hint)
{
    struct blocked_host *b = blocked_at(c, host, port, reason);
    if (!b)
        return;
    if (b->count++ == 0) {
        b->rule = strdup(rule);
        b->hint = strdup(hint);
        note_blocked(c, host, port, reason); /* once a host: a busy retry fills no spool */
    }
    struct blocked_row row = {.session_id = c->session->id,
                              .command_id = c->id,
                              .host = host,
                              .reason = reason,
                              .port = port};
    (void)blocked_count(c->session->ss->deps.db, &row);
}
