/* Runs in: daemon. Reads: hostile (what a server sent, by way of cordon-fetch). May block: no. */
#include "base/mem.h"
#include "session/web_parts.h"
#include "store/events.h"
#include "store/owed.h"
#include <string.h>

#define TARGET_MAX 2048

/* They run outside the wall, whatever stands around the session's commands. */
json_t *web_enforcement(const struct session *s)
{
    return json_pack("{s:s, s:s, s:s}", "provider", PROVIDER_NAMES[PROVIDER_DIRECT], "tier",
                     TIER_NAMES[s->tier], "level", LEVEL_NAMES[LEVEL_NONE]);
}

static json_t *texts(const struct strv *v)
{
    json_t *out = json_array();
    for (size_t i = 0; i < v->n; i++)
        (void)json_array_append_new(out, json_string(v->items[i]));
    return out;
}

static json_t *page(const struct web_call *c, bool is_text, bool truncated)
{
    json_t *out = json_pack("{s:s, s:s, s:i, s:s, s:b, s:o, s:s, s:o}", "url", c->url, "final_url",
                            c->hop.url, "status", (int)c->status, "content_type", c->content_type,
                            "truncated", truncated, "redirects", texts(&c->redirects), "site",
                            c->hop.rule, "enforcement", web_enforcement(c->s));
    const char *bytes = str_c(&c->body);
    if (is_text && !memchr(bytes, '\0', c->body.len) && utf8_is_valid(bytes, c->body.len)) {
        (void)json_object_set_new(out, "text", json_stringn(bytes, c->body.len));
        return out;
    }
    CLEANUP(str_done) struct str b64 = {0};
    (void)str_put_base64(&b64, bytes, c->body.len);
    (void)json_object_set_new(out, "b64", json_string(str_c(&b64)));
    return out;
}

void web_answered(struct web_call *c, bool is_text, bool truncated)
{
    json_t *json = c->provider ? json_pack("{s:s, s:O, s:s, s:o}", "provider", c->provider->id,
                                           "results", c->results, "site", c->hop.rule,
                                           "enforcement", web_enforcement(c->s))
                               : page(c, is_text, truncated);
    struct web_answer a = {.status = 200, .json = json};
    web_audit(c, OUTCOME_OK, NULL);
    web_call_over(c, &a);
    json_decref(json);
}

static void put_after(const struct web_call *c, json_t *after, const char *code)
{
    if (code)
        (void)json_object_set_new(after, "code", json_string(code));
    if (c->hop.rule[0])
        (void)json_object_set_new(after, "rule", json_string(c->hop.rule));
    if (c->hop.address[0])
        (void)json_object_set_new(after, "address", json_string(c->hop.address));
    if (c->provider) {
        (void)json_object_set_new(after, "query", json_string(c->query));
        (void)json_object_set_new(after, "results",
                                  json_integer((json_int_t)json_array_size(c->results)));
        return;
    }
    if (c->redirects.n > 0)
        (void)json_object_set_new(after, "redirects", texts(&c->redirects));
    if (c->content_type) {
        (void)json_object_set_new(after, "status", json_integer((json_int_t)c->status));
        (void)json_object_set_new(after, "bytes", json_integer((json_int_t)c->body.len));
    }
}

/* What left is in the record: the URL, or the question. What came is not. */
void web_audit(struct web_call *c, enum outcome outcome, const char *code)
{
    json_t *after = json_object(), *enforcement = web_enforcement(c->s);
    CLEANUP(str_done) struct str target = {0};
    if (c->provider)
        (void)str_printf(&target, "search %s", c->provider->id);
    else
        (void)str_add(&target, c->url, strnlen(c->url, TARGET_MAX));
    put_after(c, after, code);
    struct audit_entry e = {.actor = &c->actor,
                            .action = "web.called",
                            .session_id = c->s->id,
                            .target = str_c(&target),
                            .take_after = after,
                            .outcome = outcome,
                            .enforcement = enforcement};
    owed_audit(c->s->ss->deps.db, &e);
    events_emit(c->s->ss->deps.db, &(struct event){EVENT_WEB, EVENT_CREATED, str_c(&target),
                                                   c->s->id, clock_wall_ms(), enforcement, NULL});
    json_decref(enforcement);
}
