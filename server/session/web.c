/* Runs in: daemon. Reads: hostile (hosts that servers redirect to, canonical by now). May block:
 * no. */
#include "session/web.h"
#include "base/log.h"
#include "base/mem.h"
#include "session/web_parts.h"
#include "store/blocked.h"
#include "store/events.h"
#include "store/traffic.h"
#include "store/web_keys.h"
#include "wire/url.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- Its life ------------------------------------------------------------------------------- */

static void call_free(struct closing *closing)
{
    struct web_call *c = container_of(closing, struct web_call, closing);
    struct session *s = c->s;
    struct web_call **at = &s->web_calls;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    s->n_web_calls--;
    child_done(&c->child);
    logpipe_done(&c->said);
    channel_done(&c->ch);
    fetch_order_done(&c->order);
    strv_done(&c->redirects);
    str_done(&c->body);
    json_decref(c->results);
    free(c->url);
    free(c->query);
    free(c->content_type);
    free(c->hop.url);
    free(c);
    session_web_gone(s);
    session_unref(s);
}

void web_call_over(struct web_call *c, const struct web_answer *a)
{
    web_done_fn *done = c->done;
    if (c->is_over)
        return;
    c->is_over = true;
    c->done = NULL;
    deadline_clear(&c->clock);
    if (done)
        done(a, c->arg);
    web_link_close(c);
}

static enum outcome outcome_of(const char *code)
{
    static const char *const FAILURES[] = {"fetch_failed", "fetch_timeout", "session_ended",
                                           "internal"};
    for (size_t i = 0; i < ARRAY_LEN(FAILURES); i++)
        if (strcmp(code, FAILURES[i]) == 0)
            return OUTCOME_ERROR;
    return OUTCOME_REFUSED;
}

void web_call_fails(struct web_call *c, const char *code, const char *hint, const char *detail)
{
    char target[HOST_MAX + 10];
    struct web_answer a = {0};
    if (c->is_over)
        return;
    host_port_text(c->hop.host, c->hop.port, target);
    err_set(&a.err, -EIO, code, hint, "%s: %s", target, *detail ? detail : "no answer");
    web_audit(c, outcome_of(code), code);
    web_call_over(c, &a);
}

void web_call_drop(struct web_call *c)
{
    c->done = NULL;
    if (!c->is_over)
        web_audit(c, OUTCOME_ERROR, "caller_gone");
    web_call_over(c, &(struct web_answer){0});
}

static void clock_passed(struct deadline *d)
{
    struct web_call *c = container_of(d, struct web_call, clock);
    web_call_fails(c, "fetch_timeout", NULL, "it took too long");
}

/* ---- Verdicts ------------------------------------------------------------------------------- */

/* As session_blocked, but of no command: who asked is known. */
void web_blocked(struct web_call *c, const char *reason, const char *rule)
{
    struct session *s = c->s;
    char target[HOST_MAX + 10];
    struct blocked_row row = {
        .session_id = s->id, .host = c->hop.host, .reason = reason, .port = c->hop.port};
    int64_t count = 0;
    s->n_blocked++;
    (void)blocked_count(s->ss->deps.db, &row, &count);
    (void)traffic_count(s->ss->deps.db, c->hop.host, c->hop.port, TRAFFIC_BLOCKED);
    host_port_text(c->hop.host, c->hop.port, target);
    events_emit(s->ss->deps.db,
                &(struct event){EVENT_BLOCKED, count > 1 ? EVENT_UPDATED : EVENT_CREATED, target,
                                s->id, count, NULL, NULL});
    session_refusal(s, target,
                    json_pack("{s:s, s:s, s:s}", "reason", reason, "rule", rule, "by",
                              c->provider ? "web_search" : "web_fetch"));
    session_touched(s);
}

static const char *code_of(const char *reason)
{
    static const struct {
        const char *reason, *code;
    } CODES[] = {{"network_none", "network_none"},
                 {"denied", "ask_denied"},
                 {"address_class", "private_address"},
                 {"own_port", "private_address"}};
    for (size_t i = 0; i < ARRAY_LEN(CODES); i++)
        if (strcmp(CODES[i].reason, reason) == 0)
            return CODES[i].code;
    return "site_not_listed";
}

