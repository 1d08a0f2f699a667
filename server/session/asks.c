/* Runs in: daemon. Reads: hostile (hosts, canonical; the agent's reason, as text). May block: no.
 *
 * The open asks of a session, and who waits for them. */
#include "session/asks.h"
#include "session/ask_parts.h"
#include "store/events.h"
#include "store/owed.h"
#include "wire/msg.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

struct watched *asks_watched(struct sessions *ss)
{
    return &ss->asks_watched;
}

struct ask *ask_find(const struct session *s, const char *host, uint16_t port)
{
    struct ask *a = s->asks.first;
    while (a && (a->port != port || strcmp(a->host, host) != 0))
        a = a->next;
    return a;
}

struct ask *ask_live(struct sessions *ss, const char *id)
{
    for (size_t i = 0; i < ss->n; i++)
        for (struct ask *a = ss->items[i]->asks.first; a; a = a->next)
            if (strcmp(a->id, id) == 0)
                return a;
    return NULL;
}

/* ---- What was given before --------------------------------------------------------------------
 */

bool ask_host_is_same(const struct ask_given *g, const char *host, uint16_t port)
{
    return g->port == port && strcmp(g->host, host) == 0;
}

bool session_asks_denied(const struct session *s, const char *host, uint16_t port)
{
    for (const struct ask_given *g = s->asks.denied; g; g = g->next)
        if (ask_host_is_same(g, host, port))
            return true;
    return false;
}

bool session_asks_are_off(const struct session *s)
{
    return s->approvals == APPROVALS_FULL ||
           json_is_true(settings_get(s->ss->deps.settings, "asks.learn"));
}

static void given_free(struct ask_given **list)
{
    while (*list) {
        struct ask_given *g = *list;
        *list = g->next;
        free(g);
    }
}

/* ---- Records ----------------------------------------------------------------------------------
 */

static void ask_record(struct ask *a, json_t *doc)
{
    char target[HOST_MAX + 10];
    host_port_text(a->host, a->port, target);
    if (doc)
        owed_record(a->s->ss->deps.db, &(struct record){.kind = RECORD_ASK,
                                                        .id = a->id,
                                                        .session_id = a->s->id,
                                                        .state = ask_state_name(a->state),
                                                        .text = target,
                                                        .doc = doc});
}

static void ask_put(struct ask *a)
{
    json_t *doc = ask_to_json(a);
    ask_record(a, doc);
    json_decref(doc);
}

/* Whoever is told may do anything but close A. */
static void ask_tell(const struct ask *a, enum event_change change)
{
    struct session *s = a->s;
    events_emit(s->ss->deps.db,
                &(struct event){EVENT_ASK, change, a->id, s->id, a->rev, NULL, NULL});
    session_touched(s);
    watched_notify(&s->ss->asks_watched);
}

void ask_changed(struct ask *a)
{
    a->rev++;
    ask_tell(a, EVENT_UPDATED);
}

static void audit_raised(struct ask *a, const struct actor *actor)
{
    char target[HOST_MAX + 10];
    host_port_text(a->host, a->port, target);
    json_t *after = json_pack("{s:s, s:s}", "ask_id", a->id, "requested_by", ASKER_NAMES[a->by]);
    if (a->reason)
        (void)json_object_set_new(after, "reason", json_string(a->reason));
    session_audit(a->s, actor, "ask.raised", target, after, OUTCOME_OK);
}

static void audit_unanswered(struct ask *a)
{
    char target[HOST_MAX + 10];
    host_port_text(a->host, a->port, target);
    session_audit(a->s, NULL, "ask.expired", target,
                  json_pack("{s:s, s:s}", "ask_id", a->id, "state", ask_state_name(a->state)),
                  a->state == ASK_SUPERSEDED ? OUTCOME_OK : OUTCOME_REFUSED);
}

/* ---- Its life ---------------------------------------------------------------------------------
 */

static void ask_free(struct ask *a)
{
    free(a->reason);
    free(a->note);
    free(a);
}

