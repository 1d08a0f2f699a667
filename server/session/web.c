/* Runs in: daemon. Reads: hostile (hosts that servers redirect to, canonical by now). May block:
 * no. */
#include "session/web.h"
#include "base/log.h"
#include "base/mem.h"
#include "session/web_parts.h"
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
    if (c->is_held)
        ask_leave(&c->wait, false);
    c->is_held = false;
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

unsigned web_calls_over(struct session *s)
{
    web_kept_free(s);
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

int session_web_call(struct session *s, const struct web_request *rq, const struct actor *actor,
                     web_done_fn *done, void *arg, struct web_call **ret, struct err *err)
{
    int r = check_session(s, err);
    struct web_call *c = r < 0 ? NULL : call_new(s, actor);
    if (!c)
        return r < 0 ? r : err_set(err, -ENOMEM, "internal", NULL, "out of memory");
    r = call_take(c, rq, err);
    if (r >= 0 && rq->ask_id) {
        (void)snprintf(c->ask_id, sizeof c->ask_id, "%s", rq->ask_id);
        web_once_take(c, rq->ask_id);
    }
    if (r >= 0) /* the first hop is judged before there is a process */
        r = web_first_check(c, err);
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
