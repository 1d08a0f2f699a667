/* Runs in: daemon. Reads: trusted (checked by the router). May block: no.
 *
 * What is true of the daemon and of this machine. */
#include "api/handlers.h"
#include "api/session_parts.h"
#include "api/state.h"
#include "base/embedded.h"
#include "base/mem.h"
#include "schema_openapi.h"
#include <errno.h>
#include <string.h>

struct shutdown_body {
    int64_t drain_ms;
};
static const struct field SHUTDOWN_FIELDS[] = {
    {"drain_ms", FIELD_INT, offsetof(struct shutdown_body, drain_ms), 0, 0, 600000, NULL, NULL},
    FIELDS_END};
const struct shape SHUTDOWN_BODY = {SHUTDOWN_FIELDS, sizeof(struct shutdown_body), NULL};

static const char *const RENDERS[] = {"none", "bwrap", "landlock", "seccomp", NULL};
struct policy_query {
    int tier, render;
};
static const struct field POLICY_FIELDS[] = {
    {"tier", FIELD_ENUM, offsetof(struct policy_query, tier), 0, 0, 0, TIER_NAMES, NULL},
    {"render", FIELD_ENUM, offsetof(struct policy_query, render), 0, 0, 0, RENDERS, NULL},
    FIELDS_END};
static const struct policy_query POLICY_DEFAULTS = {-1, 0};
const struct shape POLICY_QUERY = {POLICY_FIELDS, sizeof(struct policy_query), &POLICY_DEFAULTS};
const struct shape RENDER_QUERY = {POLICY_FIELDS + 1, sizeof(struct policy_query),
                                   &POLICY_DEFAULTS};
const struct shape PREVIEW_QUERY = {POLICY_FIELDS + 1, sizeof(struct policy_query),
                                    &POLICY_DEFAULTS};

int health_show(struct request *rq)
{
    /* Asked for often; an id needs no escapes. */
    rq->reply.status = 200;
    rq->reply.content_type = "application/json";
    return str_printf(&rq->reply.text, "{\"status\":\"%s\",\"instance_id\":\"%s\"}",
                      rq->api->shutting_down ? "stopping" : "ok", rq->api->d.instance_id);
}

int version_show(struct request *rq)
{
    return reply_json(rq, 200,
                      json_pack("{s:s, s:s, s:s}", "version", rq->api->d.version, "api", "v1",
                                "instance_id", rq->api->d.instance_id));
}

int openapi_show(struct request *rq)
{
    rq->reply.status = 200;
    rq->reply.content_type = "application/json";
    rq->reply.is_borrowed = schema_openapi[0].bytes;
    rq->reply.length = schema_openapi[0].len;
    return 0;
}

/* ---- Status -----------------------------------------------------------------------------------
 */

int status_show(struct request *rq)
{
    return reply_json(rq, 200, sessions_status_json(rq->api->d.sessions));
}

/* A call that answers later than its request may live: the request goes, the call stays. */
struct pending {
    struct request *rq; /* NULL: nobody waits any more */
};

static void pending_drop(void *state)
{
    struct pending *p = state;

    p->rq = NULL;
}

static void on_status(json_t *status, void *arg)
{
    struct pending *p = arg;
    struct request *rq = p->rq;

    free(p);
    if (!rq) {
        json_decref(status);
        return;
    }
    rq->state = NULL;
    rq->state_done = NULL;
    request_answer(rq, reply_json(rq, 200, status));
}

int status_check(struct request *rq)
{
    struct pending *p;
    int r;

    p = calloc(1, sizeof *p);
    if (!p)
        return -ENOMEM;
    p->rq = rq;
    r = sessions_status_check(rq->api->d.sessions, on_status, p, &rq->err);
    if (r < 0) {
        free(p);
        return r;
    }
    rq->state = p;
    rq->state_done = pending_drop;
    request_park(rq, NULL, UINT64_MAX, NULL);
    return 0;
}

/* ---- The end ----------------------------------------------------------------------------------
 */

static void shutdown_begin(struct request *rq)
{
    const struct shutdown_body *in = rq->in;

    rq->api->d.shutdown((uint64_t)in->drain_ms, rq->api->d.arg);
}

/* The answer leaves first; from now on nothing new is taken. */
int shutdown_run(struct request *rq)
{
    rq->api->shutting_down = true;
    rq->after_sent = shutdown_begin;
    rq->reply.must_close = true;
    return reply_json(rq, 202, json_pack("{s:s}", "status", "stopping"));
}

/* ---- Policy -----------------------------------------------------------------------------------
 */

static int preview(struct request *rq, const struct session_spec *spec, int render)
{
    CLEANUP(freep) char *text = NULL;
    json_t *json = NULL;
    int r = sessions_policy_preview(rq->api->d.sessions, spec, render ? RENDERS[render] : NULL,
                                    &json, &text, &rq->err);

    if (r < 0)
        return r;
    return text ? reply_text(rq, 200, "text/plain; charset=utf-8", text)
                : reply_json(rq, 200, json);
}

int policy_show(struct request *rq)
{
    const struct policy_query *q = rq->args;
    struct session_spec spec = {.tier = q->tier, .network = -1};

    if (q->tier == TIER_GUARDED || q->tier == TIER_AIRLOCK)
        return request_bad_query(rq, "tier", "format", "not in this version");
    spec.caller_env = api_env();
    return preview(rq, &spec, q->render);
}

int policy_preview(struct request *rq)
{
    const struct policy_query *q = rq->args;
    struct session_spec spec = {0};
    int r = session_spec_take(rq, &spec);

    if (r >= 0)
        r = preview(rq, &spec, q->render);
    session_spec_done(&spec);
    return r;
}

int session_policy_show(struct request *rq)
{
    const struct policy_query *q = rq->args;
    CLEANUP(freep) char *text = NULL;
    struct session *s;
    int r = session_need(rq, &s);

    if (r < 0)
        return r;
    if (q->render) {
        r = session_policy_render(s, RENDERS[q->render], &text, &rq->err);
        return r < 0 ? r : reply_text(rq, 200, "text/plain; charset=utf-8", text);
    }
    return reply_json(rq, 200,
                      policy_to_json(session_policy(s), rq->api->d.machine, session_provider(s),
                                     session_hosts(s)));
}
