/* Runs in: daemon. Reads: hostile. May block: no. */
#include "api/route.h"
#include "api/problem.h"
#include "api/state.h"
#include "api/target.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "store/records.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define KEY_MAX  128
#define RETRY_MS 1000 /* a daemon that stops: another may be there then */

static const struct field NO_FIELDS[] = {FIELDS_END};
const struct shape NO_MEMBERS = {NO_FIELDS, 1, NULL};

int not_in_this_version(const json_t *value, char *ret_why, size_t n)
{
    (void)value;
    (void)snprintf(ret_why, n, "not in this version");
    return -EINVAL;
}

/* ---- 3. Route ---------------------------------------------------------------------------------
 */

/* The methods of a path, as Allow lists them; false when there is none. */
static bool allow_text(const struct segments *s, struct str *ret)
{
    for (const struct route *r = ROUTES; r->path; r++) {
        if (!target_matches(r->path, s))
            continue;
        (void)str_printf(ret, "%s%s%s", ret->len ? ", " : "", METHOD_NAMES[r->method],
                         r->method == METHOD_GET ? ", HEAD" : "");
    }
    if (ret->len == 0)
        return false;
    (void)str_puts(ret, ", OPTIONS");
    return true;
}

static int params_take(struct request *rq, struct segments *s)
{
    const char *at = rq->route->path;

    for (unsigned i = 0; i < s->n; i++) {
        at = strchr(at, '/') + 1;
        if (*at == '{' && rq->n_params < REQUEST_PARAMS)
            rq->params[rq->n_params++] = TAKE(s->items[i]);
    }
    return 0;
}

static bool is_other_version(const struct segments *s)
{
    uint64_t version;

    return s->n > 0 && s->items[0][0] == 'v' &&
           parse_u64(s->items[0] + 1, 0, 1000000, &version) == 0 && version != 1;
}

static int path_unknown(struct request *rq, const struct segments *s)
{
    CLEANUP(str_done) struct str allow = {0};

    if (is_other_version(s))
        return request_refuse(rq, "version_unknown", NULL, "this daemon speaks /v1");
    if (!allow_text(s, &allow))
        return request_not_found(rq, "path");
    (void)reply_header(rq, "Allow", "%s", str_c(&allow));
    if (rq->method == METHOD_OPTIONS)
        return reply_empty(rq);
    return request_refuse(rq, "method_not_allowed", NULL, "allowed here: %s", str_c(&allow));
}

static int route_find(struct request *rq)
{
    CLEANUP(segments_done) struct segments s = {0};

    if (target_segments(rq->path, &s) < 0)
        return request_not_found(rq, "path");
    for (const struct route *r = ROUTES; r->path; r++) {
        if (r->method != rq->method || !target_matches(r->path, &s))
            continue;
        rq->route = r;
        return params_take(rq, &s);
    }
    return path_unknown(rq, &s);
}

/* ---- 6. Type, size, query ---------------------------------------------------------------------
 */

static bool is_type(const char *given, const char *wanted)
{
    size_t n = strlen(wanted);

    if (!given || strncasecmp(given, wanted, n) != 0)
        return false;
    given += n + strspn(given + n, " \t");
    if (*given == ';') {
        given += 1 + strspn(given + 1, " \t");
        return strcasecmp(given, "charset=utf-8") == 0 ||
               strcasecmp(given, "charset=\"utf-8\"") == 0;
    }
    return *given == '\0';
}

static int body_type(struct request *rq)
{
    const struct route *route = rq->route;
    const char *wanted = route->flags & ROUTE_MERGE   ? "application/merge-patch+json"
                         : route->flags & ROUTE_BYTES ? "application/octet-stream"
                                                      : "application/json";

    if (route->flags & ROUTE_UPLOAD)
        return 0;
    if (rq->head.n_content_type <= 1 && is_type(rq->head.content_type, wanted))
        return 0;
    return request_refuse(rq, "content_type", NULL, "the body must be %s", wanted);
}

