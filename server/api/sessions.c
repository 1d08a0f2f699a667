/* Runs in: daemon. Reads: trusted (checked by the router). May block: no. */
#include "api/handlers.h"
#include "api/session_parts.h"
#include "api/state.h"
#include "base/mem.h"
#include "session/asks.h"
#include "session/command.h"
#include "store/events.h"
#include "store/records.h"
#include <errno.h>
#include <string.h>

/* ---- Shapes -----------------------------------------------------------------------------------
 */

struct sessions_query {
    struct page page;
    char *q;
    int state, tier;
};
static const struct field SESSIONS_FIELDS[] = {
    PAGE_FIELDS(sessions_query),
    {"q", FIELD_STRING, offsetof(struct sessions_query, q), 0, 1, 200, NULL, NULL},
    {"state", FIELD_ENUM, offsetof(struct sessions_query, state), 0, 0, 0, SESSION_STATE_NAMES,
     NULL},
    {"tier", FIELD_ENUM, offsetof(struct sessions_query, tier), 0, 0, 0, TIER_NAMES, NULL},
    FIELDS_END};
static const struct sessions_query SESSIONS_DEFAULTS = {
    .page.limit = PAGE_DEFAULT, .state = -1, .tier = -1};
const struct shape SESSIONS_QUERY = {SESSIONS_FIELDS, sizeof(struct sessions_query),
                                     &SESSIONS_DEFAULTS};

struct session_patch {
    char *name, *tier, *network;
    int approvals;
    bool remember;
};
static const struct field PATCH_FIELDS[] = {
    {"name", FIELD_STRING, offsetof(struct session_patch, name), FIELD_NULLABLE, 1, 100, NULL,
     NULL},
    {"approvals", FIELD_ENUM, offsetof(struct session_patch, approvals), FIELD_NULLABLE, 0, 0,
     APPROVALS_NAMES, NULL},
    {"tier", FIELD_STRING, offsetof(struct session_patch, tier), 0, 1, 20, NULL,
     not_in_this_version},
    {"network", FIELD_STRING, offsetof(struct session_patch, network), 0, 1, 20, NULL,
     not_in_this_version},
    {"remember", FIELD_BOOL, offsetof(struct session_patch, remember), 0, 0, 0, NULL,
     not_in_this_version},
    FIELDS_END};
static const struct session_patch PATCH_DEFAULTS = {.approvals = -1};
const struct shape SESSION_PATCH = {PATCH_FIELDS, sizeof(struct session_patch), &PATCH_DEFAULTS};

struct stop_body {
    int64_t grace_ms;
};
static const struct field STOP_FIELDS[] = {
    {"grace_ms", FIELD_INT, offsetof(struct stop_body, grace_ms), 0, 0, 600000, NULL, NULL},
    FIELDS_END};
static const struct stop_body STOP_DEFAULTS = {5000};
const struct shape SESSION_STOP_BODY = {STOP_FIELDS, sizeof(struct stop_body), &STOP_DEFAULTS};

struct verify_body {
    int64_t wait_ms;
};
static const struct field VERIFY_FIELDS[] = {
    {"wait_ms", FIELD_INT, offsetof(struct verify_body, wait_ms), 0, 0, API_WAIT_MAX, NULL, NULL},
    FIELDS_END};
static const struct verify_body VERIFY_DEFAULTS = {30000};
const struct shape SESSION_VERIFY_BODY = {VERIFY_FIELDS, sizeof(struct verify_body),
                                          &VERIFY_DEFAULTS};

/* ---- Finding ----------------------------------------------------------------------------------
 */

int session_any(struct request *rq, struct session **ret_live, json_t **ret_doc)
{
    struct session *s = session_find(rq->api->d.sessions, rq->params[0]);

    if (s) {
        *ret_live = s;
        *ret_doc = session_to_json(s);
        return *ret_doc ? 0 : -ENOMEM;
    }
    *ret_live = NULL;
    if (record_get(rq->api->d.db, RECORD_SESSION, rq->params[0], ret_doc) < 0)
        return request_not_found(rq, "session");
    return 0;
}

int session_need(struct request *rq, struct session **ret)
{
    json_t *doc = NULL;
    int r = session_any(rq, ret, &doc);
    const char *state = json_string_value(json_object_get(doc, "state"));
    bool refused = state && strcmp(state, "refused") == 0;

    json_decref(doc);
    if (r < 0)
        return r;
    if (*ret)
        return 0;
    if (refused)
        return request_refuse(rq, "session_not_ready", "Make a new session.",
                              "the session was refused");
    return request_refuse(rq, "session_ended", NULL, "the session has ended");
}

static int reply_session(struct request *rq, int status, json_t *take_doc)
{
    return reply_rev(rq, status, take_doc, json_integer_value(json_object_get(take_doc, "rev")));
}

/* ---- Reading ----------------------------------------------------------------------------------
 */

