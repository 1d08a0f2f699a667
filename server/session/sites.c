/* Runs in: daemon. Reads: trusted (host names typed by clients, judged by policy/hostset).
 * May block: no. */
#include "session/parts.h"
#include "store/events.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SITES_OPEN_MAX 10000 /* of a list, however they came */

/* ---- Own sites --------------------------------------------------------------------------------
 */

/* A service of the host's loopback is one port, by the one name that means this host inside. */
static int check_local(const struct session *s, const char *host, int port, struct err *err)
{
    unsigned n = 0;
    if (strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0)
        return err_set(err, -EINVAL, "site_invalid", "write localhost",
                       "%s: a service of the host's loopback is opened by the name localhost",
                       host);
    if (strcmp(host, "localhost") != 0)
        return 0;
    if (port == 0)
        return err_set(err, -EINVAL, "site_invalid", "name the port of the service",
                       "localhost: one port is opened, not all");
    if (port == SESSION_DOOR_PORT || is_own_port(s, (uint16_t)port))
        return err_set(err, -EINVAL, "site_invalid", "none: it stays refused whatever a rule says",
                       "localhost:%d is a port of Cordon's own", port);
    if (session_publishes(s, (uint16_t)port)) /* it would lead back inside, without end */
        return err_set(err, -EINVAL, "site_invalid", "publish another port",
                       "localhost:%d is a port that this session publishes", port);
    for (const struct own_site *o = s->sites; o; o = o->next)
        n += strcmp(o->row.host, "localhost") == 0;
    if (n >= SESSION_LOCAL)
        return err_set(err, -E2BIG, "too_many", NULL,
                       "a session has at most %d services of the host's loopback", SESSION_LOCAL);
    return 0;
}

int site_row_make(struct session *s, const char *host, int port, bool allow_private,
                  const struct actor *actor, struct site *ret, struct err *err)
{
    char room[HOST_MAX], suggestion[HOST_MAX + 12] = "", brackets[HOST_MAX + 2];
    struct host_rule rule = {0};
    bool wide = false;
    if (strchr(host, ':') && host[0] != '[' && strlen(host) < HOST_MAX) {
        (void)snprintf(brackets, sizeof brackets, "[%s]", host); /* canonical: it has none */
        host = brackets;
    }
    int r = host_rule_parse(host, COVERS_HOST, room, &rule, &wide, suggestion, err);
    if (r < 0)
        return r;
    if (rule.port != 0)
        return err_set(err, -EINVAL, "site_invalid", suggestion[0] ? suggestion : NULL,
                       "%s: the port stands in a member of its own", host);
    if (port < 0 || port > 65535)
        return err_set(err, -EINVAL, "site_invalid", NULL, "port %d: 1 to 65535", port);
    r = check_local(s, rule.host, port, err);
    if (r < 0)
        return r;
    *ret = (struct site){.list = SITES_SESSION,
                         .port = port,
                         .enabled = true,
                         .allow_private = allow_private || host_rule_reach(&rule) == REACH_PRIVATE,
                         .created_at = clock_wall_ms(),
                         .rev = 1};
    id_new("sit", ret->id);
    (void)snprintf(ret->session_id, sizeof ret->session_id, "%s", s->id);
    (void)snprintf(ret->host, sizeof ret->host, "%s%s",
                   rule.covers == COVERS_SUBDOMAINS ? "*." : "",
                   rule.covers == COVERS_ANY ? "*" : rule.host);
    (void)snprintf(ret->source, sizeof ret->source, "%s", SITE_SOURCE_NAMES[SITE_USER]);
    (void)snprintf(ret->created_by, sizeof ret->created_by, "%s",
                   actor && actor->id[0] ? actor->id : ACTOR_NAMES[actor ? actor->kind : 0]);
    for (const struct own_site *o = s->sites; o; o = o->next)
        if (strcmp(o->row.host, ret->host) == 0 && o->row.port == port)
            return err_set(err, -EEXIST, "exists", NULL, "%s is a site of this session already",
                           ret->host);
    if (s->n_sites >= SESSION_SITES)
        return err_set(err, -E2BIG, "too_many", NULL, "a session has at most %d sites of its own",
                       SESSION_SITES);
    struct own_site *o = calloc(1, sizeof *o);
    if (!o)
        return err_set(err, -ENOMEM, "internal", NULL, "out of memory");
    o->row = *ret;
    o->next = s->sites;
    s->sites = o;
    s->n_sites++;
    session_sets_drop(s);
    return 0;
}