static int body_allowed(struct request *rq)
{
    const struct head *h = &rq->head;
    const struct route *route = rq->route;
    bool has_body = h->length > 0 || h->is_chunked;

    rq->body_max = route->body_max;
    rq->wants_upload = route->flags & ROUTE_UPLOAD;
    if (has_body && route->body_max == 0)
        return request_refuse(rq, "body_too_large", NULL, "this route takes no body");
    if (has_body || (route->body_max > 0 &&
                     !(route->flags & (ROUTE_BODY_OPTIONAL | ROUTE_BYTES | ROUTE_UPLOAD)))) {
        int r = body_type(rq);
        if (r < 0)
            return r;
    }
    if (h->length > route->body_max)
        return request_refuse(rq, "body_too_large", NULL,
                              "the body has %llu bytes, at most %llu are taken",
                              (unsigned long long)h->length, (unsigned long long)route->body_max);
    return 0;
}

/* A query member as the JSON that its row wants; what does not fit stays a string and is refused.
 */
static json_t *query_value(const struct field *row, const char *text)
{
    uint64_t n;

    if (row && row->type == FIELD_INT && parse_u64(text, 0, INT64_MAX, &n) == 0)
        return json_integer((json_int_t)n);
    if (row && row->type == FIELD_BOOL && text[0] && !text[1] && (*text == '0' || *text == '1'))
        return json_boolean(*text == '1');
    return json_string(text);
}

static const struct field *field_find(const struct field *table, const char *name)
{
    for (const struct field *f = table; f && f->name; f++)
        if (strcmp(f->name, name) == 0)
            return f;
    return NULL;
}

static void *shape_new(const struct shape *shape)
{
    void *out = calloc(1, shape->size);

    if (out && shape->defaults)
        memcpy(out, shape->defaults, shape->size);
    return out;
}

static int fields_refused(struct request *rq, const char *code)
{
    const json_t *first = json_array_get(rq->errors.list, 0);
    const char *pointer = json_string_value(json_object_get(first, "pointer"));
    const char *detail = json_string_value(json_object_get(first, "detail"));

    return err_member(&rq->err, -EINVAL, code, pointer ? pointer : "", "%s%s%s",
                      pointer ? pointer : "", pointer && *pointer ? ": " : "",
                      detail ? detail : "");
}

static int query_parse(struct request *rq)
{
    const struct shape *shape = rq->route->query ? rq->route->query : &NO_MEMBERS;
    json_t *members = json_object();
    int r;

    rq->args = shape_new(shape);
    if (!rq->args || !members) {
        json_decref(members);
        return -ENOMEM;
    }
    for (unsigned i = 0; i < rq->n_query; i++) {
        const struct query_member *m = &rq->query[i];
        (void)json_object_set_new(members, m->name,
                                  query_value(field_find(shape->fields, m->name), m->value));
    }
    r = fields_parse(shape->fields, members, "", rq->args, &rq->errors);
    json_decref(members);
    return r < 0 ? fields_refused(rq, "query_invalid") : 0;
}

/* ---- The head: steps 1 to 5, and what of 6 needs no body --------------------------------------
 */

#define ONE_LENGTH "Send one Content-Length, or Transfer-Encoding: chunked."

static int head_framing(struct request *rq)
{
    const struct head *h = &rq->head;

    if (h->bytes > API_HEAD_MAX) {
        rq->reply.must_close = true;
        return request_refuse(rq, "headers_too_large", NULL, "the head has more than %d bytes",
                              API_HEAD_MAX);
    }
    rq->reply.must_close = true;
    if (h->has_length && h->transfer)
        return request_refuse(rq, "json_invalid", ONE_LENGTH,
                              "Content-Length and Transfer-Encoding exclude each other");
    if (h->n_content_length > 1 || h->has_bad_length)
        return request_refuse(rq, "json_invalid", ONE_LENGTH,
                              "the length of the body is given twice, or is no number");
    if (h->n_transfer > 1 || (h->transfer && strcasecmp(h->transfer, "chunked") != 0))
        return request_refuse(rq, "json_invalid", ONE_LENGTH,
                              "a transfer coding other than chunked");
    rq->reply.must_close = false;
    return 0;
}

/* As it came: a first segment that is encoded may be any of them. */
static bool is_api_path(const char *path)
{
    size_t first = path[0] == '/' ? 1 + strcspn(path + 1, "/") : 0;

    return strcmp(path, "/v1") == 0 || str_starts(path, "/v1/") || strcmp(path, "/mcp") == 0 ||
           str_starts(path, "/mcp/") || memchr(path, '%', first);
}