static struct ask *ask_new(struct session *s, enum asker by, const char *host, uint16_t port,
                           const char *reason)
{
    struct ask *a = calloc(1, sizeof *a);
    int64_t life = settings_int(s->ss->deps.settings, "asks.expiry_ms");
    if (!a || (reason && !(a->reason = strdup(reason)))) {
        free(a);
        return NULL;
    }
    a->s = s;
    a->by = by;
    a->port = port;
    a->rev = 1;
    (void)snprintf(a->host, sizeof a->host, "%s", host);
    id_new("ask", a->id);
    a->created_at = clock_wall_ms();
    a->created_ms = clock_now_ms();
    a->expires_at = a->created_at + life;
    a->expires_ms = a->created_ms + (uint64_t)life;
    (void)blocked_evidence_get(s->ss->deps.db, s->id, host, port, &a->evidence);
    return a;
}

int ask_raise(struct session *s, enum asker by, const char *host, uint16_t port, const char *reason,
              const struct actor *actor, struct ask **ret, struct err *err)
{
    if (s->asks.n_open >= ASKS_OPEN_MAX)
        return err_set(err, -E2BIG, "too_many", "answer those that are open", "%d asks are open",
                       ASKS_OPEN_MAX);
    if (db_is_full(s->ss->deps.db))
        return err_set(err, -ENOSPC, "disk_full", NULL, "the ask cannot be recorded");
    struct ask *a = ask_new(s, by, host, port, reason), **at = &s->asks.first;
    if (!a)
        return err_set(err, -ENOMEM, "internal", NULL, "out of memory");
    while (*at)
        at = &(*at)->next;
    *at = a;
    s->asks.n_open++;
    ask_put(a);
    audit_raised(a, actor);
    ask_clock_set(s);
    ask_tell(a, EVENT_CREATED);
    *ret = a;
    return 0;
}

static void ask_unlist(struct ask *a)
{
    struct ask **at = &a->s->asks.first;
    while (*at && *at != a)
        at = &(*at)->next;
    if (*at) {
        *at = a->next;
        a->s->asks.n_open--;
    }
    ask_clock_set(a->s);
}

/* Each may leave, or make others leave, while another is told. */
static void waits_release(struct ask *a, const struct verdict_out *v)
{
    while (a->waits) {
        struct ask_wait *w = a->waits;
        a->waits = w->next;
        a->n_waits--;
        a->s->asks.n_held--;
        w->ask = NULL;
        w->over(w, v);
    }
}

void ask_close(struct ask *a, enum ask_state state, const struct verdict_out *v)
{
    struct session *s = a->s;
    session_ref(s);
    ask_unlist(a);
    a->state = state;
    a->rev++;
    json_t *doc = ask_to_json(a);
    (void)json_object_set_new(doc, "waiting", json_integer(0));
    ask_record(a, doc);
    json_decref(doc);
    (void)asks_cut(s->ss->deps.db, s->id);
    if (state != ASK_DECIDED)
        audit_unanswered(a);
    waits_release(a, v);
    ask_tell(a, EVENT_UPDATED);
    ask_free(a);
    session_unref(s);
}

/* ---- Its clock --------------------------------------------------------------------------------
 */

void ask_clock_set(struct session *s)
{
    uint64_t first = UINT64_MAX, now = clock_now_ms();
    for (const struct ask *a = s->asks.first; a; a = a->next)
        first = a->expires_ms < first ? a->expires_ms : first;
    if (first == UINT64_MAX)
        deadline_clear(&s->asks.clock);
    else
        deadline_set(&s->asks.clock, first > now ? first - now : 0);
}

void verdict_unanswered(struct verdict_out *v)
{
    *v = (struct verdict_out){
        .verdict = EG_DENY, .reason = "denied", .rule = "asked, and nobody answered in time"};
    (void)snprintf(v->hint, sizeof v->hint, "the next try asks again");
}

static void clock_passed(struct deadline *d)
{
    struct session *s = container_of(d, struct session, asks.clock);
    struct verdict_out v;
    verdict_unanswered(&v);
    session_ref(s);
    for (struct ask *a = s->asks.first; a;) {
        if (a->expires_ms > clock_now_ms()) {
            a = a->next;
            continue;
        }
        ask_close(a, ASK_EXPIRED, &v);
        a = s->asks.first; /* whoever was told may have changed the list */
    }
    ask_clock_set(s);
    session_unref(s);
}

void session_asks_init(struct session *s)
{
    deadline_init(s->ss->deps.loop, &s->asks.clock, &s->closing, clock_passed);
}

