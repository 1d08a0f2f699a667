/* Runs in: daemon. Reads: hostile (a host that came through the egress, canonical). May block: no.
 *
 * May this sandbox reach host:port? The one decision for all doors. */
#include "session/generation.h"
#include "session/parts.h"
#include "wire/msg.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

bool is_own_port(const struct session *s, uint16_t port)
{
    const uint16_t *ports = s->ss->deps.api_ports;
    for (size_t i = 0; i < ARRAY_LEN(s->ss->deps.api_ports) && ports[i]; i++)
        if (ports[i] == port)
            return true;
    return false;
}

static bool is_loopback(const char *host)
{
    return strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 ||
           strcmp(host, "::1") == 0 || strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
}

static void deny(struct verdict_out *out, const char *reason, const char *rule)
{
    out->verdict = EG_DENY;
    out->reason = reason;
    out->rule = rule;
}

static void deny_unlisted(const char *host, uint16_t port, struct verdict_out *out)
{
    char target[HOST_MAX + 10];
    host_port_text(host, port, target);
    deny(out, "not_listed", "network allowlist: no site of this machine or session covers it");
    (void)snprintf(out->hint, sizeof out->hint, "cordon sites add %s", target);
}

static void deny_loopback(const struct session *s, uint16_t port, struct verdict_out *out)
{
    if (is_own_port(s, port)) {
        deny(out, "own_port", "Cordon's own port is refused whatever a rule says");
        return;
    }
    deny(out, "address_class", "a service of the host's loopback is opened one by one");
    (void)snprintf(out->hint, sizeof out->hint, "cordon sites add --session %s localhost:%u", s->id,
                   port);
}

/* While it is proved: an address literal at the port of the daemon's own listener, which is reached
 * by the redirect and asked of nobody. */
static bool is_proof_target(const struct generation *g, const char *host, uint16_t port)
{
    char canonical[HOST_MAX];
    return g->state == GEN_PROVING && port == g->s->ss->control_port && !is_loopback(host) &&
           host_canonical(host, strlen(host), false, canonical) != HOST_NAME;
}

/* A service of the host's loopback that a person opened for this session. */
static void allow_local(struct session *s, enum tier tier, uint16_t port, struct verdict_out *out,
                        const struct host_entry **why)
{
    out->verdict = EG_ALLOW;
    out->flags = EG_ALLOW_LOOPBACK;
    out->reason = "listed";
    out->rule = "localhost, for this session";
    if (session_hosts_match(s, tier, "localhost", port, why) != VERDICT_ALLOW)
        *why = NULL;
}

/* A literal of a class that only a site opens, or nothing: no person is asked for it. Names are
 * judged when they are resolved, which is not before they are allowed. */
static bool is_refused_literal(const char *host)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, host, &v4.sin_addr) == 1)
        return addr_class((struct sockaddr *)&v4) != ADDR_PUBLIC;
    return inet_pton(AF_INET6, host, &v6.sin6_addr) == 1 &&
           addr_class((struct sockaddr *)&v6) != ADDR_PUBLIC;
}

/* The table of who is asked. Walled refuses a connection first, and the agent may ask then. */
static bool may_be_held(const struct session *s, enum tier tier, enum asker by)
{
    if (session_asks_are_off(s))
        return false;
    switch (by) {
    case ASKER_CONNECTION:
        return tier == TIER_GUARDED && !s->unattended;
    case ASKER_AGENT:
    case ASKER_WEB_FETCH:
    case ASKER_WEB_SEARCH:
        return true;
    }
    return false;
}

static void judge_unlisted(const struct session *s, enum tier tier, enum asker by, const char *host,
                           uint16_t port, struct verdict_out *out)
{
    deny_unlisted(host, port, out);
    if (session_asks_denied(s, host, port)) {
        deny(out, "denied", "a person denied it for this session");
        (void)snprintf(out->hint, sizeof out->hint,
                       "give it up: asking again will not change that in this session");
        return;
    }
    if (!may_be_held(s, tier, by))
        return;
    if (is_own_port(s, port)) {
        deny(out, "own_port", "Cordon's own port is refused whatever a rule says");
        return;
    }
    if (is_refused_literal(host)) {
        deny(out, "address_class", "an address of its class is never offered");
        (void)snprintf(out->hint, sizeof out->hint,
                       "a person may add a site for exactly this address");
        return;
    }
    out->verdict = EG_HOLD;
    out->reason = "ask";
}

/* Every path that does not reach an explicit allow is DENY (0). */
void site_judge(struct session *s, enum tier tier, enum net_mode network, enum asker by,
                const char *host, uint16_t port, struct verdict_out *out,
                const struct host_entry **why)
{
    *out = (struct verdict_out){.verdict = EG_DENY, .reason = "not_listed", .rule = ""};
    *why = NULL;
    if (is_loopback(host)) {
        deny_loopback(s, port, out);
        return;
    }
    if (network == NET_OPEN) {
        out->verdict = EG_ALLOW;
        out->flags = EG_ALLOW_PRIVATE;
        out->reason = "open";
        out->rule = "network open";
        return;
    }
    if (network != NET_ALLOWLIST) {
        deny(out, "network_none", "network none");
        return;
    }
    if (session_hosts_match(s, tier, host, port, why) != VERDICT_ALLOW) {
        judge_unlisted(s, tier, by, host, port, out);
        return;
    }
    out->verdict = EG_ALLOW;
    out->flags = (*why)->rule.allow_private ? EG_ALLOW_PRIVATE : 0;
    out->reason = "listed";
    out->rule = (*why)->text;
}

void egress_judge(const struct generation *g, const char *host, uint16_t port,
                  struct verdict_out *out, const struct host_entry **why)
{
    struct session *s = g->s;
    *out = (struct verdict_out){.verdict = EG_DENY, .reason = "not_listed", .rule = ""};
    *why = NULL;
    if (g->proof_allowed[0] && strcmp(host, g->proof_allowed) == 0) {
        out->verdict = EG_ANSWER_SELF;
        out->reason = "proof";
        return;
    }
    if (g->proof_refused[0] && strcmp(host, g->proof_refused) == 0) {
        deny(out, "not_listed", "the proof's own name");
        return;
    }
    if (is_proof_target(g, host, port)) {
        deny(out, "not_listed", "an address that the proof tries to reach");
        return;
    }
    if (strcmp(host, "localhost") == 0 && !is_own_port(s, port) && session_has_local(s, port) &&
        g->policy.network != NET_NONE) {
        allow_local(s, g->policy.tier, port, out, why);
        return;
    }
    site_judge(s, g->policy.tier, g->policy.network, ASKER_CONNECTION, host, port, out, why);
}

bool egress_is_proof_probe(const struct generation *g, const char *host, uint16_t port)
{
    if (is_proof_target(g, host, port) || strcmp(host, g->proof_allowed) == 0 ||
        strcmp(host, g->proof_refused) == 0)
        return true;
    return g->state == GEN_PROVING && is_loopback(host);
}
