/* Runs in: daemon. Reads: hostile (hosts that servers redirect to, canonical by now). May block:
 * no.
 *
 * May this web call go on to its next hop? By the session's lists, as a connection from inside is
 * judged, also where no wall stands; a person may be asked, and the call waits meanwhile. */
#include "base/mem.h"
#include "session/web_parts.h"
#include "store/blocked.h"
#include "store/events.h"
#include "store/traffic.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

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
    session_asks_blocked(s, c->hop.host, c->hop.port);
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

/* ---- What a person allowed once ------------------------------------------------------------- */

static bool once_has(const struct web_once *o, const char *host, uint16_t port)
{
    for (unsigned i = 0; i < o->n; i++)
        if (o->hosts[i].port == port && strcmp(o->hosts[i].host, host) == 0)
            return true;
    return false;
}

/* For this call alone, which may come back to that host. */
static void once_add(struct web_call *c)
{
    struct web_once *o = &c->once;
    if (o->n == ARRAY_LEN(o->hosts) || once_has(o, c->hop.host, c->hop.port))
        return;
    o->hosts[o->n].port = c->hop.port;
    memcpy(o->hosts[o->n].host, c->hop.host, sizeof c->hop.host);
    o->n++;
}

static const char *what_of(const struct web_call *c)
{
    return c->url ? c->url : c->query;
}

static void kept_free(struct web_kept *k)
{
    free(k->what);
    free(k);
}

/* A call that was answered with 202 begins anew when its client asks again: what it was allowed
 * once until then waits for it under the id of the ask. */
static void once_keep(struct web_call *c)
{
    struct session *s = c->s;
    if (c->once.n == 0)
        return;
    struct web_kept *k = calloc(1, sizeof *k);
    if (!k)
        return;
    k->what = strdup(what_of(c));
    if (!k->what) {
        kept_free(k);
        return;
    }
    k->once = c->once;
    k->port = c->hop.port;
    memcpy(k->host, c->hop.host, sizeof k->host);
    memcpy(k->ask_id, c->wait.ask_id, sizeof k->ask_id);
    k->next = s->web_kept;
    s->web_kept = k;
    unsigned n = 1;
    for (; k->next; k = k->next)
        if (++n > WEB_CALLS_MAX) {
            kept_free(TAKE(k->next)); /* the oldest: it is the last, as one comes at a time */
            break;
        }
}

/* The hop that waited is judged first: until it is answered, nothing is asked of the hosts before
 * it again, or one `once` would be good for any number of requests. */
void web_once_take(struct web_call *c, const char *ask_id)
{
    for (struct web_kept **at = &c->s->web_kept; *at; at = &(*at)->next) {
        struct web_kept *k = *at;
        if (strcmp(k->ask_id, ask_id) != 0 || strcmp(k->what, what_of(c)) != 0)
            continue;
        c->once = k->once;
        c->hop.port = k->port;
        memcpy(c->hop.host, k->host, sizeof c->hop.host);
        *at = k->next;
        kept_free(k);
        return;
    }
}

void web_kept_free(struct session *s)
{
    while (s->web_kept) {
        struct web_kept *k = s->web_kept;
        s->web_kept = k->next;
        kept_free(k);
    }
}

/* ---- The verdict ---------------------------------------------------------------------------- */

static enum asker asker_of(const struct web_call *c)
{
    return c->provider ? ASKER_WEB_SEARCH : ASKER_WEB_FETCH;
}

static void hop_judge(struct web_call *c, struct verdict_out *ret)
{
    const struct host_entry *why = NULL;
    struct verdict_out used;
    struct web_hop *hop = &c->hop;
    site_judge(c->s, c->s->tier, c->s->network, asker_of(c), hop->host, hop->port, ret, &why);
    if (ret->verdict == EG_HOLD && once_has(&c->once, hop->host, hop->port)) {
        *ret = (struct verdict_out){.verdict = EG_ALLOW, .reason = "once", .rule = "allowed once"};
    } else if (ret->verdict == EG_HOLD && c->ask_id[0] &&
               ask_use(c->s, c->ask_id, hop->host, hop->port, &used) == 0) {
        *ret = used;
        if (used.verdict == EG_ALLOW && strcmp(used.reason, "once") == 0)
            once_add(c);
    }
    hop->flags = ret->flags;
    (void)snprintf(hop->rule, sizeof hop->rule, "%s", ret->rule ? ret->rule : "");
    hop->site_id[0] = '\0';
    if (why && why->rule.id)
        (void)snprintf(hop->site_id, sizeof hop->site_id, "%s", why->rule.id);
}