static int head_check(struct request *rq)
{
    struct auth *auth = rq->api->auth;
    int r, split;

    /* A query that cannot be taken apart is told of only after all that comes before it. */
    split = target_split(rq);
    if (split == -ENOMEM)
        return split;
    err_clear(&rq->err);
    if ((r = head_framing(rq)) < 0 || (r = auth_host(auth, rq)) < 0)
        return r;
    if ((is_api_path(rq->path) || str_starts(rq->path, "/v")) && (r = auth_origin(auth, rq)) < 0)
        return r;
    if ((r = route_find(rq)) < 0 || rq->reply.status)
        return r;
    if ((r = auth_caller(auth, rq)) < 0 || (r = auth_scope(rq)) < 0)
        return r;
    if (rq->api->shutting_down) {
        request_extra(rq, "retry_after_ms", json_integer(RETRY_MS));
        return request_refuse(rq, "shutting_down", NULL, "the daemon is stopping");
    }
    if ((r = body_allowed(rq)) < 0)
        return r;
    return split < 0 ? fields_refused(rq, "query_invalid") : query_parse(rq);
}

void route_head(struct request *rq)
{
    int r;

    if (err_is_set(&rq->err)) /* http.c refused it already */
        return;
    r = head_check(rq);
    if (r < 0 && !err_is_set(&rq->err))
        (void)err_set(&rq->err, r, "internal", NULL, "%s", strerror(-r));
}

/* ---- The body: the rest of 6, and 7 -----------------------------------------------------------
 */

static int body_parse(struct request *rq)
{
    const struct shape *shape = rq->route->body;
    int r;

    if (rq->route->body_max == 0 || rq->route->flags & (ROUTE_BYTES | ROUTE_UPLOAD))
        return 0;
    rq->json = rq->body.len == 0 && (rq->route->flags & ROUTE_BODY_OPTIONAL)
                   ? json_object()
                   : json_strict_parse(str_c(&rq->body), rq->body.len, &rq->err);
    if (!rq->json) {
        if (rq->err.pointer[0])
            field_errors_add(&rq->errors, rq->err.pointer, "duplicate", "%s", rq->err.detail);
        return -EINVAL;
    }
    if (!json_is_object(rq->json))
        return request_bad_member(rq, "", "type", "the body must be an object");
    if (!shape)
        return 0;
    rq->in = shape_new(shape);
    if (!rq->in)
        return -ENOMEM;
    r = fields_parse(shape->fields, rq->json, "", rq->in, &rq->errors);
    return r < 0 ? fields_refused(rq, "body_invalid") : 0;
}

static bool is_key(const char *key)
{
    size_t n = strlen(key);

    for (size_t i = 0; i < n; i++)
        if (key[i] < 0x21 || key[i] > 0x7e)
            return false;
    return n > 0 && n <= KEY_MAX;
}

static const char *key_owner(const struct request *rq)
{
    return rq->caller.actor.id[0] ? rq->caller.actor.id : "owner";
}

static const char *key_of(const struct request *rq)
{
    return rq->route && (rq->route->flags & ROUTE_KEY) ? rq->head.idempotency_key : NULL;
}

static void key_same(struct request *other, void *arg)
{
    struct request *rq = arg;

    if (other != rq && key_of(other) && strcmp(key_of(other), key_of(rq)) == 0 &&
        strcmp(other->path, rq->path) == 0 && strcmp(key_owner(other), key_owner(rq)) == 0)
        (void)request_refuse(rq, "key_reused", "Wait for the first answer, then send it again.",
                             "the first request with this key is still being answered");
}

/* What the first answer had beside its body. */
static void key_headers(struct request *rq)
{
    const char *id = json_string_value(json_object_get(rq->reply.json, "id"));
    const json_t *rev = json_object_get(rq->reply.json, "rev");

    if (id && rq->reply.status == 201)
        (void)reply_header(rq, "Location", "%s/%s", rq->path, id);
    if (rev)
        (void)reply_header(rq, "ETag", "\"%lld\"", (long long)json_integer_value(rev));
}