/* A sandbox without a wall lets its commands reach anything: the list still holds here. */
static void judge_without_wall(struct session *s, const struct web_hop *hop,
                               struct verdict_out *ret, const struct host_entry **why)
{
    if (s->network == NET_ALLOWLIST &&
        session_hosts_match(s, s->tier, hop->host, hop->port, why) == VERDICT_ALLOW) {
        ret->rule = (*why)->text;
        ret->flags = (*why)->rule.allow_private ? EG_ALLOW_PRIVATE : 0;
        return;
    }
    *ret = (struct verdict_out){.verdict = EG_DENY,
                                .reason = s->network == NET_NONE ? "network_none" : "not_listed",
                                .rule = "no site of this machine or session covers it"};
}

static void hop_judge(struct web_call *c, struct verdict_out *ret)
{
    const struct host_entry *why = NULL;
    struct web_hop *hop = &c->hop;
    egress_judge(session_generation(c->s), hop->host, hop->port, ret, &why);
    if (ret->verdict == EG_ALLOW && c->s->network != NET_OPEN)
        judge_without_wall(c->s, hop, ret, &why);
    hop->flags = ret->flags;
    (void)snprintf(hop->rule, sizeof hop->rule, "%s", ret->rule);
    if (why && why->rule.id)
        (void)snprintf(hop->site_id, sizeof hop->site_id, "%s", why->rule.id);
}

void web_hop_check(struct web_call *c)
{
    struct verdict_out v;
    hop_judge(c, &v);
    if (v.verdict == EG_ALLOW) {
        web_link_verdict(c);
        return;
    }
    web_blocked(c, v.reason, v.rule);
    web_call_fails(c, code_of(v.reason), v.hint, v.rule);
}

void web_calls_recheck(struct session *s)
{
    struct verdict_out v;
    for (struct web_call *c = s->web_calls; c; c = c->next) {
        if (c->is_over)
            continue;
        hop_judge(c, &v);
        if (v.verdict != EG_ALLOW)
            web_call_fails(c, code_of(v.reason), v.hint, "the site was taken back");
    }
}

unsigned web_calls_over(struct session *s)
{
    for (struct web_call *c = s->web_calls; c; c = c->next)
        web_call_fails(c, "session_ended", NULL, "the session ended");
    return s->n_web_calls;
}

/* ---- Making one ----------------------------------------------------------------------------- */

static int check_session(const struct session *s, struct err *err)
{
    if (s->state < SESSION_READY || s->state == SESSION_REFUSED || !session_generation(s))
        return err_set(err, -EAGAIN, "session_not_ready", "wait until it is ready",
                       "the session is %s", SESSION_STATE_NAMES[s->state]);
    if (s->state != SESSION_READY && s->state != SESSION_RESTARTING)
        return err_set(err, -ESTALE, "session_ended", NULL, "the session is %s",
                       SESSION_STATE_NAMES[s->state]);
    if (s->n_web_calls >= WEB_CALLS_MAX)
        return err_set(err, -E2BIG, "too_many", "wait for one to end",
                       "%d web calls are under way in the session", WEB_CALLS_MAX);
    if (db_is_full(s->ss->deps.db))
        return err_set(err, -ENOSPC, "disk_full", "free some space for the state folder",
                       "nothing can be recorded, so nothing is done");
    return 0;
}

static int fetch_take(struct web_call *c, const struct web_request *rq, struct err *err)
{
    CLEANUP(str_done) struct str text = {0};
    struct url url = {0};
    const char *why = "";
    int r = url_parse(rq->url, strlen(rq->url), &url, &why);
    if (r == -EINVAL)
        return err_member(err, r, "body_invalid", "/url", "%s", why);
    if (r == 0)
        r = url_text(&url, &text);
    if (r == 0 && (!(c->url = strdup(str_c(&text))) || !(c->order.url = strdup(str_c(&text)))))
        r = -ENOMEM;
    memcpy(c->hop.host, url.host, sizeof c->hop.host);
    c->hop.port = url.port;
    url_done(&url);
    c->order.form = (uint8_t)rq->form;
    c->order.n_results = 1;
    return r;
}