int session_sites_put(struct session *s)
{
    for (const struct own_site *o = s->sites; o; o = o->next) {
        int r = site_put(s->ss->deps.db, &o->row);
        if (r < 0)
            return r;
    }
    return 0;
}

void session_sites_free(struct session *s)
{
    while (s->sites) {
        struct own_site *o = s->sites;
        s->sites = o->next;
        free(o);
    }
    s->n_sites = 0;
    session_sets_drop(s);
}

static void site_target(const struct site *row, char ret[static HOST_MAX + 16])
{
    if (row->port)
        (void)snprintf(ret, HOST_MAX + 16, "%s:%d", row->host, row->port);
    else
        (void)snprintf(ret, HOST_MAX + 16, "%s", row->host);
}

static void tell(const struct session *s, const char *id, int64_t rev, enum event_change change)
{
    events_emit(s->ss->deps.db, &(struct event){EVENT_SITE, change, id, s->id, rev, NULL, NULL});
}

static struct own_site *take_site(struct session *s, const char *id)
{
    for (struct own_site **at = &s->sites; *at; at = &(*at)->next) {
        struct own_site *o = *at;
        if (strcmp(o->row.id, id) != 0)
            continue;
        *at = o->next;
        s->n_sites--;
        session_sets_drop(s);
        return o;
    }
    return NULL;
}

static int check_alive(const struct session *s, struct err *err)
{
    if (s->state >= SESSION_STOPPING)
        return err_set(err, -ESTALE, "session_ended", NULL, "the session is %s",
                       SESSION_STATE_NAMES[s->state]);
    return 0;
}

static int site_add(struct session *s, const char *host, int port, bool allow_private,
                    enum site_source source, const struct actor *actor, struct site *ret,
                    struct err *err)
{
    char target[HOST_MAX + 16];
    struct site row;
    int r = check_alive(s, err);
    if (r == 0)
        r = site_row_make(s, host, port, allow_private, actor, &row, err);
    if (r < 0)
        return r;
    (void)snprintf(row.source, sizeof row.source, "%s", SITE_SOURCE_NAMES[source]);
    s->sites->row = row; /* the newest */
    r = site_put(s->ss->deps.db, &row);
    if (r == 0)
        r = db_commit(s->ss->deps.db);
    if (r < 0) {
        free(take_site(s, row.id));
        return err_set(err, r, "disk_full", NULL, "the site cannot be recorded");
    }
    site_target(&row, target);
    session_audit(s, actor, "site.added", target, NULL, OUTCOME_OK);
    tell(s, row.id, row.rev, EVENT_CREATED);
    session_changed(s);
    session_ports_follow(s);
    session_asks_recheck(s);
    *ret = row;
    return 0;
}

int session_site_add(struct session *s, const char *host, int port, bool allow_private,
                     const struct actor *actor, struct site *ret, struct err *err)
{
    return site_add(s, host, port, allow_private, SITE_USER, actor, ret, err);
}

int session_site_add_by(struct session *s, const char *host, int port, enum site_source source,
                        const struct actor *actor, struct site *ret, struct err *err)
{
    for (const struct own_site *o = s->sites; o; o = o->next)
        if (strcmp(o->row.host, host) == 0 && o->row.port == port) {
            *ret = o->row;
            return 0;
        }
    char typed[HOST_MAX + 2];
    (void)snprintf(typed, sizeof typed, strchr(host, ':') ? "[%s]" : "%s", host);
    return site_add(s, typed, port, false, source, actor, ret, err);
}

/* Cuts tunnels to what is no longer allowed. */
static void session_egress_recheck(struct session *s)
{
    if (s->now)
        egress_link_recheck(s->now->egress);
    if (s->making)
        egress_link_recheck(s->making->egress);
    for (struct generation *g = s->old; g; g = g->next)
        egress_link_recheck(g->egress);
    web_calls_recheck(s);
}

