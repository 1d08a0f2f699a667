/* Runs in: daemon. Reads: trusted (checked by the router). May block: no.
 *
 * The keys of search providers: they come in, and never go out. */
#include "api/handlers.h"
#include "api/state.h"
#include "session/search.h"
#include "store/events.h"
#include "store/web_keys.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

struct key_body {
    char *key;
};

/* It goes into a field line as it is. */
static int check_key(const json_t *value, char *ret_why, size_t n)
{
    for (const char *at = json_string_value(value); at && *at; at++)
        if (*at <= ' ' || *at > '~') {
            (void)snprintf(ret_why, n, "letters, digits and signs of ASCII, without spaces");
            return -EINVAL;
        }
    return 0;
}
static const struct field KEY_FIELDS[] = {
    {"key", FIELD_STRING, offsetof(struct key_body, key), 0, 1, WEB_KEY_MAX, NULL, check_key},
    FIELDS_END};
const struct shape WEB_KEY_BODY = {KEY_FIELDS, sizeof(struct key_body), NULL};

/* Does a site of this machine open the host that it is asked at? */
static bool is_listed(struct request *rq, const struct search_provider *p)
{
    json_t *verdict = sessions_site_check(rq->api->d.sessions, NULL, p->host, 443);
    const char *text = json_string_value(json_object_get(verdict, "verdict"));
    bool listed = text && strcmp(text, "allow") == 0;

    json_decref(verdict);
    return listed;
}

static json_t *provider_json(struct request *rq, const struct search_provider *p)
{
    return json_pack("{s:s, s:b, s:b}", "id", p->id, "key_set",
                     web_key_get(rq->api->d.db, p->id, NULL) > 0, "site_listed", is_listed(rq, p));
}

static int provider_of_path(struct request *rq, const struct search_provider **ret)
{
    *ret = search_provider_find(rq->params[0]);
    return *ret ? 0 : request_not_found(rq, "search provider");
}

static int record(struct request *rq, const char *action, const struct search_provider *p)
{
    char target[40];

    (void)snprintf(target, sizeof target, "web/%s", p->id);
    events_emit(rq->api->d.db, &(struct event){EVENT_CREDENTIAL, EVENT_UPDATED, target, NULL,
                                               clock_wall_ms(), NULL, NULL});
    return api_record(rq, action, target, NULL, NULL);
}

int web_providers_show(struct request *rq)
{
    json_t *items = json_array();

    for (const struct search_provider *p = SEARCH_PROVIDERS; p->id; p++)
        (void)json_array_append_new(items, provider_json(rq, p));
    return reply_items(rq, items, NULL);
}

int web_provider_put(struct request *rq)
{
    const struct key_body *in = rq->in;
    const struct search_provider *p;
    int r = provider_of_path(rq, &p);

    if (r < 0)
        return r;
    if (p->needs_key != (in->key != NULL))
        return request_bad_member(rq, "/key", p->needs_key ? "missing" : "conflict",
                                  p->needs_key ? "%s is asked with a key" : "%s takes no key",
                                  p->id);
    if (in->key) {
        r = web_key_put(rq->api->d.db, p->id, in->key);
        explicit_bzero(in->key, strlen(in->key));
        if (r < 0 || (r = record(rq, "credential.added", p)) < 0)
            return r;
    }
    return reply_json(rq, 200, provider_json(rq, p));
}

int web_provider_remove(struct request *rq)
{
    const struct search_provider *p;
    int r = provider_of_path(rq, &p);

    if (r < 0)
        return r;
    r = web_key_delete(rq->api->d.db, p->id);
    if (r == -ENOENT)
        return request_not_found(rq, "key of this provider");
    if (r < 0 || (r = record(rq, "credential.removed", p)) < 0)
        return r;
    return reply_empty(rq);
}
