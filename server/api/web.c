/* Runs in: daemon. Reads: trusted (checked by the router). May block: no.
 *
 * The agent's web tools: one call each; the answer comes when the call is over. */
#include "session/web.h"
#include "api/handlers.h"
#include "api/session_parts.h"
#include "api/state.h"
#include <errno.h>
#include <stdlib.h>

#define WAIT_MS 30000 /* for a person, before 202 */

static const char *const FORMATS[] = {"raw", "text", "markdown", NULL}; /* as enum fetch_form */
struct fetch_body {
    char *url, *ask_id;
    int format;
    int64_t max_bytes, wait_ms;
};
#define AT(member) offsetof(struct fetch_body, member)
static const struct field FETCH_FIELDS[] = {
    {"url", FIELD_STRING, AT(url), FIELD_MANDATORY, 1, 8192, NULL, NULL},
    {"format", FIELD_ENUM, AT(format), 0, 0, 0, FORMATS, NULL},
    {"max_bytes", FIELD_INT, AT(max_bytes), 0, 1, FETCH_BODY_MAX, NULL, NULL},
    {"wait_ms", FIELD_INT, AT(wait_ms), 0, 0, API_WAIT_MAX, NULL, NULL},
    {"ask_id", FIELD_STRING, AT(ask_id), FIELD_NULLABLE, 30, 30, NULL, NULL},
    FIELDS_END};
#undef AT
static const struct fetch_body FETCH_DEFAULTS = {
    .format = FETCH_MARKDOWN, .max_bytes = WEB_BODY, .wait_ms = WAIT_MS};
const struct shape WEB_FETCH_BODY = {FETCH_FIELDS, sizeof(struct fetch_body), &FETCH_DEFAULTS};

struct search_body {
    char *query, *provider, *ask_id;
    int64_t count, wait_ms;
};
#define AT(member) offsetof(struct search_body, member)
static const struct field SEARCH_FIELDS[] = {
    {"query", FIELD_STRING, AT(query), FIELD_MANDATORY, 1, WEB_QUERY_MAX, NULL, NULL},
    {"count", FIELD_INT, AT(count), 0, 1, WEB_RESULTS_MAX, NULL, NULL},
    {"provider", FIELD_STRING, AT(provider), FIELD_NULLABLE, 1, 20, NULL, NULL},
    {"wait_ms", FIELD_INT, AT(wait_ms), 0, 0, API_WAIT_MAX, NULL, NULL},
    {"ask_id", FIELD_STRING, AT(ask_id), FIELD_NULLABLE, 30, 30, NULL, NULL},
    FIELDS_END};
#undef AT
static const struct search_body SEARCH_DEFAULTS = {.count = 10, .wait_ms = WAIT_MS};
const struct shape WEB_SEARCH_BODY = {SEARCH_FIELDS, sizeof(struct search_body), &SEARCH_DEFAULTS};

/* ---- One call ------------------------------------------------------------------------------- */

struct web_job {
    struct request *rq; /* NULL once it is gone */
    struct web_call *call;
};

static void job_drop(void *state)
{
    struct web_job *job = state;

    web_call_drop(job->call);
    free(job);
}

static void on_answer(const struct web_answer *a, void *arg)
{
    struct web_job *job = arg;
    struct request *rq = job->rq;

    rq->state = NULL;
    rq->state_done = NULL;
    free(job);
    if (a->status == 0) {
        rq->err = a->err;
        request_answer(rq, -EIO);
        return;
    }
    request_answer(rq, reply_json(rq, a->status, json_incref(a->json)));
}

static void on_wait(struct request *rq, enum wake why)
{
    struct web_job *job = rq->state;

    if (why == WAKE_TIMEOUT && job)
        web_call_waited(job->call); /* may answer, and free JOB */
}

static int web_run(struct request *rq, const struct web_request *what, int64_t wait_ms)
{
    struct web_job *job;
    struct session *s;
    int r = session_need(rq, &s);

    if (r < 0)
        return r;
    job = calloc(1, sizeof *job);
    if (!job)
        return -ENOMEM;
    job->rq = rq;
    r = session_web_call(s, what, &rq->caller.actor, on_answer, job, &job->call, &rq->err);
    if (r < 0) {
        free(job);
        return r;
    }
    rq->state = job;
    rq->state_done = job_drop;
    request_park(rq, NULL, (uint64_t)wait_ms, on_wait);
    return 0;
}

int web_fetch(struct request *rq)
{
    const struct fetch_body *in = rq->in;

    return web_run(rq,
                   &(struct web_request){.url = in->url,
                                         .form = (enum fetch_form)in->format,
                                         .max_bytes = (uint32_t)in->max_bytes,
                                         .ask_id = in->ask_id},
                   in->wait_ms);
}

int web_search(struct request *rq)
{
    const struct search_body *in = rq->in;

    if (in->provider && !search_provider_find(in->provider))
        return request_bad_member(rq, "/provider", "range", "one of brave, tavily, duckduckgo");
    return web_run(rq,
                   &(struct web_request){.query = in->query,
                                         .count = (unsigned)in->count,
                                         .provider = in->provider,
                                         .ask_id = in->ask_id},
                   in->wait_ms);
}
