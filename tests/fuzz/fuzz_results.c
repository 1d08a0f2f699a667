/* fetch/results: each result of whatever a provider sends is short, one line, and has a web URL.
 * First byte: the provider. */
#include "base/str.h"
#include "fetch/results.h"
#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void result(const char *title, const char *url, const char *snippet, void *arg)
{
    unsigned *n = arg;
    (*n)++;
    assert(strlen(title) <= FETCH_TITLE_MAX && strlen(snippet) <= FETCH_SNIPPET_MAX);
    assert(strncmp(url, "http://", 7) == 0 || strncmp(url, "https://", 8) == 0);
    assert(utf8_is_valid(title, strlen(title)) && utf8_is_valid(snippet, strlen(snippet)));
    assert(!strpbrk(title, "\r\n\x1b") && !strpbrk(snippet, "\r\n\x1b"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned n = 0;
    if (size < 1)
        return 0;
    int r = results_read((enum fetch_form)(FETCH_BRAVE + data[0] % 3), (const char *)data + 1,
                         size - 1, 5, result, &n);
    assert(r < 0 || ((unsigned)r == n && n <= 5));
    return 0;
}
