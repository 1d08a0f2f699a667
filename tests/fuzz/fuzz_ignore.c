/* runner/ignore: an ignore file's text, a NUL, a path that is asked about. */
#include "runner/ignore.h"
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ignore ig = {0};
    const uint8_t *nul = size > 0 ? memchr(data, '\0', size) : NULL;
    if (!nul)
        return 0;
    char *path = strndup((const char *)nul + 1, size - (size_t)(nul + 1 - data));
    ignore_parse(&ig, "/w", (const char *)data, (size_t)(nul - data));
    assert(ig.n <= IGNORE_RULES_MAX);
    char full[600] = "/w/";
    if (path && *path && *path != '/' && strlen(path) < 500) {
        strcat(full, path);
        (void)ignore_has(&ig, full, false);
        (void)ignore_has(&ig, full, true);
    }
    ignore_forget(&ig, 0);
    assert(ig.n == 0 && !ignore_has(&ig, "/w/x", false));
    ignore_done(&ig);
    free(path);
    return 0;
}
