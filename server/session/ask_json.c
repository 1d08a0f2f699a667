/* Runs in: daemon. Reads: trusted; hosts and reasons come from inside, as text. May block: no.
 *
 * An ask as the resource of REST, and which answers it offers. */
#include "base/fields.h"
#include "session/ask_parts.h"
#include <stdio.h>
#include <string.h>

const char *const ASKER_NAMES[] = {"agent", "connection", "web_fetch", "web_search", NULL};
const char *const ANSWER_NAMES[] = {"deny", "once", "session", "always", NULL};
static const char *const STATE_NAMES[] = {"open", "decided", "expired", "cancelled", "superseded"};

const char *ask_state_name(enum ask_state state)
{
    return STATE_NAMES[state];
}

static bool offers_once(const struct ask *a)
{
    return a->n_waits + a->n_returning > 0;
}

/* "*.HOST", unless that is no rule, or more than one owner's hosts. */
static bool may_widen(const struct ask *a, char ret[static HOST_MAX + 2])
{
    char room[HOST_MAX], suggestion[HOST_RULE_TEXT_MAX];
    struct host_rule rule = {0};
    bool wide = true;
    (void)snprintf(ret, HOST_MAX + 2, "*.%s", a->host);
    return host_rule_parse(ret, COVERS_HOST, room, &rule, &wide, suggestion, NULL) == 0 && !wide &&
           !host_is_shared(a->host) && rule.covers == COVERS_SUBDOMAINS;
}

json_t *ask_hosts(const struct ask *a, enum ask_answer answer)
{
    char wider[HOST_MAX + 2];
    json_t *out = json_array();
    if (answer == ANSWER_ONCE && !offers_once(a))
        return out;
    (void)json_array_append_new(out, json_string(a->host));
    bool widens = answer == ANSWER_SESSION ||
                  (answer == ANSWER_ALWAYS && a->s->tier != TIER_GUARDED); /* T13: it does so */
    if (widens && may_widen(a, wider))
        (void)json_array_append_new(out, json_string(wider));
    return out;
}

static void effect_text(const struct ask *a, enum ask_answer answer, char *ret, size_t size)
{
    char target[HOST_MAX + 10];
    host_port_text(a->host, a->port, target);
    switch (answer) {
    case ANSWER_ONCE:
        (void)snprintf(ret, size, "one request to %s, the oldest that waits", target);
        return;
    case ANSWER_SESSION:
        (void)snprintf(ret, size, "%s until %s ends", target, a->s->name);
        return;
    case ANSWER_ALWAYS:
        if (a->s->tier != TIER_GUARDED)
            (void)snprintf(ret, size, "%s for every walled session, until it is taken off the list",
                           target);
        else if (a->port == 443 || a->port == 80)
            (void)snprintf(ret, size,
                           "%s and its subdomains, on 443 and 80, for every guarded session, until "
                           "it is taken off the list",
                           a->host);
        else
            (void)snprintf(ret, size,
                           "%s, and its subdomains on that port, for every guarded session, until "
                           "it is taken off the list",
                           target);
        return;
    case ANSWER_DENY:
        (void)snprintf(ret, size, "%s is refused until %s ends, and the agent is told", target,
                       a->s->name);
        return;
    }
}

static json_t *answers_json(const struct ask *a)
{
    static const enum ask_answer ORDER[] = {ANSWER_ONCE, ANSWER_SESSION, ANSWER_ALWAYS,
                                            ANSWER_DENY};
    json_t *out = json_array();
    char effect[HOST_MAX + 500];
    for (size_t i = 0; a->state == ASK_OPEN && i < ARRAY_LEN(ORDER); i++) {
        json_t *hosts = ask_hosts(a, ORDER[i]);
        if (json_array_size(hosts) == 0) {
            json_decref(hosts);
            continue;
        }
        effect_text(a, ORDER[i], effect, sizeof effect);
        (void)json_array_append_new(out,
                                    json_pack("{s:s, s:s, s:o}", "answer", ANSWER_NAMES[ORDER[i]],
                                              "effect", effect, "hosts", hosts));
    }
    return out;
}

static json_t *evidence_json(const struct ask *a)
{
    json_t *out = json_pack("{s:b, s:I}", "blocked", a->evidence.count > 0 ? 1 : 0, "count",
                            (json_int_t)a->evidence.count);
    if (a->evidence.last_at)
        (void)json_object_set_new(out, "last_at", time_json(a->evidence.last_at));
    if (a->evidence.command_id[0])
        (void)json_object_set_new(out, "command_id", json_string(a->evidence.command_id));
    return out;
}

json_t *ask_actor_json(const struct actor *actor)
{
    return json_string(actor->id[0] ? actor->id : ACTOR_NAMES[actor->kind]);
}

static void put_decided(const struct ask *a, json_t *out)
{
    json_t *decided =
        json_pack("{s:o, s:o}", "by", ask_actor_json(&a->decider), "at", time_json(a->decided_at));
    if (a->note)
        (void)json_object_set_new(decided, "note", json_string(a->note));
    (void)json_object_set_new(out, "answer", json_string(ANSWER_NAMES[a->answer]));
    (void)json_object_set_new(out, "decided", decided);
    if (a->site_id[0])
        (void)json_object_set_new(out, "site_id", json_string(a->site_id));
}

json_t *ask_to_json(const struct ask *a)
{
    json_t *out = json_pack("{s:s, s:s, s:s, s:{s:s, s:i}, s:s, s:o, s:i, s:o, s:s, s:o, s:I}",
                            "id", a->id, "session_id", a->s->id, "kind", "site", "subject", "host",
                            a->host, "port", (int)a->port, "requested_by", ASKER_NAMES[a->by],
                            "evidence", evidence_json(a), "waiting", (int)a->n_waits, "answers",
                            answers_json(a), "state", STATE_NAMES[a->state], "expires_at",
                            time_json(a->expires_at), "rev", (json_int_t)a->rev);
    if (out && a->reason)
        (void)json_object_set_new(out, "reason", json_string(a->reason));
    if (out && a->state == ASK_DECIDED)
        put_decided(a, out);
    return out;
}
