/* Runs in: daemon. Reads: trusted (checked by the router). May block: no. */
#include "api/sites.h"
#include "api/handlers.h"
#include "api/session_parts.h"
#include "api/state.h"
#include "base/clock.h"
#include "base/mem.h"
#include "store/events.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- Shapes -----------------------------------------------------------------------------------
 */

struct confirm_query {
    char *confirm;
};
static const struct field CONFIRM_FIELDS[] = {{"confirm", FIELD_STRING,
                                               offsetof(struct confirm_query, confirm), 0, 1,
                                               CONFIRM_MAX, NULL, NULL},
                                              FIELDS_END};
const struct shape CONFIRM_QUERY = {CONFIRM_FIELDS, sizeof(struct confirm_query), NULL};

/* session is no list that a person adds to here. */
static const char *const LISTS[] = {"machine", "guarded", NULL};
#define AT(member) offsetof(struct site_body, member)
#define FIELD_OF_NOTE                                                                              \
    {                                                                                              \
        "note", FIELD_STRING, AT(note), FIELD_NULLABLE, 0, 200, NULL, NULL                         \
    }
#define FIELD_OF_PRIVATE                                                                           \
    {                                                                                              \
        "allow_private", FIELD_BOOL, AT(allow_private), 0, 0, 0, NULL, NULL                        \
    }
#define FIELD_OF_ENABLED                                                                           \
    {                                                                                              \
        "enabled", FIELD_BOOL, AT(enabled), 0, 0, 0, NULL, NULL                                    \
    }
#define FIELD_OF_HOST                                                                              \
    {                                                                                              \
        "host", FIELD_STRING, AT(host), FIELD_MANDATORY, 1, 300, NULL, NULL                        \
    }
#define FIELD_OF_PORT                                                                              \
    {                                                                                              \
        "port", FIELD_INT, AT(port), FIELD_NULLABLE, 1, 65535, NULL, NULL                          \
    }
static const struct field SITE_FIELDS[] = {
    FIELD_OF_HOST,    FIELD_OF_PORT, {"list", FIELD_ENUM, AT(list), 0, 0, 0, LISTS, NULL},
    FIELD_OF_ENABLED, FIELD_OF_NOTE, FIELD_OF_PRIVATE,
    FIELDS_END};
/* null = the default again (RFC 7396) */
static const struct field SITE_PATCH_FIELDS[] = {
    {"enabled", FIELD_BOOL, AT(enabled), FIELD_NULLABLE, 0, 0, NULL, NULL},
    FIELD_OF_NOTE,
    {"allow_private", FIELD_BOOL, AT(allow_private), FIELD_NULLABLE, 0, 0, NULL, NULL},
    FIELDS_END};
static const struct field SESSION_SITE_FIELDS[] = {FIELD_OF_HOST, FIELD_OF_PORT, FIELD_OF_PRIVATE,
                                                   FIELDS_END};
static const struct site_body SITE_DEFAULTS = {.enabled = true};
const struct shape SITE_BODY = {SITE_FIELDS, sizeof(struct site_body), &SITE_DEFAULTS};
const struct shape SITE_PATCH = {SITE_PATCH_FIELDS, sizeof(struct site_body), &SITE_DEFAULTS};
const struct shape SESSION_SITE_BODY = {SESSION_SITE_FIELDS, sizeof(struct site_body),
                                        &SITE_DEFAULTS};

static const char *const SOURCES[] = {"catalogue", "user", "ask", "credential",
                                      "tier",      "file", NULL};
struct sites_query {
    struct page page;
    int list, source;
    char *q;
};
static const struct field SITES_FIELDS[] = {
    PAGE_FIELDS(sites_query),
    {"list", FIELD_ENUM, offsetof(struct sites_query, list), 0, 0, 0, LISTS, NULL},
    {"source", FIELD_ENUM, offsetof(struct sites_query, source), 0, 0, 0, SOURCES, NULL},
    {"q", FIELD_STRING, offsetof(struct sites_query, q), 0, 1, 300, NULL, NULL},
    FIELDS_END};
static const struct sites_query SITES_DEFAULTS = {
    .page.limit = PAGE_DEFAULT, .list = -1, .source = -1};
const struct shape SITES_QUERY = {SITES_FIELDS, sizeof(struct sites_query), &SITES_DEFAULTS};

