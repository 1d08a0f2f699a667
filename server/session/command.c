/* Runs in: daemon. Reads: trusted. May block: briefly (a file is made for its output).
 *
 * The life of one command: queued -> starting -> running -> exited | killed | timed_out | failed |
 * lost. It ends when its process ends; what it left running is its tail, which lives until the
 * session ends. */
#include "session/command_parts.h"
#include <errno.h>
#include <signal.h>
#include <string.h>

#define OUTPUT_CAP_MAX ((int64_t)1 << 30)
#define OUTPUT_CAP_MIN ((int64_t)64 << 10)

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

void command_unlist(struct command *c)
{
    for (struct command **at = &c->session->commands; *at; at = &(*at)->next) {
        if (*at != c)
            continue;
        struct generation *g = TAKE(c->generation);
        *at = c->next;
        command_unref(c);
        if (g)
            generation_left(g);
        return;
    }
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
    c->umask = spec->has_umask ? spec->umask : s->ss->umask;
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

/* Commands that a person types and checks of a watch have no way out: such a wall comes later, and
 * until then they are not run in one that has. */
static int check_origin(const struct session *s, const struct command_spec *spec, struct err *err)
{
    const char *origin = spec->origin_name;
    if (!origin || strcmp(origin, "agent") == 0 || s->provider == PROVIDER_DIRECT ||
        s->network == NET_NONE)
        return 0;
    return err_member(err, -ENOTSUP, "body_invalid", "/origin/kind",
                      "%s, in a session with a way out: not in this version", origin);
}

/* What cannot be recorded is not started. */
static int record_start(struct command *c, struct err *err)
{
    int r = command_record_start(c);
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
    deadline_init(s->ss->deps.loop, &c->deadline, &c->closing, command_clock_passed);
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

static void enter(struct command *c)
{
    struct session *s = c->session;
    s->n_running++;
    c->generation = s->now;
    c->generation->n_users++;
    if (c->generation->wall)
        wall_count_hits(c->generation->wall, &c->hits);
}

static void list(struct command *c)
{
    struct session *s = c->session;
    c->next = s->commands;
    s->commands = c;
    if (c->state == COMMAND_QUEUED)
        s->n_queued++;
    else
        enter(c);
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
        command_set_clock(c);
    }
    session_touched(c->session);
}

int command_create(struct session *s, const struct command_spec *spec, const struct actor *actor,
                   struct command **ret, struct err *err)
{
    int r = check_session(s, err);
    if (r == 0)
        r = check_origin(s, spec, err);
    if (r == 0)
        r = renewal_begin_if_due(s, err); /* it is queued then */
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

/* One that waited gets the environment of the wall that it starts in. */
static bool set_off_queued(struct command *c)
{
    struct err err = {0};
    set_off(c);
    strv_done(&c->start_argv);
    strv_done(&c->start_env);
    json_decref(c->enforcement);
    c->enforcement = session_enforcement(c->session);
    return command_words(c, &err) == 0 && record_start(c, &err) == 0;
}

void session_commands_ready(struct session *s)
{
    struct command *c;
    while (s->state == SESSION_READY && s->n_running < SESSION_COMMANDS && (c = oldest_queued(s))) {
        s->n_queued--;
        enter(c);
        if (!set_off_queued(c)) {
            command_fail_start(c, START_AT_LIMIT, ENOSPC);
            continue;
        }
        start_now(c);
        watched_notify(&c->watched);
    }
}

void session_commands_refuse(struct session *s)
{
    struct command *c;
    while ((c = oldest_queued(s)))
        command_fail_start(c, START_AT_WALL, ECANCELED);
}

static void over(struct command *c)
{
    struct session *s = c->session;
    if (c->state == COMMAND_QUEUED && !s->wants_stop) {
        command_fail_start(c, START_AT_WALL, ECANCELED);
        return;
    }
    if (!command_is_ended(c)) {
        command_ref(c);
        channel_stop(&c->ch);
        if (c->state != COMMAND_QUEUED)
            command_cut_off(c);
        command_finish(c, c->state == COMMAND_QUEUED ? COMMAND_KILLED : command_end_state(c));
        command_unref(c);
        return;
    }
    channel_stop(&c->ch);
    if (c->has_tail) {
        c->has_tail = false;
        s->n_tails--;
    }
    command_unlist(c);
}

static struct command *first_of(struct session *s, const struct generation *g)
{
    struct command *c = s->commands;
    while (c && g && c->generation != g)
        c = c->next;
    return c;
}

void session_commands_over(struct session *s, struct generation *g)
{
    for (struct command *c; (c = first_of(s, g));) {
        over(c);
        if (first_of(s, g) == c) /* it must not stay */
            command_unlist(c);
    }
    if (g)
        return;
    while (s->sinks) {
        struct output *o = s->sinks;
        s->sinks = *output_next(o);
        output_close(o);
    }
    s->n_sinks = 0;
}

void session_commands_stop(struct session *s, struct generation *g)
{
    for (struct command *c = s->commands; c; c = c->next)
        if (c->generation == g && command_is_ended(c))
            (void)command_send_signal(c, SIGKILL, SIGNAL_TO_TREE); /* what it left running */
        else if (c->generation == g)
            (void)command_stop(c, -1, NULL);
}
