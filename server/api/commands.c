/* Runs in: daemon. Reads: trusted (checked by the router). May block: no. */
#include "api/command_parts.h"
#include "api/handlers.h"
#include "api/session_parts.h"
#include "api/state.h"
#include "base/mem.h"
#include "store/events.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* ---- Shapes -----------------------------------------------------------------------------------
 */

static const char *const STDINS[] = {"none", "pipe", NULL};
static const char *const DISCONNECTS[] = {"keep", "kill", NULL};
struct command_body {
    struct strv argv;
    char *shell, *cwd, *tier;
    json_t *env, *tty, *origin;
    int stdin_kind, on_disconnect;
    bool keep_state;
    int64_t timeout_ms, idle_timeout_ms, kill_grace_ms, wait_ms, inline_bytes, max_output_bytes,
        umask;
};
#define AT(member) offsetof(struct command_body, member)
static const struct field COMMAND_FIELDS[] = {
    {"argv", FIELD_STRINGS, AT(argv), 0, 1, 65536, NULL, NULL},
    {"shell", FIELD_STRING, AT(shell), 0, 1, 131072, NULL, NULL},
    {"cwd", FIELD_STRING, AT(cwd), FIELD_NULLABLE, 1, 4096, NULL, NULL},
    {"env", FIELD_OBJECT, AT(env), FIELD_NULLABLE, 0, 0, NULL, NULL},
    {"tty", FIELD_OBJECT, AT(tty), FIELD_NULLABLE, 0, 0, NULL, not_in_this_version},
    {"stdin", FIELD_ENUM, AT(stdin_kind), 0, 0, 0, STDINS, NULL},
    {"keep_state", FIELD_BOOL, AT(keep_state), 0, 0, 0, NULL, not_in_this_version},
    {"tier", FIELD_STRING, AT(tier), FIELD_NULLABLE, 1, 20, NULL, not_in_this_version},
    {"timeout_ms", FIELD_INT, AT(timeout_ms), FIELD_NULLABLE, 0, 86400000, NULL, NULL},
    {"idle_timeout_ms", FIELD_INT, AT(idle_timeout_ms), 0, 0, 86400000, NULL, NULL},
    {"kill_grace_ms", FIELD_INT, AT(kill_grace_ms), 0, 0, 600000, NULL, NULL},
    {"wait_ms", FIELD_INT, AT(wait_ms), 0, 0, API_WAIT_MAX, NULL, NULL},
    {"inline_bytes", FIELD_INT, AT(inline_bytes), 0, 0, 1 << 20, NULL, NULL},
    {"max_output_bytes", FIELD_INT, AT(max_output_bytes), FIELD_NULLABLE, 65536, 1 << 30, NULL,
     NULL},
    {"on_disconnect", FIELD_ENUM, AT(on_disconnect), 0, 0, 0, DISCONNECTS, NULL},
    {"umask", FIELD_INT, AT(umask), FIELD_NULLABLE, 0, 0777, NULL, NULL},
    {"origin", FIELD_OBJECT, AT(origin), FIELD_NULLABLE, 0, 0, NULL, NULL},
    FIELDS_END};
static const struct command_body COMMAND_DEFAULTS = {.timeout_ms = -1,
                                                     .kill_grace_ms = 5000,
                                                     .inline_bytes = 65536,
                                                     .max_output_bytes = -1,
                                                     .umask = -1};
const struct shape COMMAND_BODY = {COMMAND_FIELDS, sizeof(struct command_body), &COMMAND_DEFAULTS};

static const char *const ORIGINS[] = {"agent", "user", "watch", NULL};
struct origin_body {
    int kind;
    char *agent, *tool_call_id;
};
static const struct field ORIGIN_FIELDS[] = {
    {"kind", FIELD_ENUM, offsetof(struct origin_body, kind), 0, 0, 0, ORIGINS, NULL},
    {"agent", FIELD_STRING, offsetof(struct origin_body, agent), 0, 1, 200, NULL, NULL},
    {"tool_call_id", FIELD_STRING, offsetof(struct origin_body, tool_call_id), 0, 1, 200, NULL,
     NULL},
    FIELDS_END};

struct commands_query {
    struct page page;
    int state;
    char *q;
};
static const struct field COMMANDS_FIELDS[] = {
    PAGE_FIELDS(commands_query),
    {"state", FIELD_ENUM, offsetof(struct commands_query, state), 0, 0, 0, COMMAND_STATE_NAMES,
     NULL},
    {"q", FIELD_STRING, offsetof(struct commands_query, q), 0, 1, 200, NULL, NULL},
    FIELDS_END};
