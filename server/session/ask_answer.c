/* Runs in: daemon. Reads: trusted (who answers; checked for shape by the api), hostile (what the
 * agent asks for, checked here). May block: no.
 *
 * The agent asks, a person answers, and what was answered is used. */
#include "session/ask_parts.h"
#include "session/asks.h"
#include "wire/msg.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- What is kept of an answer ----------------------------------------------------------------
 */

/* The oldest goes where there are MAX. No memory: nothing is kept, and that is asked again. */
static void give(struct ask_given **list, unsigned *n, unsigned max, const struct ask *a)
{
    struct ask_given *g = calloc(1, sizeof *g), **at = list;
    if (!g)
        return;
    g->port = a->port;
    memcpy(g->ask_id, a->id, sizeof g->ask_id);
    memcpy(g->host, a->host, sizeof g->host);
    g->next = *list;
    *list = g;
    if (++*n <= max)
        return;
    while ((*at)->next)
        at = &(*at)->next;
    free(*at);
    *at = NULL;
    (*n)--;
}

/* A `once` given to a caller that comes back with the ask's id. */
static bool once_take(struct session *s, const char *ask_id, const char *host, uint16_t port)
{
    for (struct ask_given **at = &s->asks.once; *at; at = &(*at)->next) {
        struct ask_given *g = *at;
        if (strcmp(g->ask_id, ask_id) != 0 || !ask_host_is_same(g, host, port))
            continue;
        *at = g->next;
        s->asks.n_once--;
        free(g);
        return true;
    }
    return false;
}

void verdict_once(struct verdict_out *v)
{
    *v = (struct verdict_out){.verdict = EG_ALLOW, .reason = "once", .rule = "allowed once"};
}

void verdict_denied(struct verdict_out *v)
{
    *v = (struct verdict_out){
        .verdict = EG_DENY, .reason = "denied", .rule = "a person denied it for this session"};
    (void)snprintf(v->hint, sizeof v->hint,
                   "give it up: asking again will not change that in this session");
}

/* ---- The answers ------------------------------------------------------------------------------
 */

struct answering {
    struct ask *a;
    const struct ask_decision *d;
    const struct actor *actor;
    bool is_wider; /* d->host is "*.host" */
};

static int check_offer(struct answering *an, struct err *err)
{
    const struct ask *a = an->a;
    json_t *hosts = ask_hosts(a, an->d->answer), *host;
    bool is_offered = json_array_size(hosts) > 0, is_among = !an->d->host;
    size_t i;
    json_array_foreach(hosts, i, host) if (an->d->host && strcmp(json_string_value(host),
                                                                 an->d->host) == 0) is_among = true;
    json_decref(hosts);
    an->is_wider = an->d->host && strcmp(an->d->host, a->host) != 0;
    if (!is_offered)
        return err_set(err, -EINVAL, "answer_not_offered", "one of the ask's answers",
                       "nothing waits for it: %s is not on offer", ANSWER_NAMES[an->d->answer]);
    if (!is_among)
        return err_member(err, -EINVAL, "body_invalid", "/host",
                          "%s: not one of the hosts of that answer", an->d->host);
    return 0;
}

static int decide_once(struct answering *an, struct verdict_out *v, struct err *err)
{
    struct ask *a = an->a, *rest = NULL;
    struct session *s = a->s;
    verdict_once(v);
    if (a->n_waits == 0)
        give(&s->asks.once, &s->asks.n_once, ASKS_HELD_MAX, a);
    if (a->n_waits <= 1)
        return 0;
    s->asks.n_open--; /* A is as good as closed: the new one takes its place */
    int r = ask_raise(s, a->waits->next->by, a->host, a->port, a->reason, NULL, &rest, err);
    s->asks.n_open++;
    if (r < 0)
        return r;
    rest->evidence = a->evidence;
    ask_move_waits(a, rest);
    return 0;
}

static int decide_session(struct answering *an, struct err *err)
{
    struct ask *a = an->a;
    struct site row, wider = {0};
    char host[HOST_MAX + 2];
    int r = 0;
    (void)snprintf(host, sizeof host, "*.%s", a->host);
    if (an->is_wider)
        r = session_site_add_by(a->s, host, a->port, SITE_ASK, an->actor, &wider, err);
    if (r < 0)
        return r;
    r = session_site_add_by(a->s, a->host, a->port, SITE_ASK, an->actor, &row, err);
    if (r < 0 && an->is_wider)
        (void)session_site_remove(a->s, wider.id, an->actor, NULL);
    if (r == 0)
        memcpy(a->site_id, row.id, sizeof a->site_id);
    return r;
}

