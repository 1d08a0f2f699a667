/* The agent's own web tools: a fetch, a search. Each runs in a cordon-fetch of its own, outside the
 * wall, under the same verdicts as a connection from inside (session/egress_verdict): the URL's
 * host first, then that of each redirect, each before its name is looked up.
 *
 *     session_web_call(s, &rq, actor, done, arg, &call, &err);
 *     …                               // done() once, later; or
 *     web_call_drop(call);            // the client is gone: done() is not called any more */
#pragma once
#include "session/search.h"
#include "session/session.h"
#include "wire/fetch.h"

#define WEB_CALLS_MAX   16 /* under way at once in one session */
#define WEB_BODY        (1U << 20)
#define WEB_REDIRECTS   5
#define WEB_MS          30000
#define WEB_DIAL_MS     10000
#define WEB_QUERY_MAX   2000 /* bytes */
#define WEB_RESULTS_MAX FETCH_RESULTS_MAX

struct web_request {
    /* A fetch: */
    const char *url;      /* NULL = a search */
    enum fetch_form form; /* FETCH_RAW, FETCH_TEXT, FETCH_MARKDOWN */
    uint32_t max_bytes;   /* 1..FETCH_BODY_MAX */
    /* A search: */
    const char *query;
    unsigned count;       /* 1..WEB_RESULTS_MAX */
    const char *provider; /* NULL = the setting's */
    const char *ask_id;   /* the answer of this ask is used; NULL = none */
};
struct web_answer {
    int status;     /* 200; 0: refused or failed, with err */
    struct err err; /* site_not_listed, network_none, private_address, ask_denied, fetch_failed,
                     * fetch_timeout, session_ended … */
    json_t *json;   /* the answer of REST; borrowed by the callback */
};
typedef void web_done_fn(const struct web_answer *a, void *arg);

struct web_call;
/* Negative with ERR when nothing was begun: body_invalid with /url or /query,
 * search_not_configured, session_not_ready, session_ended, too_many, disk_full, and what a verdict
 * says. Audited. */
int session_web_call(struct session *s, const struct web_request *rq, const struct actor *actor,
                     web_done_fn *done, void *arg, struct web_call **ret, struct err *err);
/* Its client waits no longer for a person: when it is held, now or later, done() comes at once with
 * 202 and the id of the ask. */
void web_call_waited(struct web_call *c);
void web_call_drop(struct web_call *c);
