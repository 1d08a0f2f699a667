/* Names to addresses: c-ares on the egress's own loop, with this host's resolv.conf and hosts file.
 * Only what was allowed gets here. Search domains are never tried: the name that was judged is the
 * name that is asked for.
 *
 * Changes of the host's configuration are followed, before the next name is looked up. Such files
 * are mostly replaced by others, which the lock-down has no right to; so the daemon is asked for
 * what they hold now, and look-ups wait until it has said. */
#pragma once
#include "egress/peer.h"
#include "wire/host.h"
#include "wire/msg.h"
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

/* FILE changed: resolver_file() is to be called, sooner or later. */
typedef void stale_fn(void *arg, enum eg_file file);

/* Before the lock-down; lives as long as the egress. */
int resolver_new(uv_loop_t *loop, stale_fn *stale, void *arg, struct resolver **ret);
/* What FILE holds now, in a memfd; IS_READABLE false: it is gone, or not for us. */
void resolver_file(struct resolver *r, enum eg_file file, int take_fd, bool is_readable);
/* May call FN before it returns; then *ret is NULL. FAMILY is AF_INET or AF_INET6. */
int lookup_start(struct resolver *r, const char *name, int family, lookup_fn *fn, void *arg,
                 struct lookup **ret);
void lookup_cancel(struct lookup *l); /* NULL is fine */
