/* Runs in: daemon. Reads: hostile (hosts come through the egress, canonical by now).
 * May block: no. */
#include "store/blocked.h"
#include "session/command_parts.h"
#include "store/events.h"
#include "store/traffic.h"
#include <stdio.h>
#include <string.h>

#define BLOCKED_UNSAID_MAX 256

void session_refusals_said(struct session *s)
{
    if (s->n_refusals_unsaid > 0)
        session_audit(s, NULL, "site.blocked", "*",
                      json_pack("{s:I, s:s}", "count", (json_int_t)s->n_refusals_unsaid, "detail",
                                "more in a minute than are written one by one"),
                      OUTCOME_REFUSED);
    s->n_refusals_unsaid = 0;
}

void session_refusal(struct session *s, const char *target, json_t *take_after)
{
    int64_t now = (int64_t)clock_now_ms();
    if (s->n_refusals == 0 || now - s->refusals_since >= 60000) {
        session_refusals_said(s);
        s->refusals_since = now;
        s->n_refusals = 0;
    }
    if (s->n_refusals < REFUSALS_A_MINUTE) {
        s->n_refusals++;
        session_audit(s, NULL, "site.blocked", target, take_after, OUTCOME_REFUSED);
    } else {
        s->n_refusals_unsaid++;
        json_decref(take_after);
    }
}

/* One refused connection: counted for the session and for each command that runs, as nothing tells
 * which of them it was. */
void session_blocked(struct session *s, const char *host, uint16_t port, const char *reason,
                     const char *rule, const char *hint)
{
    char target[HOST_MAX + 10];
    struct blocked_row row = {.session_id = s->id, .host = host, .reason = reason, .port = port};
    int64_t count = 0;
    s->n_blocked++;
    (void)blocked_count(s->ss->deps.db, &row, &count);
    (void)traffic_count(s->ss->deps.db, host, port, TRAFFIC_BLOCKED);
    for (struct command *c = s->commands; c; c = command_next(c))
        if (command_is_running(c))
            command_blocked(c, host, port, reason, rule, hint);
    host_port_text(host, port, target);
    events_emit(s->ss->deps.db,
                &(struct event){EVENT_BLOCKED, count > 1 ? EVENT_UPDATED : EVENT_CREATED, target,
                                s->id, count, NULL, NULL});
    session_refusal(s, target, json_pack("{s:s, s:s}", "reason", reason, "rule", rule));
    session_asks_blocked(s, host, port);
    session_touched(s);
}

static struct blocked_host *blocked_at(struct command *c, const char *host, uint16_t port,
                                       const char *reason)
{
    for (size_t i = 0; i < c->n_blocked; i++)
        if (c->blocked[i].port == port && strcmp(c->blocked[i].host, host) == 0 &&
            strcmp(c->blocked[i].reason, reason) == 0)
            return &c->blocked[i];
    if (c->n_blocked == COMMAND_BLOCKED_MAX)
        return NULL;
    struct blocked_host *grown = realloc(c->blocked, (c->n_blocked + 1) * sizeof *grown);
    if (!grown)
        return NULL;
    c->blocked = grown;
    struct blocked_host *b = &grown[c->n_blocked++];
    memset(b, 0, sizeof *b);
    (void)snprintf(b->host, sizeof b->host, "%s", host);
    (void)snprintf(b->reason, sizeof b->reason, "%s", reason);
    b->port = port;
    return b;
}

static void note_put(struct command *c, json_t *take_note)
{
    char *text = json_dumps(take_note, JSON_COMPACT);
    if (text && c->spool)
        (void)spool_note(c->spool, clock_now_ms() - c->started_ms, text);
    free(text);
    json_decref(take_note);
    watched_notify(&c->watched);
}

static void note_blocked(struct command *c, const char *host, uint16_t port, const char *reason)
{
    note_put(c, json_pack("{s:s, s:s, s:i, s:s}", "kind", "blocked", "host", host, "port",
                          (int)port, "reason", reason));
}

/* Once an ask: a busy retry fills no spool. */
void command_asked(struct command *c, const char *ask_id, const char *host, uint16_t port)
{
    if (strcmp(c->asked_id, ask_id) == 0)
        return;
    (void)snprintf(c->asked_id, sizeof c->asked_id, "%s", ask_id);
    note_put(c, json_pack("{s:s, s:s, s:s, s:i}", "kind", "ask", "ask_id", ask_id, "host", host,
                          "port", (int)port));
}

static void blocked_say(struct command *c, struct blocked_host *b)
{
    struct blocked_row row = {.session_id = c->session->id,
                              .command_id = c->id,
                              .host = b->host,
                              .reason = b->reason,
                              .port = b->port,
                              .times = b->unsaid};
    if (b->unsaid > 0)
        (void)blocked_count(c->session->ss->deps.db, &row, NULL);
    b->unsaid = 0;
}

void command_blocked_said(struct command *c)
{
    for (size_t i = 0; i < c->n_blocked; i++)
        blocked_say(c, &c->blocked[i]);
}

void command_blocked(struct command *c, const char *host, uint16_t port, const char *reason,
                     const char *rule, const char *hint)
{
    struct blocked_host *b = blocked_at(c, host, port, reason);
    if (!b)
        return;
    if (b->count++ == 0) {
        b->rule = strdup(rule);
        b->hint = strdup(hint);
        note_blocked(c, host, port, reason); /* once a host: a busy retry fills no spool */
    }
    /* A flood, seen by each command that runs, must not keep the daemon busy with writing. */
    b->unsaid++;
    if (c->session->n_refusals < REFUSALS_A_MINUTE || b->unsaid >= BLOCKED_UNSAID_MAX)
        blocked_say(c, b);
}
