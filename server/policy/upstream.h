/* The proxy that the way out itself goes through, where this host has one: from the setting
 * sandbox.proxy.upstream, or from the variables of the daemon's environment. Pure.
 *
 * Only proxies spoken to in plain HTTP are known ("http://…"), which is what such networks have.
 * The proxy resolves the names; what is refused by its address is refused here only when the
 * address itself was asked for.
 *
 *     struct upstream up;
 *     why = upstream_parse("http://me:secret@proxy.corp:3128", &up);     // NULL: UP is filled in
 *     if (!upstream_is_bypassed(getenv("no_proxy"), host, port)) …
 *     upstream_authorization(&up, &text);                               // "Basic …" or nothing */
#pragma once
#include "base/str.h"
#include "wire/host.h"

#define UPSTREAM_USER_MAX 256 /* of "user:password", decoded */

struct upstream {
    char host[HOST_MAX]; /* canonical, without brackets */
    uint16_t port;
    char user[UPSTREAM_USER_MAX + 1]; /* "user:password", or empty */
};
/* NULL, or why TEXT cannot be used: a constant text that does not repeat it. No scheme means http;
 * no port 80. Percent escapes in user and password are decoded (RFC 3986, 3.2.1). */
const char *upstream_parse(const char *text, struct upstream *ret);
/* The same text with its password hidden, for people: "http://me:***@proxy.corp:3128". */
int upstream_put_shown(struct str *out, const struct upstream *up);
int upstream_authorization(const struct upstream *up, struct str *ret); /* RFC 7617, 2 */
/* NO_PROXY names HOST:PORT: a list by commas or spaces of "*", names (themselves and what is below
 * them, with or without a leading dot or "*."), addresses, and CIDR blocks; each may have ":port".
 * What cannot be read is passed over. LIST may be NULL. */
bool upstream_is_bypassed(const char *list, const char *host, uint16_t port);