struct check_body {
    char *host, *session_id;
    int64_t port;
};
static const struct field CHECK_FIELDS[] = {
    {"host", FIELD_STRING, offsetof(struct check_body, host), FIELD_MANDATORY, 1, 300, NULL, NULL},
    {"port", FIELD_INT, offsetof(struct check_body, port), 0, 1, 65535, NULL, NULL},
    {"session_id", FIELD_STRING, offsetof(struct check_body, session_id), FIELD_NULLABLE, 1, 30,
     NULL, NULL},
    FIELDS_END};
static const struct check_body CHECK_DEFAULTS = {.port = 443};
const struct shape SITE_CHECK_BODY = {CHECK_FIELDS, sizeof(struct check_body), &CHECK_DEFAULTS};

/* ---- Rendering --------------------------------------------------------------------------------
 */

static json_t *text_or_null(const char *text)
{
    return text[0] ? json_string(text) : json_null();
}

static enum covers covers_of(const struct site *s)
{
    if (strcmp(s->host, "*") == 0)
        return COVERS_ANY;
    if (str_starts(s->host, "*."))
        return COVERS_SUBDOMAINS;
    return s->list == SITES_GUARDED ? COVERS_HOST_AND_SUBDOMAINS : COVERS_HOST;
}

json_t *site_to_json(const struct site *s)
{
    char shown[HOST_MAX * 4];
    bool is_own = strcmp(s->source, "catalogue") != 0 && strcmp(s->source, "file") != 0;

    host_rule_unicode(s->host, shown, sizeof shown);
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:o, s:s, s:b, s:o, s:b, s:s, s:o, s:n, s:I, s:I, s:o, s:b, s:s, "
        "s:I}",
        "id", s->id, "host", s->host, "host_unicode", shown, "covers", COVERS_NAMES[covers_of(s)],
        "port", s->port ? json_integer(s->port) : json_null(), "list", SITE_LIST_NAMES[s->list],
        "enabled", s->enabled ? 1 : 0, "note", text_or_null(s->note), "allow_private",
        s->allow_private ? 1 : 0, "source", s->source, "group", text_or_null(s->group),
        "credential_id", "hits", (json_int_t)s->hits, "blocked_hits", (json_int_t)s->blocked_hits,
        "last_used_at", time_json(s->last_used_at), "removable", is_own ? 1 : 0, "created_by",
        s->created_by, "rev", (json_int_t)s->rev);
}

static int reply_site(struct request *rq, int status, const struct site *s)
{
    return reply_rev(rq, status, site_to_json(s), s->rev);
}

/* ---- Lists ------------------------------------------------------------------------------------
 */

struct collect {
    json_t *items;
    unsigned limit;
    bool more;
};

static int collect_site(const struct site *s, void *arg)
{
    struct collect *c = arg;

    c->more = json_array_size(c->items) == c->limit;
    return c->more || json_array_append_new(c->items, site_to_json(s)) < 0;
}

static int sites_page(struct request *rq, int list, const char *session_id, const char *source,
                      const char *q, const struct page *page)
{
    struct collect c = {.items = json_array(), .limit = (unsigned)page->limit};
    const char *last;
    int r;

    if (page->cursor && !id_is(page->cursor, "sit")) {
        json_decref(c.items);
        return request_bad_query(rq, "cursor", "format", "not a cursor of this list");
    }
    r = sites_each(rq->api->d.db, list, session_id, source, q, page->cursor, c.limit + 1,
                   collect_site, &c);
    if (r < 0) {
        json_decref(c.items);
        return r;
    }
    last = json_string_value(
        json_object_get(json_array_get(c.items, json_array_size(c.items) - 1), "id"));
    return reply_items(rq, c.items, c.more ? last : NULL);
}

int sites_list(struct request *rq)
{
    const struct sites_query *q = rq->args;

    return sites_page(rq, q->list, NULL, q->source >= 0 ? SOURCES[q->source] : NULL, q->q,
                      &q->page);
}

int session_sites_show(struct request *rq)
{
    const struct page *page = rq->args; /* LIST_QUERY begins with it */
    struct session *s;
    json_t *doc = NULL;
    int r = session_any(rq, &s, &doc);

    json_decref(doc);
    return r < 0 ? r : sites_page(rq, SITES_SESSION, rq->params[0], NULL, NULL, page);
}

