/* Runs in: daemon. Reads: trusted (rows of the store, canonical since they were typed).
 * May block: no.
 *
 * The lists compiled into matchers, when first asked for. A bare name has two meanings: in the
 * lists machine and session it is that host alone, in guarded its subdomains too. Both stand in one
 * matcher. A matcher that cannot be made opens nothing. */
#include "base/log.h"
#include "session/parts.h"
#include <errno.h>
#include <string.h>

static enum site_source source_of(const char *name)
{
    for (int i = 0; SITE_SOURCE_NAMES[i]; i++)
        if (strcmp(SITE_SOURCE_NAMES[i], name) == 0)
            return (enum site_source)i;
    return SITE_USER;
}

static int set_add(struct hostset *set, const struct site *row)
{
    struct host_rule rule = {.port = (uint16_t)row->port,
                             .allow_private = row->allow_private,
                             .source = source_of(row->source),
                             .id = row->id};
    struct err err = {0};
    host_rule_kept(row->host, row->list == SITES_GUARDED ? COVERS_HOST_AND_SUBDOMAINS : COVERS_HOST,
                   &rule);
    int r = hostset_add(set, &rule, &err);
    if (r < 0)
        log_warn("sites.dropped", "site=%s host=%s detail=%s", row->id, row->host, err.detail);
    return r;
}

static int add_enabled(const struct site *row, void *arg)
{
    return row->enabled && set_add(arg, row) == -ENOMEM ? -ENOMEM : 0;
}

static int add_list(struct sessions *ss, enum site_list list, struct hostset *set)
{
    return sites_each(ss->deps.db, (int)list, NULL, NULL, NULL, NULL, HOSTSET_MAX, add_enabled,
                      set);
}

/* The list machine, and with it guarded where that is asked for. */
static struct hostset *compile(struct sessions *ss, enum site_list list)
{
    struct hostset *set = hostset_new();
    int r = set ? add_list(ss, SITES_MACHINE, set) : -ENOMEM;
    if (r == 0 && list == SITES_GUARDED)
        r = add_list(ss, SITES_GUARDED, set);
    if (r < 0)
        hostset_free(TAKE(set));
    return set;
}

const struct hostset *sessions_hosts(struct sessions *ss, enum site_list list)
{
    struct hostset **at = &ss->hosts[list == SITES_GUARDED];
    if (!*at)
        *at = compile(ss, list);
    return *at;
}

void sessions_sets_drop(struct sessions *ss)
{
    for (size_t i = 0; i < ARRAY_LEN(ss->hosts); i++)
        hostset_free(TAKE(ss->hosts[i]));
}

static enum site_list list_of(enum tier tier)
{
    return tier == TIER_GUARDED ? SITES_GUARDED : SITES_MACHINE;
}

static void add_own(struct session *s, struct hostset *set)
{
    for (const struct own_site *o = s->sites; o; o = o->next)
        (void)set_add(set, &o->row);
}

static struct hostset *own_hosts(struct session *s)
{
    if (!s->own_hosts && (s->own_hosts = hostset_new()))
        add_own(s, s->own_hosts);
    return s->own_hosts;
}

void session_sets_drop(struct session *s)
{
    hostset_free(TAKE(s->own_hosts));
    hostset_free(TAKE(s->all_hosts));
}

/* Two sets, so that 256 sessions share the machine's 10,000 rules. */
enum verdict session_hosts_match(struct session *s, enum tier tier, const char *host, uint16_t port,
                                 const struct host_entry **why)
{
    const struct host_entry *own = NULL, *shared = NULL;
    (void)hostset_match(own_hosts(s), host, port, &own);
    (void)hostset_match(sessions_hosts(s->ss, list_of(tier)), host, port, &shared);
    *why = host_entry_better(own, shared);
    return *why ? VERDICT_ALLOW : VERDICT_DENY;
}

const struct hostset *session_hosts(struct session *s)
{
    if (!s->all_hosts && (s->all_hosts = compile(s->ss, list_of(s->tier))))
        add_own(s, s->all_hosts);
    return s->all_hosts;
}
