/* Wildcards: pattern, NUL, path. Expansion stays bounded; what matches also may be led to. */
#include "runner/ignore.h"
#include "runner/pattern.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* No empty component, as pattern.h asks. */
static bool is_relative_path(const char *path)
{
    size_t n = strlen(path);
    return n > 0 && path[0] != '/' && path[n - 1] != '/' && !strstr(path, "//");
}

/* A path that matches is found: each folder above it may lead there. */
static void check_leads(const char *pattern, char *path)
{
    for (char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        bool may_lead = slash == path || pattern_may_lead(pattern, path);
        *slash = '/';
        if (!may_lead)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = memchr(data, 0, size);
    if (!nul || size > 4096)
        return 0;
    size_t n = (size_t)(nul - data);
    char *pattern = strndup((const char *)data, n);
    char *path = strndup((const char *)nul + 1, size - n - 1);
    struct strv all = {0};
    struct ignore ig = {0};
    if (pattern_expand(pattern, &all) == 0 && (all.n == 0 || all.n > PATTERN_ALTERNATIVES_MAX))
        abort();
    for (size_t i = 0; i < all.n; i++)
        if (is_relative_path(path) && pattern_match(all.items[i], path))
            check_leads(all.items[i], path);
    ignore_parse(&ig, "", pattern, n);
    (void)ignore_has(&ig, path, false);
    ignore_done(&ig);
    strv_done(&all);
    free(pattern);
    free(path);
    return 0;
}