/* 1 when the first answer was given again. */
static int key_lookup(struct request *rq)
{
    CLEANUP(freep) char *body = NULL;
    int status = 0, r;

    if (!key_of(rq))
        return 0;
    if (!is_key(key_of(rq)))
        return request_bad_query(rq, "Idempotency-Key", "format",
                                 "a key is 1 to 128 printable ASCII characters");
    hash_sha256_hex(str_c(&rq->body), rq->body.len, rq->idempotency_hash);
    r = idempotency_get(rq->api->d.db, key_owner(rq), rq->path, key_of(rq), rq->idempotency_hash,
                        &status, &body);
    if (r == -EEXIST)
        return request_refuse(rq, "key_reused", NULL, "this key came with another body before");
    if (r == 1) {
        (void)reply_json(rq, status, json_loads(body, 0, NULL));
        key_headers(rq);
        rq->idempotency_hash[0] = '\0';
        return 1;
    }
    http_each(rq->api->http, key_same, rq);
    return err_is_set(&rq->err) ? -EINVAL : 0;
}

static void key_keep(struct request *rq)
{
    CLEANUP(freep) char *body = NULL;

    if (!rq->idempotency_hash[0] || rq->reply.status >= 300 || !rq->reply.json)
        return;
    body = json_dumps(rq->reply.json, JSON_COMPACT);
    if (!body || idempotency_put(rq->api->d.db, key_owner(rq), rq->path, key_of(rq),
                                 rq->idempotency_hash, rq->reply.status, body) < 0)
        log_warn("api.key_lost", "request=%s", rq->id);
}

static int body_run(struct request *rq)
{
    int r = body_parse(rq);

    if (r < 0)
        return r;
    if ((rq->route->flags & ROUTE_IF_MATCH) && !rq->head.if_match)
        return request_refuse(rq, "if_match_required", NULL, "the request has no If-Match");
    r = key_lookup(rq);
    if (r != 0)
        return r < 0 ? r : 0;
    return rq->route->handler(rq);
}

/* What happened before goes into a group of its own: it neither fails this request nor with it. */
void route_run(struct request *rq)
{
    (void)db_commit(rq->api->d.db);
    int r = body_run(rq);

    if (r < 0 && !err_is_set(&rq->err))
        (void)err_set(&rq->err, r, r == -ENOSPC ? "disk_full" : "internal", NULL, "%s",
                      strerror(-r));
}

/* Nothing is told before it is written: an answer whose records cannot be kept becomes 507. What a
 * parked request waited for was begun in a group before, or has happened by itself (store/owed.h):
 * then the answer holds, and only the key may be forgotten. */
void route_leaving(struct request *rq)
{
    int r;

    if (rq->was_parked)
        (void)db_commit(rq->api->d.db);
    if (!err_is_set(&rq->err) && rq->reply.status)
        key_keep(rq);
    r = db_commit(rq->api->d.db);
    if (r < 0 && !rq->was_parked) {
        err_clear(&rq->err);
        (void)err_set(&rq->err, r, "disk_full", NULL, "the records could not be written: %s",
                      strerror(-r));
    }
    if (!err_is_set(&rq->err) && !rq->reply.status)
        (void)err_set(&rq->err, -EINVAL, "internal", NULL, "no answer was made");
    if (err_is_set(&rq->err))
        problem_reply(rq);
}

void route_done(struct request *rq)
{
    if (rq->in)
        fields_done(rq->route->body->fields, rq->in);
    if (rq->args && rq->route->query)
        fields_done(rq->route->query->fields, rq->args);
    free(rq->in);
    free(rq->args);
}

/* ---- GET /v1/routes ---------------------------------------------------------------------------
 */

static json_t *access_json(unsigned access)
{
    if (access & ACCESS_NO_TOKEN)
        return json_null();
    if (access & ACCESS_ANY_TOKEN)
        return json_string("any");
    for (size_t i = 0; SCOPE_ROWS[i].name; i++)
        if (SCOPE_ROWS[i].scope == (access & SCOPES_ALL))
            return json_string(SCOPE_ROWS[i].name);
    return json_string("nobody");
}

int routes_show(struct request *rq)
{
    json_t *items = json_array();

    for (const struct route *r = ROUTES; r->path; r++)
        (void)json_array_append_new(
            items,
            json_pack("{s:s, s:s, s:o, s:b, s:b, s:b, s:I, s:s}", "method", METHOD_NAMES[r->method],
                      "path", r->path, "scope", access_json(r->access), "socket_only",
                      (r->access & ACCESS_SOCKET) != 0, "idempotency_key",
                      (r->flags & ROUTE_KEY) != 0, "if_match", (r->flags & ROUTE_IF_MATCH) != 0,
                      "body_max_bytes", (json_int_t)r->body_max, "summary", r->summary));
    return reply_items(rq, items, NULL);
}
