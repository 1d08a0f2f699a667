/* Runs in: daemon. Reads: trusted (checked by the router). May block: no.
 *
 * Many sites at once: a typed list looked at, and a batch that is taken whole or not at all. */
#include "api/handlers.h"
#include "api/session_parts.h"
#include "api/sites.h"
#include "api/state.h"
#include "base/mem.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define BATCH_MAX 1000

static const char *const PREVIEW_LISTS[] = {"machine", "guarded", "session", NULL};
struct preview_body {
    char *text;
    int list;
};
static const struct field PREVIEW_FIELDS[] = {
    {"text", FIELD_STRING, offsetof(struct preview_body, text), FIELD_MANDATORY, 0, 200000, NULL,
     NULL},
    {"list", FIELD_ENUM, offsetof(struct preview_body, list), 0, 0, 0, PREVIEW_LISTS, NULL},
    FIELDS_END};
const struct shape SITE_PREVIEW_BODY = {PREVIEW_FIELDS, sizeof(struct preview_body), NULL};

struct batch_body {
    json_t *add;
    struct strv enable, disable, remove;
};
static const struct field BATCH_FIELDS[] = {
    {"add", FIELD_ARRAY, offsetof(struct batch_body, add), 0, 0, BATCH_MAX, NULL, NULL},
    {"enable", FIELD_STRINGS, offsetof(struct batch_body, enable), 0, 0, BATCH_MAX, NULL, NULL},
    {"disable", FIELD_STRINGS, offsetof(struct batch_body, disable), 0, 0, BATCH_MAX, NULL, NULL},
    {"remove", FIELD_STRINGS, offsetof(struct batch_body, remove), 0, 0, BATCH_MAX, NULL, NULL},
    FIELDS_END};
const struct shape SITE_BATCH_BODY = {BATCH_FIELDS, sizeof(struct batch_body), NULL};

struct batch_query {
    bool dry_run;
    char *confirm;
};
static const struct field BATCH_QUERY_FIELDS[] = {
    {"dry_run", FIELD_BOOL, offsetof(struct batch_query, dry_run), 0, 0, 0, NULL, NULL},
    {"confirm", FIELD_STRING, offsetof(struct batch_query, confirm), 0, 1, CONFIRM_MAX, NULL, NULL},
    FIELDS_END};
const struct shape BATCH_QUERY = {BATCH_QUERY_FIELDS, sizeof(struct batch_query), NULL};

/* ---- A typed list -----------------------------------------------------------------------------
 */

struct preview {
    struct db *db;
    enum site_list list;
    const struct hostset *set; /* what is allowed already, by this list and those it is added to */
    json_t *sites, *errors;
};

/* "example.com:443", "*.example.com:80": all that RULE lets through, a text each. */
static json_t *matches_json(const struct host_rule *rule)
{
    static const uint16_t BOTH[] = {443, 80};
    struct host_rule one = *rule;
    char text[HOST_RULE_TEXT_MAX];
    json_t *out = json_array();

    for (size_t below = 0; below < 2; below++) {
        if (below && rule->covers != COVERS_HOST_AND_SUBDOMAINS)
            break;
        if (rule->covers == COVERS_HOST_AND_SUBDOMAINS)
            one.covers = below ? COVERS_SUBDOMAINS : COVERS_HOST;
        for (size_t i = 0; i < (rule->port ? 1U : ARRAY_LEN(BOTH)); i++) {
            one.port = rule->port ? rule->port : BOTH[i];
            host_rule_text(&one, text);
            (void)json_array_append_new(out, json_string(text));
        }
    }
    return out;
}

static json_t *covered_json(const struct host_entry *over)
{
    return over ? json_pack("{s:s, s:s?}", "site", over->text, "site_id", over->rule.id)
                : json_null();
}

/* The row that an add would find there already: {id, enabled}. */
static json_t *there_json(const struct preview *p, const char *host, uint16_t port)
{
    struct site row;

    if (p->list == SITES_SESSION || site_find(p->db, p->list, NULL, host, port, &row) < 0)
        return json_null();
    return json_pack("{s:s, s:b}", "id", row.id, "enabled", row.enabled ? 1 : 0);
}

