/* wire/url: what is taken is canonical, and taking it again changes nothing. */
#include "wire/url.h"
#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct url u = {0}, again = {0};
    struct str text = {0};
    char host[HOST_MAX];
    const char *why = NULL;
    if (url_parse((const char *)data, size, &u, &why) < 0) {
        assert(why && u.target == NULL);
        return 0;
    }
    assert(host_canonical(u.host, strlen(u.host), false, host) != HOST_BAD);
    assert(strcmp(host, u.host) == 0 && u.port != 0 && u.target[0] == '/');
    for (const char *at = u.target; *at; at++)
        assert(*at > ' ' && *at < 0x7f && *at != '#');
    assert(url_text(&u, &text) == 0);
    if (text.len <= URL_MAX) { /* encoding makes some longer */
        assert(url_parse(text.data, text.len, &again, &why) == 0);
        assert(strcmp(again.host, u.host) == 0 && again.port == u.port);
        assert(again.is_tls == u.is_tls && strcmp(again.target, u.target) == 0);
    }
    url_done(&again);
    url_done(&u);
    str_done(&text);
    return 0;
}
