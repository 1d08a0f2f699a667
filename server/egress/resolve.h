/* Names to addresses: c-ares on the egress's own loop, with this host's resolv.conf and hosts file.
 * Only what was allowed gets here. Search domains are never tried: the name that was judged is the
 * name that is asked for. Changes of the host's configuration are followed. */
#pragma once
#include "egress/peer.h"
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define LOOKUP_ADDRESSES 16 /* of one family; more are left out */

struct resolver;
struct lookup;
enum lookup_end { LOOKUP_FAILED = 0, LOOKUP_FOUND, LOOKUP_NO_NAME };
/* Once; ADDRESSES are borrowed. Not called after lookup_cancel(). */
typedef void lookup_fn(void *arg, int family, enum lookup_end end, const char *why,
                       const struct sockaddr_storage *addresses, size_t n);

int resolver_new(uv_loop_t *loop, struct resolver **ret); /* before the lock-down */
void resolver_free(struct resolver *r);
/* May call FN before it returns; then *ret is NULL. FAMILY is AF_INET or AF_INET6. */
int lookup_start(struct resolver *r, const char *name, int family, lookup_fn *fn, void *arg,
                 struct lookup **ret);
void lookup_cancel(struct lookup *l); /* NULL is fine */