static int search_take(struct web_call *c, const struct web_request *rq, struct err *err)
{
    struct sessions_deps *deps = &c->s->ss->deps;
    const char *id =
        rq->provider ? rq->provider : settings_text(deps->settings, "web.search_provider");
    char *key = NULL;
    c->provider = id ? search_provider_find(id) : NULL;
    if (!c->provider)
        return err_set(err, -ENOENT, "search_not_configured",
                       "set web.search_provider, or name a provider",
                       "no search provider is chosen");
    int r = web_key_get(deps->db, c->provider->id, &key);
    if (r == 0 && c->provider->needs_key)
        return err_set(err, -ENOENT, "search_not_configured",
                       "store its key with PUT /v1/web/providers", "%s is asked with a key",
                       c->provider->id);
    if (r >= 0)
        r = search_order(c->provider, key, rq->query, rq->count, &c->order);
    web_key_wipe(key);
    if (r >= 0 &&
        (!(c->query = strdup(rq->query)) || !(c->order.body || (c->order.body = strdup("")))))
        r = -ENOMEM;
    (void)snprintf(c->hop.host, sizeof c->hop.host, "%s", c->provider->host);
    c->hop.port = 443;
    return r;
}

static int call_take(struct web_call *c, const struct web_request *rq, struct err *err)
{
    int r = rq->url ? fetch_take(c, rq, err) : search_take(c, rq, err);
    c->form = (enum fetch_form)c->order.form;
    c->max_bytes = rq->url ? rq->max_bytes : FETCH_BODY_MAX;
    c->order.max_bytes = c->max_bytes;
    c->body.max = FETCH_BODY_MAX;
    if (r >= 0 &&
        (!(c->results = json_array()) || (!c->order.body && !(c->order.body = strdup("")))))
        r = -ENOMEM;
    return r >= 0 || err_is_set(err) ? r : err_set(err, r, "internal", NULL, "out of memory");
}

static struct web_call *call_new(struct session *s, const struct actor *actor)
{
    struct web_call *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    session_ref(s);
    c->s = s;
    c->actor = *actor;
    c->next = s->web_calls;
    s->web_calls = c;
    s->n_web_calls++;
    closing_init(&c->closing, call_free);
    channel_init(&c->ch);
    child_init(&c->child);
    logpipe_init(&c->said);
    deadline_init(s->ss->deps.loop, &c->clock, &c->closing, clock_passed);
    return c;
}

/* The first hop is judged before there is a process. */
static int first_check(struct web_call *c, struct err *err)
{
    char target[HOST_MAX + 10];
    struct verdict_out v;
    hop_judge(c, &v);
    if (v.verdict == EG_ALLOW)
        return web_link_start(c, err);
    host_port_text(c->hop.host, c->hop.port, target);
    web_blocked(c, v.reason, v.rule);
    web_audit(c, OUTCOME_REFUSED, code_of(v.reason));
    return err_set(err, -EPERM, code_of(v.reason), v.hint, "%s: %s", target, v.rule);
}

int session_web_call(struct session *s, const struct web_request *rq, const struct actor *actor,
                     web_done_fn *done, void *arg, struct web_call **ret, struct err *err)
{
    int r = check_session(s, err);
    struct web_call *c = r < 0 ? NULL : call_new(s, actor);
    if (!c)
        return r < 0 ? r : err_set(err, -ENOMEM, "internal", NULL, "out of memory");
    r = call_take(c, rq, err);
    if (r >= 0)
        r = first_check(c, err);
    if (r < 0) {
        c->is_over = true;
        web_link_close(c);
        return r;
    }
    c->done = done;
    c->arg = arg;
    *ret = c;
    return 0;
}
