/* Runs in: daemon. Reads: hostile (a host that came through the egress, canonical). May block: no.
 *
 * May this sandbox reach host:port? The one decision for all doors. */
#include "session/generation.h"
#include "session/parts.h"
#include "wire/msg.h"
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

/* Every path that does not reach an explicit allow is DENY (0). */
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
    if (is_loopback(host)) {
        is_own_port(s, port)
            ? deny(out, "own_port", "Cordon's own port is refused whatever a rule says")
            : deny(out, "address_class", "the host's loopback is never reached from inside");
        return;
    }
    if (g->policy.network == NET_OPEN) {
        out->verdict = EG_ALLOW;
        out->flags = EG_ALLOW_PRIVATE;
        out->reason = "open";
        out->rule = "network open";
        return;
    }
    if (g->policy.network != NET_ALLOWLIST) {
        deny(out, "network_none", "network none");
        return;
    }
    if (session_hosts_match(s, g->policy.tier, host, port, why) != VERDICT_ALLOW) {
        deny_unlisted(host, port, out);
        return;
    }
    out->verdict = EG_ALLOW;
    out->flags = (*why)->rule.allow_private ? EG_ALLOW_PRIVATE : 0;
    out->reason = "listed";
    out->rule = (*why)->text;
}

bool egress_is_proof_probe(const struct generation *g, const char *host, uint16_t port)
{
    if (is_proof_target(g, host, port) || strcmp(host, g->proof_allowed) == 0 ||
        strcmp(host, g->proof_refused) == 0)
        return true;
    return g->state == GEN_PROVING && is_loopback(host);
}
