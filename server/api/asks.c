/* Runs in: daemon. Reads: trusted (checked by the router); reasons and hosts come from agents.
 * May block: no.
 *
 * Questions to a person, and their answers. */
#include "session/asks.h"
#include "api/handlers.h"
#include "api/session_parts.h"
#include "api/state.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Shapes -----------------------------------------------------------------------------------
 */

static const char *const STATES[] = {"open", "decided", "expired", "cancelled", "superseded", NULL};
static const char *const KINDS[] = {"site", "folder", NULL};
enum { KIND_SITE = 0, KIND_FOLDER };

struct ask_body {
    int kind;
    json_t *subject;
    char *reason;
    int64_t wait_ms;
};
static const struct field ASK_FIELDS[] = {
    {"kind", FIELD_ENUM, offsetof(struct ask_body, kind), FIELD_MANDATORY, 0, 0, KINDS, NULL},
    {"subject", FIELD_OBJECT, offsetof(struct ask_body, subject), FIELD_MANDATORY, 0, 0, NULL,
     NULL},
    {"reason", FIELD_STRING, offsetof(struct ask_body, reason), FIELD_NULLABLE, 1, ASK_REASON_MAX,
     NULL, NULL},
    {"wait_ms", FIELD_INT, offsetof(struct ask_body, wait_ms), 0, 0, API_WAIT_MAX, NULL, NULL},
    FIELDS_END};
const struct shape ASK_BODY = {ASK_FIELDS, sizeof(struct ask_body), NULL};

struct subject {
    char *host;
    int64_t port;
};
static const struct field SUBJECT_FIELDS[] = {
    {"host", FIELD_STRING, offsetof(struct subject, host), FIELD_MANDATORY, 1, 300, NULL, NULL},
    {"port", FIELD_INT, offsetof(struct subject, port), FIELD_MANDATORY, 1, 65535, NULL, NULL},
    FIELDS_END};

struct decide_body {
    int answer;
    char *host, *note;
};
static const struct field DECIDE_FIELDS[] = {
    {"answer", FIELD_ENUM, offsetof(struct decide_body, answer), FIELD_MANDATORY, 0, 0,
     ANSWER_NAMES, NULL},
    {"host", FIELD_STRING, offsetof(struct decide_body, host), FIELD_NULLABLE, 1, 300, NULL, NULL},
    {"note", FIELD_STRING, offsetof(struct decide_body, note), FIELD_NULLABLE, 1, ASK_REASON_MAX,
     NULL, NULL},
    FIELDS_END};
const struct shape DECIDE_BODY = {DECIDE_FIELDS, sizeof(struct decide_body), NULL};

struct asks_query {
    struct page page;
    int state;
    char *session;
};
#define STATE_FIELD                                                                                \
    {                                                                                              \
        "state", FIELD_ENUM, offsetof(struct asks_query, state), 0, 0, 0, STATES, NULL             \
    }
static const struct field ASKS_FIELDS[] = {
    PAGE_FIELDS(asks_query),
    STATE_FIELD,
    {"session", FIELD_STRING, offsetof(struct asks_query, session), 0, 1, 30, NULL, NULL},
    FIELDS_END};
static const struct field OWN_FIELDS[] = {PAGE_FIELDS(asks_query), STATE_FIELD, FIELDS_END};
static const struct asks_query ASKS_DEFAULTS = {.page.limit = PAGE_DEFAULT, .state = -1};
const struct shape ASKS_QUERY = {ASKS_FIELDS, sizeof(struct asks_query), &ASKS_DEFAULTS};
const struct shape SESSION_ASKS_QUERY = {OWN_FIELDS, sizeof(struct asks_query), &ASKS_DEFAULTS};

struct ask_query {
    int64_t wait_ms;
};
static const struct field ASK_QUERY_FIELDS[] = {
    {"wait_ms", FIELD_INT, offsetof(struct ask_query, wait_ms), 0, 0, API_WAIT_MAX, NULL, NULL},
    FIELDS_END};
const struct shape ASK_QUERY = {ASK_QUERY_FIELDS, sizeof(struct ask_query), NULL};

/* ---- Reading ----------------------------------------------------------------------------------
 */

static int reply_ask(struct request *rq, int status, json_t *take_ask)
{
    return reply_rev(rq, status, take_ask, json_integer_value(json_object_get(take_ask, "rev")));
}

static int reply_asks(struct request *rq, const char *session_id)
{
    const struct asks_query *q = rq->args;
    struct record_query rows = {.kind = RECORD_ASK,
                                .session_id = session_id,
                                .state = q->state >= 0 ? STATES[q->state] : NULL,
                                .before_id = q->page.cursor,
                                .limit = (unsigned)q->page.limit};

    return records_reply(rq, &rows);
}

/* An agent sees those of its own session, whatever it names. */
static const char *own_session(const struct request *rq)
{
    return rq->caller.session_id[0] ? rq->caller.session_id : NULL;
}