static const struct commands_query COMMANDS_DEFAULTS = {.page.limit = PAGE_DEFAULT, .state = -1};
const struct shape COMMANDS_QUERY = {COMMANDS_FIELDS, sizeof(struct commands_query),
                                     &COMMANDS_DEFAULTS};

struct command_query {
    int64_t wait_ms, inline_bytes;
};
static const struct field COMMAND_QUERY_FIELDS[] = {
    {"wait_ms", FIELD_INT, offsetof(struct command_query, wait_ms), 0, 0, API_WAIT_MAX, NULL, NULL},
    {"inline_bytes", FIELD_INT, offsetof(struct command_query, inline_bytes), 0, 0, 1 << 20, NULL,
     NULL},
    FIELDS_END};
static const struct command_query COMMAND_QUERY_DEFAULTS = {0, 65536};
const struct shape COMMAND_QUERY = {COMMAND_QUERY_FIELDS, sizeof(struct command_query),
                                    &COMMAND_QUERY_DEFAULTS};

struct stdin_query {
    int64_t offset;
    bool close;
};
static const struct field STDIN_FIELDS[] = {
    {"offset", FIELD_INT, offsetof(struct stdin_query, offset), FIELD_MANDATORY, 0, 1LL << 53, NULL,
     NULL},
    {"close", FIELD_BOOL, offsetof(struct stdin_query, close), 0, 0, 0, NULL, NULL},
    FIELDS_END};
const struct shape STDIN_QUERY = {STDIN_FIELDS, sizeof(struct stdin_query), NULL};

static const char *const SIGNALS[] = {"INT",  "TERM", "KILL", "HUP",  "QUIT",
                                      "STOP", "CONT", "USR1", "USR2", NULL};
static const int SIGNAL_NUMBERS[] = {SIGINT,  SIGTERM, SIGKILL, SIGHUP, SIGQUIT,
                                     SIGSTOP, SIGCONT, SIGUSR1, SIGUSR2};
static const char *const TARGETS[] = {"group", "leader", NULL};
struct signal_body {
    int signal, to;
};
static const struct field SIGNAL_FIELDS[] = {
    {"signal", FIELD_ENUM, offsetof(struct signal_body, signal), FIELD_MANDATORY, 0, 0, SIGNALS,
     NULL},
    {"to", FIELD_ENUM, offsetof(struct signal_body, to), 0, 0, 0, TARGETS, NULL},
    FIELDS_END};
const struct shape SIGNAL_BODY = {SIGNAL_FIELDS, sizeof(struct signal_body), NULL};

struct stop_body {
    int64_t grace_ms;
};
static const struct field STOP_FIELDS[] = {
    {"grace_ms", FIELD_INT, offsetof(struct stop_body, grace_ms), 0, 0, 600000, NULL, NULL},
    FIELDS_END};
static const struct stop_body STOP_DEFAULTS = {5000};
const struct shape COMMAND_STOP_BODY = {STOP_FIELDS, sizeof(struct stop_body), &STOP_DEFAULTS};

/* ---- Finding ----------------------------------------------------------------------------------
 */

int command_any(struct request *rq, struct command **ret_live, json_t **ret_doc)
{
    struct session *s = session_find(rq->api->d.sessions, rq->params[0]);
    const char *of;

    *ret_live = s ? command_find(s, rq->params[1]) : NULL;
    if (*ret_live) {
        *ret_doc = command_to_json(*ret_live);
        return *ret_doc ? 0 : -ENOMEM;
    }
    if (record_get(rq->api->d.db, RECORD_COMMAND, rq->params[1], ret_doc) < 0)
        return request_not_found(rq, "command");
    of = json_string_value(json_object_get(*ret_doc, "session_id"));
    if (of && strcmp(of, rq->params[0]) == 0)
        return 0;
    json_decref(*ret_doc);
    return request_not_found(rq, "command");
}

/* One that has not ended: else 409. */
static int command_need(struct request *rq, struct command **ret)
{
    json_t *doc = NULL;
    int r = command_any(rq, ret, &doc);

    json_decref(doc);
    if (r < 0)
        return r;
    if (*ret && !command_is_ended(*ret))
        return 0;
    return request_refuse(rq, "command_ended", NULL, "the command has ended");
}

static bool doc_is_ended(const json_t *doc)
{
    const char *state = json_string_value(json_object_get(doc, "state"));

    return state && strcmp(state, "queued") != 0 && strcmp(state, "starting") != 0 &&
           strcmp(state, "running") != 0;
}