static json_t *entry_json(const struct preview *p, const struct host_rule *rule, bool wide)
{
    char text[HOST_RULE_TEXT_MAX], host[HOST_MAX + 2], shown[HOST_MAX * 4];

    host_rule_text(rule, text);
    (void)snprintf(host, sizeof host, "%s%s", rule->covers == COVERS_SUBDOMAINS ? "*." : "",
                   rule->host);
    host_rule_unicode(host, shown, sizeof shown);
    return json_pack(
        "{s:s, s:s, s:s, s:o, s:s, s:o, s:b, s:b, s:o, s:o}", "text", text, "host", host,
        "host_unicode", shown, "port", rule->port ? json_integer(rule->port) : json_null(),
        "covers", COVERS_NAMES[rule->covers], "matches", matches_json(rule), "confirm",
        wide ? 1 : 0, "allow_private", rule->allow_private ? 1 : 0, "covered_by",
        covered_json(hostset_covers(p->set, rule)), "there", there_json(p, host, rule->port));
}

static void preview_line(const struct preview *p, const char *line, size_t number)
{
    char room[HOST_MAX], suggestion[HOST_RULE_TEXT_MAX] = "";
    struct host_rule rule = {0};
    struct err err = {0};
    bool wide = false;

    if (site_typed_parse(line, p->list, room, &rule, &wide, suggestion, &err) < 0)
        (void)json_array_append_new(
            p->errors, json_pack("{s:I, s:s, s:s, s:o}", "line", (json_int_t)number, "text", line,
                                 "detail", err.detail, "suggestion",
                                 suggestion[0] ? json_string(suggestion) : json_null()));
    else
        (void)json_array_append_new(p->sites, entry_json(p, &rule, wide));
}

/* One a line; blanks and what follows '#' do not count. */
int sites_preview(struct request *rq)
{
    struct preview_body *in = rq->in;
    struct preview p = {.db = rq->api->d.db,
                        .list = (enum site_list)in->list,
                        .set = sessions_hosts(rq->api->d.sessions, (enum site_list)in->list),
                        .sites = json_array(),
                        .errors = json_array()};
    char *rest = in->text, *line;
    size_t number = 0;

    while ((line = strsep(&rest, "\n"))) {
        number++;
        line[strcspn(line, "#\r")] = '\0';
        line += strspn(line, " \t,");
        for (size_t n = strlen(line); n > 0 && strchr(" \t,", line[n - 1]); n--)
            line[n - 1] = '\0';
        if (*line && json_array_size(p.sites) + json_array_size(p.errors) < BATCH_MAX)
            preview_line(&p, line, number);
    }
    return reply_json(rq, 200, json_pack("{s:o, s:o}", "sites", p.sites, "errors", p.errors));
}

/* ---- A batch ----------------------------------------------------------------------------------
 */

struct batch {
    struct request *rq;
    struct batch_row {
        const char *action; /* of the record */
        struct site before, after;
    } * rows;
    size_t n;
    struct strv wide; /* to be confirmed */
};

static int batch_refused(struct request *rq, const char *list, size_t i)
{
    if (rq->err.pointer[0] == '\0' || rq->err.pointer[0] != '/')
        (void)snprintf(rq->err.pointer, sizeof rq->err.pointer, "/%s/%zu", list, i);
    return -EINVAL;
}

static int batch_add(struct batch *b, const json_t *list)
{
    struct site_body in;
    char pointer[40];
    json_t *item;
    size_t i;
    int r;

    json_array_foreach(list, i, item)
    {
        struct batch_row *row = &b->rows[b->n];
        (void)snprintf(pointer, sizeof pointer, "/add/%zu", i);
        if (!json_is_object(item))
            return request_bad_member(b->rq, pointer, "type", "must be an object");
        r = site_from_json(b->rq, item, pointer, &in, &b->wide, &row->after);
        site_body_done(&in);
        if (r < 0)
            return batch_refused(b->rq, "add", i);
        row->action = "site.added";
        b->n++;
    }
    return 0;
}