static int decide_always(struct answering *an, struct err *err)
{
    struct ask *a = an->a;
    struct site row;
    char host[HOST_MAX + 2];
    bool guarded = a->s->tier == TIER_GUARDED;
    enum site_list list = guarded ? SITES_GUARDED : SITES_MACHINE;
    int port = guarded && (a->port == 443 || a->port == 80) ? 0 : a->port; /* T13 */
    int r = 0;
    (void)snprintf(host, sizeof host, "*.%s", a->host);
    if (an->is_wider)
        r = sessions_site_open(a->s, list, host, port, an->actor, &row, err);
    if (r == 0)
        r = sessions_site_open(a->s, list, a->host, port, an->actor, &row, err);
    if (r == 0)
        memcpy(a->site_id, row.id, sizeof a->site_id);
    return r;
}

static int decide_it(struct answering *an, struct verdict_out *v, struct err *err)
{
    struct session *s = an->a->s;
    *v = (struct verdict_out){
        .verdict = EG_ALLOW, .reason = "listed", .rule = "a person allowed it"};
    switch (an->d->answer) {
    case ANSWER_ONCE:
        return decide_once(an, v, err);
    case ANSWER_SESSION:
        return decide_session(an, err);
    case ANSWER_ALWAYS:
        return decide_always(an, err);
    case ANSWER_DENY:
        give(&s->asks.denied, &s->asks.n_denied, ASKS_DENIED_MAX, an->a);
        verdict_denied(v);
        return 0;
    }
    return -EINVAL;
}

static void audit_decided(const struct answering *an)
{
    const struct ask *a = an->a;
    char target[HOST_MAX + 10];
    host_port_text(a->host, a->port, target);
    json_t *after = json_pack("{s:s, s:s}", "ask_id", a->id, "answer", ANSWER_NAMES[a->answer]);
    if (an->is_wider)
        (void)json_object_set_new(after, "host", json_string(an->d->host));
    if (a->note)
        (void)json_object_set_new(after, "note", json_string(a->note));
    if (a->site_id[0])
        (void)json_object_set_new(after, "site_id", json_string(a->site_id));
    session_audit(a->s, an->actor, "ask.decided", target, after, OUTCOME_OK);
}

/* Closed, or unknown. */
static int not_open(struct sessions *ss, const char *id, json_t **ret_decided, struct err *err)
{
    json_t *doc = NULL;
    if (record_get(ss->deps.db, RECORD_ASK, id, &doc) < 0)
        return err_set(err, -ENOENT, "not_found", NULL, "no such ask");
    int r = err_set(err, -ESTALE, "ask_closed", NULL, "the ask is %s",
                    json_string_value(json_object_get(doc, "state")));
    *ret_decided = json_incref(json_object_get(doc, "decided"));
    json_decref(doc);
    return r;
}

int ask_decide(struct sessions *ss, const char *id, const struct ask_decision *d,
               const struct actor *actor, json_t **ret, json_t **ret_decided, struct err *err)
{
    struct answering an = {.a = ask_live(ss, id), .d = d, .actor = actor};
    struct verdict_out v;
    *ret_decided = NULL;
    if (!an.a)
        return not_open(ss, id, ret_decided, err);
    int r = check_offer(&an, err);
    if (r == 0 && d->note && !(an.a->note = strdup(d->note)))
        r = err_set(err, -ENOMEM, "internal", NULL, "out of memory");
    if (r < 0)
        return r;
    an.a->is_being_answered = true;
    r = decide_it(&an, &v, err);
    an.a->is_being_answered = false;
    if (r < 0) {
        free(TAKE(an.a->note));
        return r;
    }
    an.a->answer = d->answer;
    an.a->decider = *actor;
    an.a->decided_at = clock_wall_ms();
    audit_decided(&an);
    ask_close(an.a, ASK_DECIDED, &v); /* and A is gone */
    return record_get(ss->deps.db, RECORD_ASK, id, ret) < 0
               ? err_set(err, -EIO, "internal", NULL, "the ask cannot be read")
               : 0;
}

int ask_extend(struct sessions *ss, const char *id, const struct actor *actor, json_t **ret,
               json_t **ret_decided, struct err *err)
{
    struct ask *a = ask_live(ss, id);
    (void)actor;
    *ret_decided = NULL;
    if (!a)
        return not_open(ss, id, ret_decided, err);
    int64_t more = settings_int(ss->deps.settings, "asks.expiry_ms");
    int64_t room = ASK_LIFE_MAX_MS - (a->expires_at - a->created_at);
    more = more < room ? more : room > 0 ? room : 0;
    a->expires_at += more;
    a->expires_ms += (uint64_t)more;
    ask_clock_set(a->s);
    ask_changed(a);
    *ret = ask_to_json(a);
    return *ret ? 0 : err_set(err, -ENOMEM, "internal", NULL, "out of memory");
}