int commands_show(struct request *rq)
{
    const struct commands_query *q = rq->args;
    struct record_query rows = {.kind = RECORD_COMMAND,
                                .session_id = rq->params[0],
                                .state = q->state >= 0 ? COMMAND_STATE_NAMES[q->state] : NULL,
                                .q = q->q,
                                .before_id = q->page.cursor,
                                .limit = (unsigned)q->page.limit};
    struct session *s;
    json_t *doc = NULL;
    int r = session_any(rq, &s, &doc);

    json_decref(doc);
    return r < 0 ? r : records_reply(rq, &rows);
}

/* ---- Waiting for the end ----------------------------------------------------------------------
 */

struct waiting {
    struct command *c;
    int64_t inline_bytes, grace_ms;
    bool kills;
    int status;
};

static void waiting_done(void *state)
{
    struct waiting *w = state;

    command_unref(w->c);
    free(w);
}

static int reply_command(struct request *rq, int status, json_t *take_doc, int64_t inline_bytes)
{
    if (doc_is_ended(take_doc))
        (void)json_object_set_new(take_doc, "text", output_text(rq, take_doc, inline_bytes));
    return reply_json(rq, status, take_doc);
}

static void on_waiting(struct request *rq, enum wake why)
{
    struct waiting *w = rq->state;

    if (why == WAKE_GONE) {
        if (w->kills && !command_is_ended(w->c))
            (void)command_stop(w->c, w->grace_ms, NULL);
        return;
    }
    if (why == WAKE_TIMEOUT || command_is_ended(w->c))
        request_answer(rq, reply_command(rq, w->status, command_to_json(w->c), w->inline_bytes));
}

static int wait_end(struct request *rq, const struct waiting *from, int64_t wait_ms)
{
    struct waiting *w;

    if (wait_ms == 0 || command_is_ended(from->c))
        return reply_command(rq, from->status, command_to_json(from->c), from->inline_bytes);
    w = malloc(sizeof *w);
    if (!w)
        return -ENOMEM;
    *w = *from;
    command_ref(w->c);
    rq->state = w;
    rq->state_done = waiting_done;
    request_park(rq, command_watched(w->c), (uint64_t)wait_ms, on_waiting);
    return 0;
}

int command_show(struct request *rq)
{
    const struct command_query *q = rq->args;
    struct waiting w = {.inline_bytes = q->inline_bytes, .status = 200};
    json_t *doc;
    int r = command_any(rq, &w.c, &doc);

    if (r < 0)
        return r;
    if (!w.c)
        return reply_command(rq, 200, doc, q->inline_bytes);
    json_decref(doc);
    return wait_end(rq, &w, q->wait_ms);
}

/* ---- Starting ---------------------------------------------------------------------------------
 */

static int origin_take(struct request *rq, const json_t *origin, struct command_spec *spec)
{
    struct origin_body in = {0};
    int r = origin ? fields_parse(ORIGIN_FIELDS, origin, "/origin", &in, &rq->errors) : 0;

    fields_done(ORIGIN_FIELDS, &in);
    if (r < 0)
        return err_member(&rq->err, r, "body_invalid", "/origin", "the origin has faults");
    if (in.kind != 0 && rq->caller.session_id[0])
        return request_bad_member(rq, "/origin/kind", "conflict",
                                  "an agent's token sends commands of kind agent");
    spec->origin = in.kind;
    spec->origin_name = ORIGINS[in.kind];
    spec->origin_json = origin ? json_copy((json_t *)(uintptr_t)origin) : json_object();
    return json_object_set_new(spec->origin_json, "kind", json_string(ORIGINS[in.kind])) < 0
               ? -ENOMEM
               : 0;
}

static int spec_take(struct request *rq, struct command_body *in, struct command_spec *spec)
{
    int r;

    if ((in->argv.n > 0) == (in->shell != NULL))
        return request_bad_member(rq, in->shell ? "/shell" : "/argv",
                                  in->shell ? "conflict" : "missing",
                                  "one of argv and shell is needed");
    if ((r = env_check(rq, in->env, true)) < 0 || (r = origin_take(rq, in->origin, spec)) < 0)
        return r;
    spec->argv = in->argv;
    memset(&in->argv, 0, sizeof in->argv);
    spec->shell = TAKE(in->shell);
    spec->cwd = TAKE(in->cwd);
    spec->env = json_incref(in->env);
    spec->stdin_pipe = in->stdin_kind == 1;
    spec->timeout_ms = in->timeout_ms;
    spec->idle_timeout_ms = in->idle_timeout_ms;
    spec->kill_grace_ms = in->kill_grace_ms;
    spec->max_output_bytes = in->max_output_bytes;
    spec->kill_on_disconnect = in->on_disconnect == 1;
    spec->has_umask = in->umask >= 0;
    spec->umask = (unsigned)in->umask & 0777;
    return 0;
}