void session_asks_free(struct session *s)
{
    given_free(&s->asks.denied);
    given_free(&s->asks.once);
}

void session_asks_over(struct session *s)
{
    struct verdict_out v = {
        .verdict = EG_DENY, .reason = "not_listed", .rule = "the session has ended"};
    while (s->asks.first)
        ask_close(s->asks.first, ASK_CANCELLED, &v);
}

/* What an ask is for was allowed elsewhere, or nobody is asked any more. */
static bool recheck_one(struct ask *a)
{
    const struct host_entry *why;
    struct verdict_out v;
    site_judge(a->s, a->s->tier, a->s->network, a->by, a->host, a->port, &v, &why);
    if (v.verdict == EG_HOLD || a->is_being_answered)
        return false;
    ask_close(a, v.verdict == EG_ALLOW ? ASK_SUPERSEDED : ASK_CANCELLED, &v);
    return true;
}

void session_asks_recheck(struct session *s)
{
    session_ref(s);
    for (struct ask *a = s->asks.first; a;)
        a = recheck_one(a) ? s->asks.first : a->next;
    session_unref(s);
}

void session_asks_blocked(struct session *s, const char *host, uint16_t port)
{
    struct ask *a = ask_find(s, host, port);
    if (!a)
        return;
    a->evidence.count++;
    a->evidence.last_at = clock_wall_ms();
    ask_changed(a);
}

/* ---- Who waits --------------------------------------------------------------------------------
 */

static void hold_refused(struct verdict_out *v, const char *rule)
{
    v->verdict = EG_DENY;
    v->reason = "not_listed";
    v->rule = rule;
}

/* Nothing tells which command a connection is of, when several run. */
static void evidence_add(struct ask *a, enum asker by)
{
    const struct command *only = NULL;
    unsigned n = 0;
    a->evidence.count++;
    a->evidence.last_at = clock_wall_ms();
    for (struct command *c = a->s->commands; c && by == ASKER_CONNECTION; c = command_next(c))
        if (command_is_running(c)) {
            only = c;
            n++;
        }
    if (n == 1)
        (void)snprintf(a->evidence.command_id, sizeof a->evidence.command_id, "%s",
                       command_id(only));
}

void ask_hold(struct session *s, enum asker by, const char *host, uint16_t port, struct ask_wait *w,
              struct verdict_out *v)
{
    struct err err = {0};
    struct ask *a = ask_find(s, host, port);
    w->ask = NULL;
    if (s->state >= SESSION_STOPPING) {
        hold_refused(v, "the session has ended");
        return;
    }
    if (s->asks.n_held >= ASKS_HELD_MAX) {
        hold_refused(v, "as many requests wait for an answer as may");
        return;
    }
    if (!a && ask_raise(s, by, host, port, NULL, NULL, &a, &err) < 0) {
        hold_refused(v, "as many asks are open as may, or none can be recorded");
        return;
    }
    struct ask_wait **at = &a->waits;
    while (*at)
        at = &(*at)->next;
    w->by = by;
    w->ask = a;
    w->next = NULL;
    *at = w;
    a->n_waits++;
    s->asks.n_held++;
    memcpy(w->ask_id, a->id, sizeof w->ask_id);
    evidence_add(a, by);
    ask_changed(a);
    v->verdict = EG_HOLD;
    v->reason = "ask";
}

void ask_leave(struct ask_wait *w, bool returns)
{
    struct ask *a = w->ask;
    if (!a)
        return;
    struct ask_wait **at = &a->waits;
    while (*at && *at != w)
        at = &(*at)->next;
    if (*at) {
        *at = w->next;
        a->n_waits--;
        a->s->asks.n_held--;
    }
    w->ask = NULL;
    if (returns && a->n_returning < ASKS_HELD_MAX)
        a->n_returning++;
    ask_changed(a);
}

void ask_move_waits(struct ask *from, struct ask *to)
{
    to->waits = from->waits->next;
    to->n_waits = from->n_waits - 1;
    from->waits->next = NULL;
    from->n_waits = 1;
    for (struct ask_wait *w = to->waits; w; w = w->next) {
        w->ask = to;
        memcpy(w->ask_id, to->id, sizeof w->ask_id);
    }
}
