/* Who answers web searches: brave, tavily and duckduckgo, and what each is asked. */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include "wire/fetch.h"
#include <stdbool.h>
#include <stddef.h>

struct search_provider {
    const char *id;   /* as in the setting web.search_provider */
    const char *host; /* the one host that is asked, on 443 */
    bool needs_key;
    enum fetch_form form;
};
/* The table; ended by a row without id. */
extern const struct search_provider SEARCH_PROVIDERS[];
const struct search_provider *search_provider_find(const char *id); /* NULL when unknown */
/* Fills url, headers, body, form and n_results of RET for QUERY (UTF-8) and COUNT results. KEY is
 * NULL where none is needed; it goes into a header. -ENOMEM. */
int search_order(const struct search_provider *p, const char *key, const char *query,
                 unsigned count, struct fetch_order *ret);