int session_site_remove(struct session *s, const char *site_id, const struct actor *actor,
                        struct err *err)
{
    char target[HOST_MAX + 16];
    struct own_site *o = take_site(s, site_id);
    if (!o)
        return err_set(err, -ENOENT, "not_found", NULL, "no such site of this session");
    site_target(&o->row, target);
    int64_t rev = o->row.rev + 1;
    free(o);
    session_egress_recheck(s); /* first: the way is shut whatever the store says */
    session_ports_follow(s);
    int r = site_delete(s->ss->deps.db, site_id);
    session_audit(s, actor, "site.removed", target, NULL, r < 0 ? OUTCOME_ERROR : OUTCOME_OK);
    tell(s, site_id, rev, EVENT_REMOVED);
    session_changed(s);
    return r < 0 ? err_set(err, r, "disk_full", NULL, "the removal cannot be recorded") : 0;
}

void sessions_sites_changed(struct sessions *ss)
{
    sessions_sets_drop(ss);
    for (size_t i = 0; i < ss->n; i++) {
        session_sets_drop(ss->items[i]);
        session_egress_recheck(ss->items[i]);
    }
    for (size_t i = 0; i < ss->n; i++)
        session_asks_recheck(ss->items[i]);
}

static int open_row(struct session *s, enum site_list list, const char *host, int port,
                    const struct actor *actor, struct site *ret, struct err *err)
{
    struct db *db = s->ss->deps.db;
    if (site_find(db, list, NULL, host, port, ret) == 0) {
        if (!ret->enabled) /* the answer confirmed the host alone */
            ret->allow_private = false;
        ret->rev += !ret->enabled;
        ret->enabled = true;
        return 1;
    }
    if (sites_count(db, (int)list, NULL) >= SITES_OPEN_MAX)
        return err_set(err, -E2BIG, "too_many", "remove what is no longer needed",
                       "a list has at most %d sites", SITES_OPEN_MAX);
    *ret = (struct site){
        .list = list, .port = port, .enabled = true, .created_at = clock_wall_ms(), .rev = 1};
    id_new("sit", ret->id);
    (void)snprintf(ret->host, sizeof ret->host, "%s", host);
    (void)snprintf(ret->source, sizeof ret->source, "%s", SITE_SOURCE_NAMES[SITE_ASK]);
    (void)snprintf(ret->created_by, sizeof ret->created_by, "%s",
                   actor->id[0] ? actor->id : ACTOR_NAMES[actor->kind]);
    return 0;
}

int sessions_site_open(struct session *s, enum site_list list, const char *host, int port,
                       const struct actor *actor, struct site *ret, struct err *err)
{
    char target[HOST_MAX + 16];
    int found = open_row(s, list, host, port, actor, ret, err);
    if (found < 0)
        return found;
    int r = site_put(s->ss->deps.db, ret);
    if (r == 0)
        r = db_commit(s->ss->deps.db);
    if (r < 0)
        return err_set(err, r, "disk_full", NULL, "the site cannot be recorded");
    site_target(ret, target);
    session_audit(s, actor, found ? "site.changed" : "site.added", target,
                  json_pack("{s:s, s:b}", "list", SITE_LIST_NAMES[list], "enabled", 1), OUTCOME_OK);
    events_emit(s->ss->deps.db, &(struct event){EVENT_SITE, found ? EVENT_UPDATED : EVENT_CREATED,
                                                ret->id, NULL, ret->rev, NULL, NULL});
    sessions_sites_changed(s->ss);
    return 0;
}

/* ---- POST /sites/check ------------------------------------------------------------------------
 */

static json_t *check_answer(bool allowed, const struct host_entry *why, const char *reason)
{
    json_t *out = json_pack("{s:s}", "verdict", allowed ? "allow" : "refuse");
    if (why)
        (void)json_object_set_new(out, "site", json_string(why->text));
    if (!allowed)
        (void)json_object_set_new(out, "reason", json_string(reason));
    return out;
}

json_t *sessions_site_check(struct sessions *ss, struct session *s, const char *host, uint16_t port)
{
    const struct host_entry *why = NULL;
    if (s && s->network == NET_NONE)
        return check_answer(false, NULL, "network_none");
    if (s && s->network == NET_OPEN)
        return check_answer(true, NULL, NULL);
    if (s) {
        bool allowed = session_hosts_match(s, s->tier, host, port, &why) == VERDICT_ALLOW;
        return check_answer(allowed, why, "not_listed");
    }
    const struct hostset *set = sessions_hosts(ss, SITES_MACHINE);
    bool allowed = set && hostset_match(set, host, port, &why) == VERDICT_ALLOW;
    return check_answer(allowed, allowed ? why : NULL, "not_listed");
}