/* It goes on where it stands: its process is started, or told. */
static int hop_go(struct web_call *c, struct err *err)
{
    if (c->is_started) {
        web_link_verdict(c);
        return 0;
    }
    c->is_started = true;
    return web_link_start(c, err);
}

static void hop_refuse(struct web_call *c, const struct verdict_out *v)
{
    web_blocked(c, v->reason, v->rule);
    web_call_fails(c, code_of(v->reason), v->hint, v->rule);
}

static void wait_over(struct ask_wait *w, const struct verdict_out *v)
{
    struct web_call *c = container_of(w, struct web_call, wait);
    struct verdict_out now;
    struct err err = {0};
    c->is_held = false;
    if (c->s->state >= SESSION_STOPPING) {
        web_call_fails(c, "session_ended", NULL, "the session ended");
        return;
    }
    if (v->verdict != EG_ALLOW) {
        hop_refuse(c, v);
        return;
    }
    if (strcmp(v->reason, "once") == 0)
        once_add(c);
    hop_judge(c, &now); /* by the site that the answer made */
    if (now.verdict != EG_ALLOW)
        hop_refuse(c, &now);
    else if (hop_go(c, &err) < 0)
        web_call_fails(c, err.code, err.hint, err.detail);
}

/* 1: it waits; else *V is the refusal. */
static int hop_hold(struct web_call *c, struct verdict_out *v)
{
    c->wait.over = wait_over;
    ask_hold(c->s, asker_of(c), c->hop.host, c->hop.port, &c->wait, v);
    if (v->verdict != EG_HOLD)
        return 0;
    c->is_held = true;
    deadline_clear(&c->clock); /* what a person takes is not its time */
    return 1;
}

void web_hop_check(struct web_call *c)
{
    struct verdict_out v;
    struct err err = {0};
    hop_judge(c, &v);
    if (v.verdict == EG_HOLD && hop_hold(c, &v)) {
        if (c->is_late)
            web_call_waited(c);
        return;
    }
    if (v.verdict != EG_ALLOW)
        hop_refuse(c, &v);
    else if (hop_go(c, &err) < 0)
        web_call_fails(c, err.code, err.hint, err.detail);
}

int web_first_check(struct web_call *c, struct err *err)
{
    char target[HOST_MAX + 10];
    struct verdict_out v;
    hop_judge(c, &v);
    if (v.verdict == EG_ALLOW) {
        int r = hop_go(c, err);
        if (r < 0)
            web_audit(c, OUTCOME_ERROR, err->code);
        return r;
    }
    if (v.verdict == EG_HOLD && hop_hold(c, &v))
        return 0;
    host_port_text(c->hop.host, c->hop.port, target);
    web_blocked(c, v.reason, v.rule);
    web_audit(c, OUTCOME_REFUSED, code_of(v.reason));
    return err_set(err, -EPERM, code_of(v.reason), v.hint, "%s: %s", target, v.rule);
}

void web_call_waited(struct web_call *c)
{
    c->is_late = true;
    if (!c->is_held || c->is_over)
        return;
    json_t *json = json_pack("{s:s, s:s}", "state", "waiting", "ask_id", c->wait.ask_id);
    struct web_answer a = {.status = 202, .json = json};
    if (c->is_started) /* what went out before this hop */
        web_audit(c, OUTCOME_REFUSED, "waiting");
    once_keep(c);
    c->is_held = false;
    ask_leave(&c->wait, true);
    web_call_over(c, &a);
    json_decref(json);
}

void web_calls_recheck(struct session *s)
{
    struct verdict_out v;
    for (struct web_call *c = s->web_calls; c; c = c->next) {
        if (c->is_over || c->is_held)
            continue;
        hop_judge(c, &v);
        if (v.verdict != EG_ALLOW)
            web_call_fails(c, v.verdict == EG_HOLD ? "site_not_listed" : code_of(v.reason), v.hint,
                           "the site was taken back");
    }
}