/* ---- One --------------------------------------------------------------------------------------
 */

/* Sites of sessions have their own paths. */
static int site_of_path(struct request *rq, struct site *ret)
{
    if (site_get(rq->api->d.db, rq->params[0], ret) < 0 || ret->list == SITES_SESSION)
        return request_not_found(rq, "site");
    return 0;
}

int site_show(struct request *rq)
{
    struct site s;
    int r = site_of_path(rq, &s);

    return r < 0 ? r : reply_site(rq, 200, &s);
}

static void site_target(const struct site *s, char *ret, size_t n)
{
    if (s->port)
        (void)snprintf(ret, n, "%s:%d", s->host, s->port);
    else
        (void)snprintf(ret, n, "%s", s->host);
}

int site_record(struct request *rq, const char *action, const struct site *before,
                const struct site *after)
{
    char target[HOST_MAX + 16];

    site_target(after ? after : before, target, sizeof target);
    events_emit(rq->api->d.db, &(struct event){EVENT_SITE,
                                               !before  ? EVENT_CREATED
                                               : !after ? EVENT_REMOVED
                                                        : EVENT_UPDATED,
                                               after ? after->id : before->id, NULL,
                                               after ? after->rev : before->rev + 1, NULL, NULL});
    return api_record(rq, action, target, before ? site_to_json(before) : NULL,
                      after ? site_to_json(after) : NULL);
}

int sites_fit(struct request *rq, int64_t more)
{
    struct db *db = rq->api->d.db;
    int64_t n = sites_count(db, SITES_MACHINE, NULL) + sites_count(db, SITES_GUARDED, NULL);

    return more > 0 && n + more > SITES_MAX
               ? request_refuse(rq, "too_many", NULL, "more than %d machine sites", SITES_MAX)
               : 0;
}

static int site_fill(struct request *rq, const struct site_body *in, const struct site_typed *typed,
                     struct site *s)
{
    const struct caller *c = &rq->caller;

    if (site_find(rq->api->d.db, in->list, NULL, typed->host, typed->port, s) == 0) {
        request_extra(rq, "site_id", json_string(s->id));
        return request_refuse(rq, "exists", NULL, "the list holds it already");
    }
    memset(s, 0, sizeof *s);
    id_new("sit", s->id);
    s->list = in->list;
    s->port = typed->port;
    s->enabled = in->enabled;
    s->allow_private = typed->allow_private;
    s->created_at = clock_wall_ms();
    s->rev = 1;
    (void)snprintf(s->host, sizeof s->host, "%.255s", typed->host);
    (void)snprintf(s->note, sizeof s->note, "%s", in->note ? in->note : "");
    (void)snprintf(s->source, sizeof s->source, "user");
    (void)snprintf(s->created_by, sizeof s->created_by, "%s",
                   c->actor.id[0] ? c->actor.id : ACTOR_NAMES[c->actor.kind]);
    return 0;
}

void site_body_done(struct site_body *in)
{
    fields_done(SITE_FIELDS, in);
}

int site_from_json(struct request *rq, const json_t *item, const char *pointer,
                   struct site_body *in, struct strv *wide, struct site *ret)
{
    struct site_typed typed;
    char host[64];
    int r;

    *in = SITE_DEFAULTS;
    (void)snprintf(host, sizeof host, "%s/host", pointer);
    r = fields_parse(SITE_FIELDS, item, pointer, in, &rq->errors);
    if (r < 0)
        return err_member(&rq->err, r, "body_invalid", pointer, "the site has faults");
    r = site_typed_take(rq, host, in->host, (int)in->port, in->list, in->allow_private, &typed);
    if (r == 0 && typed.is_wide && !strv_has(wide, typed.host))
        r = strv_add(wide, typed.host);
    return r < 0 ? r : site_fill(rq, in, &typed, ret);
}

int site_create(struct request *rq)
{
    const struct site_body *in = rq->in;
    struct site_typed typed;
    struct site s;
    int r;

    if ((r = site_typed_take(rq, "/host", in->host, (int)in->port, in->list, in->allow_private,
                             &typed)) < 0 ||
        (r = site_confirm(rq, &typed)) < 0 || (r = site_fill(rq, in, &typed, &s)) < 0 ||
        (r = sites_fit(rq, 1)) < 0 || (r = site_put(rq->api->d.db, &s)) < 0 ||
        (r = site_record(rq, "site.added", NULL, &s)) < 0)
        return r;
    sessions_sites_changed(rq->api->d.sessions);
    (void)reply_header(rq, "Location", "/v1/sites/%s", s.id);
    return reply_site(rq, 201, &s);
}

