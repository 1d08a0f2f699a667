/* wire/host: a canonical host is its own canonical form and holds nothing but what it may. */
#include "wire/host.h"
#include "wire/idna.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char host[HOST_MAX], again[HOST_MAX], text[HOST_MAX + 10], shown[512];
    uint16_t port, port_again;
    enum host_kind kind = host_port_parse((const char *)data, size, 443, host, &port);
    if (kind != HOST_BAD) {
        assert(port != 0 && strlen(host) > 0 && strlen(host) <= 253);
        assert(strspn(host, "abcdefghijklmnopqrstuvwxyz0123456789-_.:") == strlen(host));
        assert((strchr(host, ':') != NULL) == (kind == HOST_V6));
        host_port_text(host, port, text);
        assert(host_port_parse(text, strlen(text), 0, again, &port_again) == kind);
        assert(strcmp(host, again) == 0 && port == port_again);
        assert(host_canonical(host, strlen(host), false, again) == kind);
    }
    char *typed = malloc(size + 1);
    if (typed == NULL)
        return 0;
    memcpy(typed, data, size);
    typed[size] = '\0';
    kind = host_from_typed(typed, host);
    if (kind != HOST_BAD) {
        assert(host_canonical(host, strlen(host), false, again) == kind);
        assert(strcmp(host, again) == 0);
        host_to_unicode(host, shown, sizeof shown);
    }
    free(typed);
    return 0;
}