static int batch_each(struct batch *b, const struct strv *ids, const char *list, int enable)
{
    char pointer[40];

    for (size_t i = 0; i < ids->n; i++) {
        struct batch_row *row = &b->rows[b->n];
        if (site_get(b->rq->api->d.db, ids->items[i], &row->before) < 0 ||
            row->before.list == SITES_SESSION ||
            (enable < 0 && strcmp(row->before.source, "catalogue") == 0)) {
            (void)snprintf(pointer, sizeof pointer, "/%s/%zu", list, i);
            return request_bad_member(b->rq, pointer, "format",
                                      "there is no such site, or it cannot be removed");
        }
        row->after = row->before;
        row->after.enabled = enable > 0;
        row->after.rev++;
        row->action = enable < 0 ? "site.removed" : "site.changed";
        b->n++;
    }
    return 0;
}

static int batch_apply(struct batch *b)
{
    int r = 0;

    for (size_t i = 0; i < b->n && r >= 0; i++) {
        struct batch_row *row = &b->rows[i];
        bool goes = strcmp(row->action, "site.removed") == 0;
        bool comes = strcmp(row->action, "site.added") == 0;
        r = goes ? site_delete(b->rq->api->d.db, row->before.id)
                 : site_put(b->rq->api->d.db, &row->after);
        if (r >= 0)
            r = site_record(b->rq, row->action, comes ? NULL : &row->before,
                            goes ? NULL : &row->after);
    }
    if (r == -EEXIST)
        return request_refuse(b->rq, "exists", NULL, "a site is named twice");
    return r;
}

static json_t *batch_json(const struct batch *b, bool dry)
{
    json_t *items = json_array();

    for (size_t i = 0; i < b->n; i++)
        (void)json_array_append_new(items, json_pack("{s:s, s:o}", "change",
                                                     strchr(b->rows[i].action, '.') + 1, "site",
                                                     site_to_json(&b->rows[i].after)));
    return json_pack("{s:b, s:o, s:o*}", "dry_run", dry ? 1 : 0, "items", items, "sessions",
                     dry ? sessions_alive_ids(b->rq) : NULL);
}

/* Two of one batch that name the same are found before anything is written. */
static int batch_twice(const struct batch *b)
{
    for (size_t i = 0; i < b->n; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(b->rows[i].after.id, b->rows[k].after.id) == 0 ||
                (b->rows[i].after.list == b->rows[k].after.list &&
                 b->rows[i].after.port == b->rows[k].after.port &&
                 strcmp(b->rows[i].after.host, b->rows[k].after.host) == 0))
                return request_refuse(b->rq, "exists", NULL, "%s is named twice",
                                      b->rows[i].after.host);
    return 0;
}

int sites_batch(struct request *rq)
{
    const struct batch_body *in = rq->in;
    const struct batch_query *q = rq->args;
    struct batch b = {.rq = rq};
    size_t n = json_array_size(in->add) + in->enable.n + in->disable.n + in->remove.n;
    int r;

    if (n > BATCH_MAX)
        return request_refuse(rq, "too_many", NULL, "more than %d sites in one batch", BATCH_MAX);
    b.rows = calloc(n + 1, sizeof *b.rows);
    if (!b.rows)
        return -ENOMEM;
    if ((r = batch_add(&b, in->add)) >= 0 && (r = batch_each(&b, &in->enable, "enable", 1)) >= 0 &&
        (r = batch_each(&b, &in->disable, "disable", 0)) >= 0 &&
        (r = batch_each(&b, &in->remove, "remove", -1)) >= 0 && (r = batch_twice(&b)) >= 0 &&
        (r = sites_fit(rq, (int64_t)json_array_size(in->add) - (int64_t)in->remove.n)) >= 0 &&
        (r = sites_confirm(rq, &b.wide)) >= 0 && !q->dry_run)
        r = batch_apply(&b);
    if (r >= 0 && !q->dry_run)
        sessions_sites_changed(rq->api->d.sessions);
    r = r < 0 ? r : reply_json(rq, 200, batch_json(&b, q->dry_run));
    strv_done(&b.wide);
    free(b.rows);
    return r;
}
