/* Runs in: daemon. Reads: trusted. May block: no. */
#include "session/search.h"
#include <string.h>

const struct search_provider SEARCH_PROVIDERS[] = {
    {"brave", "api.search.brave.com", true},
    {"tavily", "api.tavily.com", true},
    {"duckduckgo", "html.duckduckgo.com", false},
    {NULL, NULL, false},
};

const struct search_provider *search_provider_find(const char *id)
{
    for (const struct search_provider *p = SEARCH_PROVIDERS; p->id; p++)
        if (strcmp(p->id, id) == 0)
            return p;
    return NULL;
}
