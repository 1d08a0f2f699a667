/* Runs in: daemon. Reads: trusted (checked by the router). May block: no. */
#include "api/handlers.h"
#include "api/state.h"
#include "base/clock.h"
#include "base/mem.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- Shapes -----------------------------------------------------------------------------------
 */

struct list_query {
    struct page page;
};
static const struct field LIST_FIELDS[] = {PAGE_FIELDS(list_query), FIELDS_END};
static const struct list_query LIST_DEFAULTS = {.page.limit = PAGE_DEFAULT};
const struct shape LIST_QUERY = {LIST_FIELDS, sizeof(struct list_query), &LIST_DEFAULTS};

struct exchange_body {
    char *code;
};
static const struct field EXCHANGE_FIELDS[] = {{"code", FIELD_STRING,
                                                offsetof(struct exchange_body, code),
                                                FIELD_MANDATORY, 1, 64, NULL, NULL},
                                               FIELDS_END};
const struct shape EXCHANGE_BODY = {EXCHANGE_FIELDS, sizeof(struct exchange_body), NULL};

struct token_body {
    char *name, *session_id, *expires_at;
    struct strv scopes;
};
static const struct field TOKEN_FIELDS[] = {
    {"name", FIELD_STRING, offsetof(struct token_body, name), FIELD_MANDATORY, 1, 100, NULL, NULL},
    {"scopes", FIELD_STRINGS, offsetof(struct token_body, scopes), FIELD_MANDATORY, 1, 8, NULL,
     NULL},
    {"session_id", FIELD_STRING, offsetof(struct token_body, session_id), FIELD_NULLABLE, 1, 30,
     NULL, NULL},
    {"expires_at", FIELD_STRING, offsetof(struct token_body, expires_at), FIELD_NULLABLE, 1, 40,
     NULL, NULL},
    FIELDS_END};
const struct shape TOKEN_BODY = {TOKEN_FIELDS, sizeof(struct token_body), NULL};

/* ---- Rendering --------------------------------------------------------------------------------
 */

static json_t *text_or_null(const char *text)
{
    return text[0] ? json_string(text) : json_null();
}

/* ---- Browsers ---------------------------------------------------------------------------------
 */

int code_create(struct request *rq)
{
    struct api_state *st = rq->api;
    char code[AUTH_CODE_TEXT], url[96];
    int64_t expires_at;
    int r;

    r = auth_code_new(st->auth, code, &expires_at);
    if (r < 0)
        return r;
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u/ui/#c=%s", st->port, code);
    return reply_json(rq, 201,
                      json_pack("{s:s, s:s, s:o}", "code", code, "url", url, "expires_at",
                                time_json(expires_at)));
}

int code_exchange(struct request *rq)
{
    const struct exchange_body *in = rq->in;
    struct token t = {.kind = TOKEN_BROWSER, .name = "browser", .scopes = SCOPES_ALL};
    char text[TOKEN_TEXT_MAX];
    json_t *answer;
    int r = auth_code_take(rq->api->auth, rq, in->code);

    if (r < 0)
        return r;
    t.expires_at = clock_wall_ms() + AUTH_BROWSER_MS;
    r = token_new(rq->api->d.db, &t, text);
    if (r < 0)
        return r;
    rq->caller.actor.kind = ACTOR_BROWSER;
    (void)snprintf(rq->caller.actor.id, sizeof rq->caller.actor.id, "%s", t.id);
    r = api_record(rq, "auth.signed_in", t.id, NULL, NULL);
    answer = json_pack("{s:s, s:o, s:o}", "token", text, "scopes", scopes_json(t.scopes),
                       "expires_at", time_json(t.expires_at));
    explicit_bzero(text, sizeof text);
    if (r < 0) {
        json_decref(answer);
        return r;
    }
    return reply_json(rq, 200, answer);
}

int self_show(struct request *rq)
{
    const struct caller *c = &rq->caller;

    return reply_json(rq, 200,
                      json_pack("{s:s, s:o, s:o, s:o, s:o}", "kind", ACTOR_NAMES[c->actor.kind],
                                "id", text_or_null(c->actor.id), "scopes", scopes_json(c->scopes),
                                "session_id", text_or_null(c->session_id), "expires_at",
                                time_json(c->expires_at)));
}

/* Gone with all its streams. */
static int token_revoke(struct request *rq, const char *id)
{
    int r = token_delete(rq->api->d.db, id);

    if (r < 0)
        return r == -ENOENT ? request_not_found(rq, "token") : r;
    r = api_record(rq, "token.revoked", id, NULL, NULL);
    if (r < 0)
        return r;
    http_end_all(rq->api->http, id, "token_invalid");
    return reply_empty(rq);
}