int command_start(struct request *rq)
{
    struct command_body *in = rq->in;
    struct command_spec spec = {0};
    struct waiting w = {.inline_bytes = in->inline_bytes,
                        .grace_ms = in->kill_grace_ms,
                        .kills = in->on_disconnect == 1,
                        .status = 201};
    struct session *s;
    int r = session_need(rq, &s);

    if (r >= 0)
        r = spec_take(rq, in, &spec);
    if (r >= 0)
        r = command_create(s, &spec, &rq->caller.actor, &w.c, &rq->err);
    command_spec_done(&spec);
    if (r < 0)
        return r;
    (void)reply_header(rq, "Location", "/v1/sessions/%s/commands/%s", rq->params[0],
                       command_id(w.c));
    return wait_end(rq, &w, in->wait_ms);
}

/* ---- Input, signals, end ----------------------------------------------------------------------
 */

int command_stdin_route(struct request *rq)
{
    const struct stdin_query *q = rq->args;
    struct command *c;
    uint64_t accepted = 0;
    int r = command_need(rq, &c);

    if (r < 0)
        return r;
    r = command_stdin(c, (uint64_t)q->offset, str_c(&rq->body), rq->body.len, q->close, &accepted,
                      &rq->err);
    if (r < 0) {
        if (strcmp(rq->err.code, "stdin_gap") == 0 || strcmp(rq->err.code, "stdin_full") == 0)
            request_extra(rq, "accepted_to", json_integer((json_int_t)accepted));
        if (strcmp(rq->err.code, "stdin_full") == 0)
            request_extra(rq, "retry_after_ms", json_integer(5));
        return r;
    }
    return reply_json(rq, 200,
                      json_pack("{s:I, s:b}", "accepted_to", (json_int_t)accepted, "closed",
                                q->close && accepted == (uint64_t)q->offset + rq->body.len));
}

int command_signal_route(struct request *rq)
{
    const struct signal_body *in = rq->in;
    struct command *c;
    int r = command_need(rq, &c);

    if (r < 0 || (r = command_signal(c, SIGNAL_NUMBERS[in->signal], in->to == 0, &rq->err)) < 0)
        return r;
    return reply_json(rq, 200, command_to_json(c));
}

int command_stop_route(struct request *rq)
{
    const struct stop_body *in = rq->in;
    struct command *c;
    int r = command_need(rq, &c);

    if (r < 0)
        return r;
    command_ref(c);
    r = command_stop(c, in->grace_ms, &rq->err);
    if (r >= 0)
        r = reply_json(rq, 202, command_to_json(c));
    command_unref(c);
    return r;
}

int command_remove(struct request *rq)
{
    struct command *c;
    json_t *doc = NULL;
    int r = command_any(rq, &c, &doc);

    json_decref(doc);
    if (r < 0)
        return r;
    /* Found alive also when it has ended and children of it hold on. */
    if (c)
        return request_refuse(rq, "command_running", NULL, "the command, or a child of it, runs");
    if ((r = record_delete(rq->api->d.db, RECORD_COMMAND, rq->params[1])) < 0 ||
        (r = db_commit(rq->api->d.db)) < 0)
        return r;
    (void)spool_delete(rq->api->d.spool_dir, rq->params[1]);
    events_emit(rq->api->d.db, &(struct event){EVENT_COMMAND, EVENT_REMOVED, rq->params[1],
                                               rq->params[0], 0, NULL, NULL});
    return reply_empty(rq);
}

/* The output goes once the store has let go of the records. */
int session_forget(struct request *rq, const char *id)
{
    struct record_query q = {.kind = RECORD_COMMAND, .session_id = id, .limit = RECORD_LIST_MAX};
    CLEANUP(strv_done) struct strv ids = {0};
    char last[ID_MAX];
    bool more = true;
    int r = 0;

    while (r == 0 && more) {
        json_t *docs = NULL, *doc;
        size_t i;
        r = record_list(rq->api->d.db, &q, &docs, &more);
        json_array_foreach(docs, i, doc) if (r == 0) r =
            strv_add(&ids, json_string_value(json_object_get(doc, "id")));
        json_decref(docs);
        if (r == 0 && ids.n > 0)
            (void)snprintf(last, sizeof last, "%s", ids.items[ids.n - 1]);
        q.before_id = last;
    }
    if (r == 0)
        r = record_delete(rq->api->d.db, RECORD_SESSION, id);
    if (r == 0)
        r = db_commit(rq->api->d.db);
    for (size_t i = 0; r == 0 && i < ids.n; i++)
        (void)spool_delete(rq->api->d.spool_dir, ids.items[i]);
    return r;
}