/* ---- The agent asks ---------------------------------------------------------------------------
 */

static int check_host(const char *typed, char ret[static HOST_MAX], struct err *err)
{
    char room[HOST_MAX], suggestion[HOST_RULE_TEXT_MAX] = "";
    struct host_rule rule = {0};
    bool wide = false;
    int r = host_rule_parse(typed, COVERS_HOST, room, &rule, &wide, suggestion, err);
    if (r == 0 && (rule.covers != COVERS_HOST || rule.port != 0))
        r = err_set(err, -EINVAL, "site_invalid", NULL, "%s: one host, the port beside it", typed);
    if (r == 0)
        (void)snprintf(ret, HOST_MAX, "%s", rule.host);
    else if (err)
        (void)snprintf(err->pointer, sizeof err->pointer, "/subject/host");
    return r;
}

static int refused(const struct session *s, const struct verdict_out *v, const char *host,
                   struct err *err)
{
    if (strcmp(v->reason, "network_none") == 0)
        return err_set(err, -EPERM, "network_none", NULL, "this session has no network");
    if (strcmp(v->reason, "denied") == 0)
        return err_set(err, -EPERM, "ask_denied", v->hint, "%s: %s", host, v->rule);
    if (strcmp(v->reason, "not_listed") == 0 && session_asks_are_off(s))
        return err_set(err, -EPERM, "asks_off", "a person adds sites in the settings",
                       "nobody is asked in this session");
    return err_set(err, -EPERM, "private_address", NULL, "%s is never offered: %s", host, v->rule);
}

int session_ask(struct session *s, const char *typed, int port, const char *reason,
                const struct actor *actor, json_t **ret, bool *ret_joined, struct err *err)
{
    const struct host_entry *why;
    char host[HOST_MAX];
    struct verdict_out v;
    if (s->state >= SESSION_STOPPING)
        return err_set(err, -ESTALE, "session_ended", NULL, "the session is %s",
                       SESSION_STATE_NAMES[s->state]);
    int r = check_host(typed, host, err);
    if (r < 0)
        return r;
    struct ask *a = ask_find(s, host, (uint16_t)port);
    *ret_joined = a != NULL;
    if (!a) {
        site_judge(s, s->tier, s->network, ASKER_AGENT, host, (uint16_t)port, &v, &why);
        if (v.verdict == EG_ALLOW)
            return err_set(err, -EEXIST, "already_allowed", NULL, "%s:%d may be reached", host,
                           port);
        if (v.verdict != EG_HOLD)
            return refused(s, &v, host, err);
        r = ask_raise(s, ASKER_AGENT, host, (uint16_t)port, reason, actor, &a, err);
    }
    if (r < 0)
        return r;
    *ret = ask_to_json(a);
    return *ret ? 0 : err_set(err, -ENOMEM, "internal", NULL, "out of memory");
}

/* ---- What is there ----------------------------------------------------------------------------
 */

int ask_show(struct sessions *ss, const char *id, json_t **ret, bool *ret_open)
{
    const struct ask *a = ask_live(ss, id);
    *ret_open = a != NULL;
    if (!a)
        return record_get(ss->deps.db, RECORD_ASK, id, ret) < 0 ? -ENOENT : 0;
    *ret = ask_to_json(a);
    return *ret ? 0 : -ENOMEM;
}

static bool is_for(const json_t *doc, const struct session *s, const char *host, uint16_t port)
{
    const json_t *subject = json_object_get(doc, "subject");
    const char *of = json_string_value(json_object_get(doc, "session_id"));
    const char *asked = json_string_value(json_object_get(subject, "host"));
    return of && asked && strcmp(of, s->id) == 0 && strcmp(asked, host) == 0 &&
           json_integer_value(json_object_get(subject, "port")) == port;
}

int ask_use(struct session *s, const char *ask_id, const char *host, uint16_t port,
            struct verdict_out *v)
{
    const struct host_entry *why;
    json_t *doc = NULL;
    bool is_open;
    int r = ask_show(s->ss, ask_id, &doc, &is_open);
    const char *state = json_string_value(json_object_get(doc, "state"));
    bool is_expired = state && strcmp(state, "expired") == 0;
    if (r == 0 && !is_for(doc, s, host, port))
        r = -ENOENT;
    json_decref(doc);
    if (r < 0)
        return r;
    if (once_take(s, ask_id, host, port)) {
        verdict_once(v);
        return 0;
    }
    site_judge(s, s->tier, s->network, ASKER_WEB_FETCH, host, port, v, &why);
    if (v->verdict == EG_HOLD && is_expired)
        verdict_unanswered(v);
    return 0;
}
