/* Who answers web searches: brave, tavily and duckduckgo, and what each is asked. */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include <stdbool.h>
#include <stddef.h>

struct search_provider {
    const char *id;   /* as in the setting web.search_provider */
    const char *host; /* the one host that is asked, on 443 */
    bool needs_key;
};
/* The table; ended by a row without id. */
extern const struct search_provider SEARCH_PROVIDERS[];
const struct search_provider *search_provider_find(const char *id); /* NULL when unknown */