int site_change(struct request *rq)
{
    const struct site_body *in = rq->in;
    const json_t *body = rq->json;
    struct site before, s;
    int r = site_of_path(rq, &before);

    if (r < 0 || (r = request_if_match(rq, before.rev)) < 0)
        return r;
    s = before;
    if (json_object_get(body, "enabled"))
        s.enabled = in->enabled;
    if (json_object_get(body, "note"))
        (void)snprintf(s.note, sizeof s.note, "%s", in->note ? in->note : "");
    if (json_object_get(body, "allow_private"))
        s.allow_private = in->allow_private;
    if (s.allow_private && !before.allow_private &&
        (r = request_confirm(rq, s.host, "private addresses become reachable")) < 0)
        return r;
    s.rev++;
    if ((r = site_put(rq->api->d.db, &s)) < 0 ||
        (r = site_record(rq, "site.changed", &before, &s)) < 0)
        return r;
    sessions_sites_changed(rq->api->d.sessions);
    return reply_site(rq, 200, &s);
}

int site_remove(struct request *rq)
{
    struct site s;
    int r = site_of_path(rq, &s);

    if (r < 0)
        return r;
    if (strcmp(s.source, "catalogue") == 0) {
        (void)reply_header(rq, "Allow", "GET, HEAD, PATCH, OPTIONS");
        return request_refuse(rq, "method_not_allowed",
                              "Switch it off: PATCH {\"enabled\": false}.",
                              "a site of the catalogue stays in the list");
    }
    if ((r = site_delete(rq->api->d.db, s.id)) < 0 ||
        (r = site_record(rq, "site.removed", &s, NULL)) < 0)
        return r;
    sessions_sites_changed(rq->api->d.sessions);
    return reply_empty(rq);
}

/* ---- Of a session -----------------------------------------------------------------------------
 */

int session_site_create(struct request *rq)
{
    const struct site_body *in = rq->in;
    struct site_typed typed;
    struct session *s;
    struct site row;
    int r = session_need(rq, &s);

    if (r < 0 ||
        (r = site_typed_take(rq, "/host", in->host, (int)in->port, SITES_SESSION, in->allow_private,
                             &typed)) < 0 ||
        (r = site_confirm(rq, &typed)) < 0)
        return r;
    r = session_site_add(s, typed.host, typed.port, typed.allow_private, &rq->caller.actor, &row,
                         &rq->err);
    if (r < 0)
        return r;
    (void)reply_header(rq, "Location", "/v1/sessions/%s/sites/%s", rq->params[0], row.id);
    return reply_site(rq, 201, &row);
}

int session_site_delete(struct request *rq)
{
    struct session *s;
    int r = session_need(rq, &s);

    if (r < 0)
        return r;
    r = session_site_remove(s, rq->params[1], &rq->caller.actor, &rq->err);
    return r < 0 ? r : reply_empty(rq);
}

/* ---- Would it be reached ----------------------------------------------------------------------
 */

int sites_check(struct request *rq)
{
    const struct check_body *in = rq->in;
    char room[HOST_MAX], suggestion[HOST_RULE_TEXT_MAX] = "";
    struct host_rule rule = {0};
    struct session *s = NULL;
    bool wide;
    int r;

    if (in->session_id && !(s = session_find(rq->api->d.sessions, in->session_id)))
        return request_bad_member(rq, "/session_id", "format", "there is no such session alive");
    r = host_rule_parse(in->host, COVERS_HOST, room, &rule, &wide, suggestion, &rq->err);
    if (r >= 0 && rule.covers != COVERS_HOST)
        r = err_member(&rq->err, -EINVAL, "site_invalid", "/host", "one host is asked for");
    if (r < 0) {
        if (suggestion[0])
            request_extra(rq, "suggestion", json_string(suggestion));
        return r;
    }
    return reply_json(rq, 200,
                      sessions_site_check(rq->api->d.sessions, s, rule.host,
                                          rule.port ? rule.port : (uint16_t)in->port));
}
