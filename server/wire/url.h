/* http and https URLs, strictly: what is judged is what is dialled and what is sent. Pure.
 *
 * Taken: scheme://host[:port][/path][?query][#fragment] (RFC 3986). The host becomes canonical
 * (wire/host, names as people type them through wire/idna), the fragment goes, bytes that may not
 * stand in a path or query are percent-encoded. Refused: another scheme, userinfo, an empty or odd
 * port, a backslash before the path, control characters anywhere, more than URL_MAX bytes. */
#pragma once
#include "base/str.h"
#include "wire/host.h"

#define URL_MAX 8192

struct url {
    bool is_tls;
    bool is_v6; /* host stands in brackets in a URL */
    char host[HOST_MAX];
    uint16_t port;
    char *target; /* "/path?query", never empty */
};
/* -EINVAL: *ret_why is a line for a person (static); -ENOMEM. RET is written only on success. */
int url_parse(const char *text, size_t n, struct url *ret, const char **ret_why);
/* The whole URL, as it is asked for: the port only where it is not the scheme's. */
int url_text(const struct url *u, struct str *out);
void url_done(struct url *u);
/* N bytes as a component of a query (RFC 3986, 2.3): all but unreserved characters encoded. */
int url_put_component(struct str *out, const char *bytes, size_t n);
