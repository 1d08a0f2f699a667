/* Heads of plain HTTP on their way through (RFC 9112, 3.2.2; RFC 9110, 7.6). Pure.
 * Upstream sees origin-form and a Host made of the URI that was judged; hop-by-hop fields, those
 * that Connection names and all Proxy- fields stay here; the length of the body is written anew as
 * it was understood, so that both sides cannot read it differently. */
#pragma once
#include "wire/host.h"
#include "wire/httphead.h"

/* "http://host[:port][/path][?query]" of an absolute-form target: canonical host and port, and
 * where path and query start in it (*ret_path_len 0: there is none). NULL, or why it is refused. */
const char *uri_parse(const char *target, size_t n, char ret_host[static HOST_MAX],
                      uint16_t *ret_port, const char **ret_path, size_t *ret_path_len);

/* H's request for HOST:PORT, appended to OUT. */
int rewrite_request(struct str *out, const struct httphead *h, const char *host, uint16_t port,
                    const char *path, size_t path_len);

/* HEAD, as rewrite_request made it, for a proxy: with an absolute URI and AUTHORIZATION, if any
 * (RFC 9112, 3.2.2; RFC 9110, 11.7.2). */
int rewrite_for_proxy(struct str *out, const struct str *head, const char *authorization);

struct rewrite_response {
    bool keep_alive; /* the client's connection stays open behind it */
    int client_minor;
    bool upgraded; /* 101: Upgrade is passed on */
};
int rewrite_response(struct str *out, const struct httphead *h, const struct rewrite_response *how);
