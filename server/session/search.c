/* Runs in: daemon. Reads: trusted. May block: no. */
#include "session/search.h"
#include "base/mem.h"
#include "wire/url.h"
#include <errno.h>
#include <jansson.h>
#include <string.h>

const struct search_provider SEARCH_PROVIDERS[] = {
    {"brave", "api.search.brave.com", true, FETCH_BRAVE},
    {"tavily", "api.tavily.com", true, FETCH_TAVILY},
    {"duckduckgo", "html.duckduckgo.com", false, FETCH_DUCKDUCKGO},
    {NULL, NULL, false, FETCH_RAW},
};

const struct search_provider *search_provider_find(const char *id)
{
    for (const struct search_provider *p = SEARCH_PROVIDERS; p->id; p++)
        if (strcmp(p->id, id) == 0)
            return p;
    return NULL;
}

/* PATH of the provider with the query, and what follows it. */
static int url_make(const struct search_provider *p, const char *path, const char *query,
                    unsigned count, struct fetch_order *ret)
{
    CLEANUP(str_done) struct str url = {0};
    int r = str_printf(&url, "https://%s%s", p->host, path);
    if (r >= 0 && query)
        r = url_put_component(&url, query, strlen(query));
    if (r >= 0 && count > 0)
        r = str_printf(&url, "&count=%u", count);
    if (r >= 0)
        ret->url = TAKE(url.data);
    return r;
}

static int brave(const struct search_provider *p, const char *key, const char *query,
                 unsigned count, struct fetch_order *ret)
{
    int r = url_make(p, "/res/v1/web/search?q=", query, count, ret);
    if (r >= 0)
        r = strv_add(&ret->headers, "Accept: application/json");
    return r < 0 ? r : strv_addf(&ret->headers, "X-Subscription-Token: %s", key);
}

static int tavily(const struct search_provider *p, const char *key, const char *query,
                  unsigned count, struct fetch_order *ret)
{
    json_t *doc = json_pack("{s:s, s:i}", "query", query, "max_results", (int)count);
    ret->body = doc ? json_dumps(doc, JSON_COMPACT) : NULL;
    json_decref(doc);
    int r = ret->body ? url_make(p, "/search", NULL, 0, ret) : -ENOMEM;
    if (r >= 0)
        r = strv_add(&ret->headers, "Content-Type: application/json");
    return r < 0 ? r : strv_addf(&ret->headers, "Authorization: Bearer %s", key);
}

int search_order(const struct search_provider *p, const char *key, const char *query,
                 unsigned count, struct fetch_order *ret)
{
    ret->form = (uint8_t)p->form;
    ret->n_results = count;
    if (p->form == FETCH_BRAVE)
        return brave(p, key, query, count, ret);
    if (p->form == FETCH_TAVILY)
        return tavily(p, key, query, count, ret);
    return url_make(p, "/html/?q=", query, 0, ret);
}
