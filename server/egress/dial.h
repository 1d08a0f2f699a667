/* From an allowed host to a connected socket: resolve, check each address, connect to the very
 * address that was checked.
 *
 * Names are looked up for both families at once. Each address is judged by its class and asked of
 * the routing tables (is it this host's own?); refused ones are passed over, and when none is left
 * the dial ends with EG_ADDRESS_CLASS and says which class. The rest is tried by the Happy Eyeballs
 * way (RFC 8305): families in turn, the next address after ATTEMPT_MS or as soon as one fails.
 *
 *     dial_new(&deps, "ok.test", 443, false, dialled, arg, &d);
 *     dial_start(d);   // may call dialled() at once; D is gone once it was called
 *     dial_cancel(d);  // not called any more */
#pragma once
#include "egress/resolve.h"
#include "wire/host.h"
#include "wire/msg.h"

#define DIAL_ADDRESS_MAX 64
#define DIAL_DETAIL_MAX  200

struct dial_deps {
    uv_loop_t *loop;
    struct resolver *resolver;
    int route_fd;
    uint32_t dial_ms; /* for the whole of it */
    bool is_proxy;    /* the host is the proxy that a person chose: it may be at any address */
    bool loopback;    /* the host is "localhost", dialled as 127.0.0.1 and ::1 without a look-up */
};
struct dialled {
    enum eg_outcome outcome;
    int fd;                         /* with EG_OPENED: connected, non-blocking; the caller's */
    char address[DIAL_ADDRESS_MAX]; /* "203.0.113.1:443", of the one connected or last tried */
    int error;                      /* errno of the attempt that failed last, or 0 */
    char detail[DIAL_DETAIL_MAX];   /* one line for a person; empty with EG_OPENED */
};
typedef void dialled_fn(void *arg, const struct dialled *result);

struct dial;
int dial_new(const struct dial_deps *deps, const char *host, uint16_t port, bool allow_private,
             dialled_fn *fn, void *arg, struct dial **ret);
void dial_start(struct dial *d);
void dial_cancel(struct dial *d); /* NULL is fine */
/* A HOST that is an address, and one that is refused: true, and *ret says why. */
bool dial_is_refused(const struct dial_deps *deps, const char *host, uint16_t port,
                     bool allow_private, struct dialled *ret);