int asks_show(struct request *rq)
{
    const struct asks_query *q = rq->args;
    const char *own = own_session(rq);

    if (own && q->session && strcmp(own, q->session) != 0)
        return request_not_found(rq, "session");
    return reply_asks(rq, own ? own : q->session);
}

int session_asks_show(struct request *rq)
{
    struct session *s;
    json_t *doc = NULL;
    int r = session_any(rq, &s, &doc);

    json_decref(doc);
    return r < 0 ? r : reply_asks(rq, rq->params[0]);
}

/* The ask of that id, if the caller may see it. */
static int ask_need(struct request *rq, const char *id, json_t **ret, bool *ret_open)
{
    const char *own = own_session(rq), *of;

    if (ask_show(rq->api->d.sessions, id, ret, ret_open) < 0)
        return request_not_found(rq, "ask");
    of = json_string_value(json_object_get(*ret, "session_id"));
    if (!own || (of && strcmp(of, own) == 0))
        return 0;
    json_decref(*ret);
    return request_not_found(rq, "ask");
}

/* ---- Waiting for the answer -------------------------------------------------------------------
 */

struct awaiting {
    int status;
    char id[ID_MAX];
};

static void on_asks(struct request *rq, enum wake why)
{
    const struct awaiting *w = rq->state;
    json_t *ask = NULL;
    bool is_open = false;
    int r;

    if (why == WAKE_GONE)
        return;
    r = ask_need(rq, w->id, &ask, &is_open);
    if (r >= 0 && is_open && why != WAKE_TIMEOUT) {
        json_decref(ask);
        return;
    }
    request_answer(rq, r < 0 ? r : reply_ask(rq, w->status, ask));
}

static int await_answer(struct request *rq, int status, const char *id, int64_t wait_ms)
{
    struct awaiting *w = calloc(1, sizeof *w);

    if (!w)
        return -ENOMEM;
    w->status = status;
    (void)snprintf(w->id, sizeof w->id, "%s", id);
    rq->state = w;
    rq->state_done = free;
    request_park(rq, asks_watched(rq->api->d.sessions), (uint64_t)wait_ms, on_asks);
    return 0;
}

int ask_show_route(struct request *rq)
{
    const struct ask_query *q = rq->args;
    bool is_open = false;
    json_t *ask;
    int r = ask_need(rq, rq->params[0], &ask, &is_open);

    if (r < 0)
        return r;
    if (!is_open || q->wait_ms == 0)
        return reply_ask(rq, 200, ask);
    json_decref(ask);
    return await_answer(rq, 200, rq->params[0], q->wait_ms);
}

/* ---- The agent asks ---------------------------------------------------------------------------
 */

static int subject_take(struct request *rq, const struct ask_body *in, struct subject *ret)
{
    if (in->kind == KIND_FOLDER)
        return request_bad_member(rq, "/kind", "format", "folders: not in this version");
    if (fields_parse(SUBJECT_FIELDS, in->subject, "/subject", ret, &rq->errors) < 0)
        return err_set(&rq->err, -EINVAL, "body_invalid", NULL, "the subject has faults");
    return 0;
}

int ask_create(struct request *rq)
{
    const struct ask_body *in = rq->in;
    struct subject subject = {0};
    struct session *s;
    char id[ID_MAX] = "";
    json_t *ask = NULL;
    bool is_joined = false;
    int r = session_need(rq, &s);

    if (r >= 0)
        r = subject_take(rq, in, &subject);
    if (r >= 0)
        r = session_ask(s, subject.host, (int)subject.port, in->reason, &rq->caller.actor, &ask,
                        &is_joined, &rq->err);
    fields_done(SUBJECT_FIELDS, &subject);
    if (r < 0)
        return r;
    (void)snprintf(id, sizeof id, "%s", json_string_value(json_object_get(ask, "id")));
    (void)reply_header(rq, "Location", "/v1/asks/%s", id);
    if (in->wait_ms == 0)
        return reply_ask(rq, is_joined ? 200 : 201, ask);
    json_decref(ask);
    return await_answer(rq, is_joined ? 200 : 201, id, in->wait_ms);
}

/* ---- A person answers -------------------------------------------------------------------------
 */

static int answered(struct request *rq, int r, json_t *ask, json_t *decided)
{
    if (r < 0 && decided)
        request_extra(rq, "decided", decided);
    return r < 0 ? r : reply_ask(rq, 200, ask);
}

int ask_decide_route(struct request *rq)
{
    const struct decide_body *in = rq->in;
    const struct ask_decision d = {
        .answer = (enum ask_answer)in->answer, .host = in->host, .note = in->note};
    json_t *ask = NULL, *decided = NULL;
    int r = ask_decide(rq->api->d.sessions, rq->params[0], &d, &rq->caller.actor, &ask, &decided,
                       &rq->err);

    return answered(rq, r, ask, decided);
}

int ask_extend_route(struct request *rq)
{
    json_t *ask = NULL, *decided = NULL;
    int r =
        ask_extend(rq->api->d.sessions, rq->params[0], &rq->caller.actor, &ask, &decided, &rq->err);

    return answered(rq, r, ask, decided);
}
