/* Which hosts and ports a session may reach: rules compiled into one matcher, <= 1 us among 10,000.
 *
 * Rule texts: "host", "host:port" (no port = 443 and 80), "*.host" (below, label-wise, not the host
 * itself), dotted quad, "[v6]", "*" (any). COVERS says what a bare name means: the host alone
 * (lists machine and session, W8) or with its subdomains (list guarded, T13). Both meanings in one
 * set.
 *
 * An entry is added and never taken out: who changes a list makes a new set.
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
    const char *text; /* "*.example.com:443" */
};
#define HOST_RULE_TEXT_MAX (HOST_MAX + 12)
/* RULE as a person writes it: "example.com:443", "*.example.com", "[2001:db8::1]:443", "*". */
void host_rule_text(const struct host_rule *rule, char ret[static HOST_RULE_TEXT_MAX]);

struct hostset;
#define HOSTSET_MAX 10512          /* 10,000 machine sites, 256 of the session, catalogue */
struct hostset *hostset_new(void); /* NULL: no memory */
void hostset_free(struct hostset *set);
/* RULE is copied. -E2BIG (too_many) past HOSTSET_MAX, -EINVAL (site_invalid) when the host is not
 * canonical or a wildcard is put on an address, -ENOMEM. */
int hostset_add(struct hostset *set, const struct host_rule *rule, struct err *err);
/* May this session reach HOST:PORT?
 * host  lower-case A-label, no trailing dot (RFC 5890, 2.3.2.1), or an address literal without
 * brackets. Returns DENY (0) or ALLOW (ASK is for those who know whom to ask); *why is the entry
 * that decided, NULL for none, borrowed until SET changes. The most specific rule decides: the host
 * itself before what covers it from above, the nearest of these first, "*" last; then one that
 * names the port before one that means 443 and 80; then one with allow_private. Cannot fail: a
 * host that is not canonical is DENY. */
enum verdict hostset_match(const struct hostset *set, const char *host, uint16_t port,
                           const struct host_entry **why);
/* Of two entries that both allow the same host and port the more specific one, in the order of
 * hostset_match(); the first of equals. NULL is none. */
const struct host_entry *host_entry_better(const struct host_entry *a, const struct host_entry *b);
/* An entry that allows all that RULE allows, by itself: NULL when there is none. */
const struct host_entry *hostset_covers(const struct hostset *set, const struct host_rule *rule);
size_t hostset_count(const struct hostset *set);
const struct host_entry *hostset_at(const struct hostset *set, size_t i);

/* Do names below HOST (canonical) belong to others: a public suffix, those of the list's private
 * part too (hosting services)? */
bool host_is_shared(const char *host);

/* A typed entry -> rule. TEXT is UTF-8. Normalises (case, one root dot, IDNA); every other spelling
 * (URL, userinfo, path, ".x", "x:*", short, octal or hex addresses, v6 without brackets, spaces,
 * ports with a sign or zeros in front) is -EINVAL with code site_invalid, the reason in detail, and
 * in SUGGESTION (and in the hint) the accepted spelling of what was probably meant, or "".
 * HOST is room for rule->host, which points to it. *ret_wide: more than one owner's hosts, which
 * needs a confirmation: "*", and subdomains of a public suffix (publicsuffix.org, ICANN part).
 * BARE_COVERS (COVERS_HOST or COVERS_HOST_AND_SUBDOMAINS) says what a bare name means; an address
 * covers itself. source, id and allow_private are left for the caller. */
int host_rule_parse(const char *text, enum covers bare_covers, char host[static HOST_MAX],
                    struct host_rule *ret, bool *ret_wide,
                    char suggestion[static HOST_RULE_TEXT_MAX], struct err *err);
/* A host as lists keep it (canonical, with "*." or "*" as they are; an IPv6 address without
 * brackets) -> host and covers of RET, borrowed of HOST. Whether it is canonical is for hostset_add
 * to say. */
void host_rule_kept(const char *host, enum covers bare_covers, struct host_rule *ret);
/* What an address written down as a site means; a name is ordinary, whatever it resolves to. */
enum host_reach {
    REACH_NEVER = 0, /* link-local, metadata, multicast …: no rule opens it */
    REACH_ORDINARY,
    REACH_PRIVATE, /* its entry is its own allow_private */
    REACH_LOOPBACK /* this host's own services, and localhost: of one session */
};
enum host_reach host_rule_reach(const struct host_rule *rule);
/* A site's host ("*.x", "x", "*", an address) for showing: U-labels, but A-labels where scripts are
 * mixed. */
void host_rule_unicode(const char *host, char *ret, size_t size);