int sessions_show(struct request *rq)
{
    const struct sessions_query *q = rq->args;
    struct record_query rows = {.kind = RECORD_SESSION,
                                .state = q->state >= 0 ? SESSION_STATE_NAMES[q->state] : NULL,
                                .tier = q->tier >= 0 ? TIER_NAMES[q->tier] : NULL,
                                .q = q->q,
                                .before_id = q->page.cursor,
                                .limit = (unsigned)q->page.limit};

    return records_reply(rq, &rows);
}

/* The record of what lives may be older than it; a new reference, NULL for what has ended. */
static json_t *live_doc(struct request *rq, const struct record_query *q, const char *id)
{
    json_t *ask = NULL;
    bool is_open;
    if (q->kind == RECORD_ASK)
        return ask_show(rq->api->d.sessions, id, &ask, &is_open) < 0 ? NULL : ask;
    struct session *s =
        session_find(rq->api->d.sessions, q->kind == RECORD_SESSION ? id : q->session_id);
    struct command *c = s && q->kind == RECORD_COMMAND ? command_find(s, id) : NULL;

    if (q->kind == RECORD_COMMAND)
        return c ? command_to_json(c) : NULL;
    return s ? session_to_json(s) : NULL;
}

/* ITEMS as they are now; what is no longer in the state that was asked for goes. */
static json_t *look_again(struct request *rq, const struct record_query *q, const char *state,
                          json_t *items)
{
    json_t *ret = json_array(), *item;
    size_t i;

    json_array_foreach(items, i, item)
    {
        json_t *doc = live_doc(rq, q, json_string_value(json_object_get(item, "id")));
        if (!doc)
            doc = json_incref(item);
        const char *is = json_string_value(json_object_get(doc, "state"));
        if (!state || (is && strcmp(is, state) == 0))
            (void)json_array_append_new(ret, doc);
        else
            json_decref(doc);
    }
    return ret;
}

int records_reply(struct request *rq, struct record_query *q)
{
    static const char *const PREFIXES[] = {
        [RECORD_SESSION] = "ses", [RECORD_COMMAND] = "cmd", [RECORD_ASK] = "ask"};
    json_t *items = NULL, *now;
    const json_t *last;
    const char *state = q->state;
    bool more = false;
    int r;

    if (q->before_id && !id_is(q->before_id, PREFIXES[q->kind]))
        return request_bad_query(rq, "cursor", "format", "not a cursor of this list");
    if (q->kind == RECORD_COMMAND && state && strcmp(state, "starting") == 0)
        q->state = "running"; /* as session/command_record writes both */
    r = record_list(rq->api->d.db, q, &items, &more);
    if (r < 0)
        return r;
    now = look_again(rq, q, state, items);
    last = json_array_get(items, json_array_size(items) - 1);
    r = reply_items(rq, now, more ? json_string_value(json_object_get(last, "id")) : NULL);
    json_decref(items);
    return r;
}

int session_show(struct request *rq)
{
    struct session *s;
    json_t *doc;
    int r = session_any(rq, &s, &doc);

    return r < 0 ? r : reply_session(rq, 200, doc);
}

int session_proof_show(struct request *rq)
{
    struct session *s;
    json_t *proof;
    int r = session_need(rq, &s);

    if (r < 0)
        return r;
    proof = session_proof_json(s);
    return proof ? reply_json(rq, 200, proof) : request_not_found(rq, "proof: no wall was tried");
}

int session_access_show(struct request *rq)
{
    struct session *s;
    int r = session_need(rq, &s);

    return r < 0 ? r : reply_json(rq, 200, session_access_json(s));
}

int session_folders_show(struct request *rq)
{
    struct session *s;
    json_t *doc, *folders;
    int r = session_any(rq, &s, &doc);

    if (r < 0)
        return r;
    folders = json_incref(json_object_get(doc, "folders"));
    json_decref(doc);
    return reply_items(rq, folders, NULL);
}

/* ---- Making -----------------------------------------------------------------------------------
 */

struct making {
    struct session *s;
    struct actor actor;
};

static void making_done(void *state)
{
    struct making *m = state;

    session_unref(m->s);
    free(m);
}

static int making_answer(struct request *rq, struct session *s)
{
    json_t *doc = session_to_json(s);
    const json_t *refused = json_object_get(doc, "refused");
    const char *detail, *hint;

    if (session_state(s) != SESSION_REFUSED && !refused)
        return reply_session(rq, 201, doc);
    detail = json_string_value(json_object_get(refused, "detail"));
    hint = json_string_value(json_object_get(refused, "hint"));
    request_extra(rq, "session_id", json_string(session_id(s)));
    request_extra(rq, "checks", json_incref(json_object_get(refused, "checks")));
    (void)request_refuse(rq, "session_refused", hint && *hint ? hint : NULL, "%s",
                         detail ? detail : "the wall was not proved");
    json_decref(doc);
    return -EPERM;
}

static bool is_settled(struct session *s)
{
    enum session_state state = session_state(s);

    return state != SESSION_STARTING && state != SESSION_VERIFYING && state != SESSION_RESTARTING;
}

/* Nobody learned the id: the session ends. With an Idempotency-Key the client can ask again. */
static void making_unknown(struct request *rq)
{
    struct making *m = rq->state;

    if (!rq->head.idempotency_key)
        session_stop(m->s, 0, "caller_gone", &rq->caller.actor);
}

