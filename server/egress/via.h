/* A connection through the proxy of this host's network: to the proxy, CONNECT, and its answer
 * (RFC 9110, 9.3.6). The proxy resolves the name; it may be anywhere, on this host too, as a person
 * chose it, but not at Cordon's own ports. Nothing behind the proxy's answer is read.
 *
 *     via_new(&deps, &proxy, "ok.test:443", dialled, arg, &v);
 *     via_start(v);   // may call dialled() at once; V is gone once it was called
 *     via_cancel(v);  // not called any more */
#pragma once
#include "egress/dial.h"

#define VIA_AUTHORIZATION_MAX 512

struct via_proxy {
    char host[HOST_MAX];
    uint16_t port;
    char authorization[VIA_AUTHORIZATION_MAX]; /* "Basic …", or empty */
};
/* "host:port" and what goes with it; -EBADMSG. */
int via_proxy_parse(const char *target, const char *authorization, struct via_proxy *ret);

struct via;
/* As dial_new; PROXY is copied. EG_OPENED: the socket stands for a tunnel to TARGET, or leads to
 * the proxy itself when TARGET is NULL; address is the proxy's. IS_OWN: its port is one of ours, so
 * at this host it is Cordon itself. */
int via_new(const struct dial_deps *deps, const struct via_proxy *proxy, bool is_own,
            const char *target, dialled_fn *fn, void *arg, struct via **ret);
void via_start(struct via *v);
void via_cancel(struct via *v); /* NULL is fine */
