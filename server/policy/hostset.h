/* Which hosts and ports a session may reach: rules compiled into one matcher, <= 1 us among 10,000.
 *
 * Rule texts: "host", "host:port" (no port = 443 and 80), "*.host" (below, label-wise, not the host
 * itself), dotted quad, "[v6]", "*" (any). COVERS says what a bare name means: the host alone
 * (lists machine and session, W8) or with its subdomains (list guarded, T13). Both meanings in one
 * set.
 *
 *     struct hostset *set = hostset_new();
 *     hostset_add(set, &(struct host_rule){.host = "example.com", .port = 443}, &err);
 *     enum verdict v = hostset_match(set, "example.com", 443, &why); */
#pragma once
#include "base/err.h"
#include "wire/host.h"
#include <stdbool.h>
#include <stdint.h>

enum verdict { VERDICT_DENY = 0, VERDICT_ALLOW, VERDICT_ASK };
enum covers { COVERS_HOST = 0, COVERS_HOST_AND_SUBDOMAINS, COVERS_SUBDOMAINS, COVERS_ANY };
extern const char *const COVERS_NAMES[];
enum site_source {
    SITE_CATALOGUE = 0,
    SITE_USER,
    SITE_ASK,
    SITE_CREDENTIAL,
    SITE_TIER,
    SITE_FILE,
    SITE_PROOF
};
extern const char *const SITE_SOURCE_NAMES[];

struct host_rule {
    const char *host; /* canonical, no "*." (see covers) */
    uint16_t port;    /* 0 = 443 and 80 */
    enum covers covers;
    bool allow_private;
    enum site_source source;
    const char *id; /* sit_…, or NULL */
};
struct host_entry { /* a rule in a set, owned by it */
    struct host_rule rule;
    char text[HOST_MAX + 12]; /* "*.example.com:443" */
};
struct hostset;
#define HOSTSET_MAX 10512 /* 10,000 machine sites, 256 of the session, catalogue */
struct hostset *hostset_new(void);
void hostset_free(struct hostset *set);
int hostset_add(struct hostset *set, const struct host_rule *rule,
                struct err *err); /* -E2BIG, -EINVAL */
/* May this session reach HOST:PORT?
 * host  lower-case A-label, no trailing dot (RFC 5890, 2.3.2.1), or an address literal without
 * brackets. Returns DENY (0), ALLOW or ASK; *why is the entry that decided, NULL for none, borrowed
 * until SET changes. The most specific rule decides. Cannot fail: a host that does not normalise is
 * DENY. */
enum verdict hostset_match(const struct hostset *set, const char *host, uint16_t port,
                           const struct host_entry **why);
size_t hostset_count(const struct hostset *set);
const struct host_entry *hostset_at(const struct hostset *set, size_t i);

/* A typed entry -> rule. Normalises (case, root dot, IDNA), refuses other spellings (URL, ".x",
 * "x:*", short or hex addresses) with site_invalid, the reason in detail and the accepted form in
 * hint
 * ("suggestion"). HOST is HOST_MAX bytes of room for rule->host. *ret_wide: needs a confirmation
 * ("*", a wildcard at or above a public suffix; libpsl). BARE_COVERS says what a bare name means.
 */
int host_rule_parse(const char *text, enum covers bare_covers, char host[static HOST_MAX],
                    struct host_rule *ret, bool *ret_wide, char suggestion[static HOST_MAX + 12],
                    struct err *err);