static void on_making(struct request *rq, enum wake why)
{
    struct making *m = rq->state;

    if (why == WAKE_GONE) {
        if (rq->head.idempotency_key)
            (void)making_answer(rq, m->s);
        return; /* not_sent sees to the rest */
    }
    if (why == WAKE_TIMEOUT || is_settled(m->s))
        request_answer(rq, making_answer(rq, m->s));
}

static int making_hold(struct request *rq, struct session *s)
{
    struct making *m = calloc(1, sizeof *m);

    if (!m)
        return -ENOMEM;
    session_ref(s);
    m->s = s;
    rq->state = m;
    rq->state_done = making_done;
    return 0;
}

int session_create_route(struct request *rq)
{
    struct session_spec spec = {0};
    struct session *s = NULL;
    int r = session_spec_take(rq, &spec);

    if (r >= 0)
        r = session_spec_confirm(rq, &spec);
    if (r >= 0)
        r = session_create(rq->api->d.sessions, &spec, &rq->caller.actor, &s, &rq->err);
    session_spec_done(&spec);
    if (r < 0)
        return r;
    (void)reply_header(rq, "Location", "/v1/sessions/%s", session_id(s));
    if ((r = making_hold(rq, s)) < 0)
        return r;
    rq->not_sent = making_unknown;
    if (session_spec_wait(rq) == 0 || is_settled(s))
        return making_answer(rq, s);
    request_park(rq, session_watched(s), (uint64_t)session_spec_wait(rq), on_making);
    return 0;
}

/* ---- Changing ---------------------------------------------------------------------------------
 */

/* The default: the first folder's. */
static int name_again(struct request *rq, struct session *s)
{
    json_t *doc = session_to_json(s);
    const json_t *folder = json_array_get(json_object_get(doc, "folders"), 0);
    const char *path = json_string_value(json_object_get(folder, "path"));
    const char *slash = path ? strrchr(path, '/') : NULL;
    int r = slash ? session_rename(s, slash[1] ? slash + 1 : path, &rq->caller.actor)
                  : request_bad_member(rq, "/name", "type", "the first folder has no name");

    json_decref(doc);
    return r;
}

int session_change(struct request *rq)
{
    const struct session_patch *in = rq->in;
    const json_t *name = json_object_get(rq->json, "name");
    struct session *s;
    int r = session_need(rq, &s);

    if (r < 0 || (r = request_if_match(rq, session_rev(s))) < 0)
        return r;
    if (name)
        r = in->name ? session_rename(s, in->name, &rq->caller.actor) : name_again(rq, s);
    if (r >= 0 && (in->approvals >= 0 || json_object_get(rq->json, "approvals")))
        r = session_set_approvals(s, in->approvals >= 0 ? in->approvals : APPROVALS_ASK,
                                  &rq->caller.actor);
    return r < 0 ? r : reply_session(rq, 200, session_to_json(s));
}

/* Answers at once; the end is watched for by GET. */
int session_stop_route(struct request *rq)
{
    const struct stop_body *in = rq->in;
    struct session *s;
    json_t *doc;
    int r = session_need(rq, &s);

    if (r < 0)
        return r;
    session_ref(s);
    session_stop(s, (uint64_t)in->grace_ms, "stopped", &rq->caller.actor);
    doc = session_to_json(s);
    session_unref(s);
    return reply_session(rq, 202, doc);
}

int session_remove(struct request *rq)
{
    struct session *s;
    json_t *doc = NULL;
    int r = session_any(rq, &s, &doc);

    json_decref(doc);
    if (r < 0)
        return r;
    if (s)
        return request_refuse(rq, "session_running", NULL, "the session lives");
    if ((r = session_forget(rq, rq->params[0])) < 0)
        return r;
    events_emit(rq->api->d.db, &(struct event){EVENT_SESSION, EVENT_REMOVED, rq->params[0],
                                               rq->params[0], 0, NULL, NULL});
    return reply_empty(rq);
}

static void on_verified(struct request *rq, enum wake why)
{
    struct making *m = rq->state;
    json_t *proof;

    if (why == WAKE_GONE)
        return;
    if (why != WAKE_TIMEOUT && !is_settled(m->s))
        return;
    if (session_state(m->s) != SESSION_READY && why != WAKE_TIMEOUT) {
        request_answer(rq, making_answer(rq, m->s));
        return;
    }
    proof = session_proof_json(m->s);
    request_answer(rq, proof ? reply_json(rq, 200, proof)
                             : request_refuse(rq, "session_not_ready", NULL, "no proof yet"));
}

int session_verify_route(struct request *rq)
{
    const struct verify_body *in = rq->in;
    struct session *s;
    int r = session_need(rq, &s);

    if (r < 0 || (r = session_verify(s, &rq->err)) < 0 || (r = making_hold(rq, s)) < 0)
        return r;
    request_park(rq, session_watched(s), (uint64_t)in->wait_ms, on_verified);
    return 0;
}