int self_delete(struct request *rq)
{
    if (rq->caller.actor.id[0] == '\0')
        return request_refuse(rq, "scope_missing", "Replace the token's file and restart.",
                              "the owner's token cannot be revoked");
    return token_revoke(rq, rq->caller.actor.id);
}

/* ---- Lists of tokens --------------------------------------------------------------------------
 */

/* Items behind the cursor's id, newest first; at most the page. */
static int tokens_page(struct request *rq, enum token_kind kind)
{
    const struct list_query *q = rq->args;
    json_t *all = NULL, *items = json_array(), *item;
    const char *cursor = NULL;
    size_t i;
    bool more = false;
    int r = tokens_list(rq->api->d.db, kind, &all);

    if (r < 0) {
        json_decref(items);
        return r;
    }
    json_array_foreach(all, i, item)
    {
        const char *id = json_string_value(json_object_get(item, "id"));
        if (q->page.cursor && id && strcmp(id, q->page.cursor) >= 0)
            continue;
        more = json_array_size(items) == (size_t)q->page.limit;
        if (more)
            break;
        (void)json_array_append(items, item);
        cursor = id;
    }
    r = reply_items(rq, items, more ? cursor : NULL);
    json_decref(all);
    return r;
}

int tokens_show(struct request *rq)
{
    return tokens_page(rq, TOKEN_API);
}

int browsers_show(struct request *rq)
{
    return tokens_page(rq, TOKEN_BROWSER);
}

static int kind_remove(struct request *rq, enum token_kind kind, const char *what)
{
    struct token t;

    if (token_get(rq->api->d.db, rq->params[0], &t) < 0 || t.kind != kind)
        return request_not_found(rq, what);
    return token_revoke(rq, t.id);
}

int token_remove(struct request *rq)
{
    return kind_remove(rq, TOKEN_API, "token");
}

int browser_remove(struct request *rq)
{
    return kind_remove(rq, TOKEN_BROWSER, "browser");
}

/* ---- New tokens -------------------------------------------------------------------------------
 */

static int token_scopes(struct request *rq, const struct token_body *in, struct token *t)
{
    for (size_t i = 0; i < in->scopes.n; i++) {
        unsigned found = 0;
        char pointer[32];
        for (size_t k = 0; SCOPE_ROWS[k].name; k++)
            if (strcmp(in->scopes.items[i], SCOPE_ROWS[k].name) == 0)
                found = SCOPE_ROWS[k].scope;
        (void)snprintf(pointer, sizeof pointer, "/scopes/%zu", i);
        if (!found)
            return request_bad_member(rq, pointer, "format", "there is no such scope");
        if (in->session_id && !(found & SCOPES_AGENT))
            return request_bad_member(rq, pointer, "conflict",
                                      "a session's token holds read, exec and ask:create alone");
        t->scopes |= found;
    }
    return 0;
}

static int token_session(struct request *rq, const struct token_body *in, struct token *t)
{
    if (!in->session_id)
        return 0;
    if (!session_find(rq->api->d.sessions, in->session_id))
        return request_bad_member(rq, "/session_id", "format", "there is no such session alive");
    (void)snprintf(t->session_id, sizeof t->session_id, "%s", in->session_id);
    return 0;
}

static int token_expiry(struct request *rq, const struct token_body *in, struct token *t)
{
    if (!in->expires_at)
        return 0;
    if (clock_parse(in->expires_at, &t->expires_at) < 0)
        return request_bad_member(rq, "/expires_at", "format", "not a time of RFC 3339");
    if (t->expires_at <= clock_wall_ms())
        return request_bad_member(rq, "/expires_at", "range", "this time is over");
    return 0;
}

int token_create(struct request *rq)
{
    const struct token_body *in = rq->in;
    struct token t = {.kind = TOKEN_API};
    char text[TOKEN_TEXT_MAX];
    json_t *answer;
    int r;

    if ((r = token_scopes(rq, in, &t)) < 0 || (r = token_session(rq, in, &t)) < 0 ||
        (r = token_expiry(rq, in, &t)) < 0)
        return r;
    (void)snprintf(t.name, sizeof t.name, "%s", in->name);
    r = token_new(rq->api->d.db, &t, text);
    if (r == -E2BIG)
        return request_refuse(rq, "too_many", "Revoke one that is no longer used.",
                              "more than 256 tokens");
    if (r < 0)
        return r;
    r = api_record(rq, "token.created", t.id, NULL, token_to_json(&t)); /* without the secret */
    if (r < 0)
        return r;
    answer = token_to_json(&t);
    (void)json_object_set_new(answer, "token", json_string(text));
    explicit_bzero(text, sizeof text);
    return reply_json(rq, 201, answer);
}
