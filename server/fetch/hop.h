/* One request of a call, to one host that the daemon allowed: a connection to the very address that
 * was checked (egress/dial: one guard for all that leaves), and the answer over it by libcurl.
 *
 * libcurl resolves nothing and opens nothing: it is handed the connected socket. It follows no
 * redirect, keeps no cookie, knows no credential, and speaks HTTP/1.1 alone.
 *
 *     hops_open(&order)                     // before the lock-down
 *     hop_run(&order, &hop, left_ms, opened, &answer) */
#pragma once
#include "base/str.h"
#include "egress/via.h"
#include "wire/fetch.h"
#include "wire/url.h"

#define HOP_TEXT_MAX 256

struct hop { /* what the daemon allowed */
    const struct url *url;
    bool is_first;      /* the order's headers and body are for it alone */
    bool allow_private; /* private addresses too */
    bool has_proxy;     /* through the proxy of the host's network */
    struct via_proxy proxy;
};
struct hop_answer {
    enum fetch_end end;
    char detail[HOP_TEXT_MAX]; /* why not, one line */
    char address[64];          /* dialled, or tried last */
    bool is_open;              /* it was connected */
    uint32_t status;
    char content_type[HOP_TEXT_MAX];
    char *redirect; /* absolute, as libcurl makes it of Location; or NULL */
    struct str body;
    bool truncated;
};
/* Certificates, the resolver and libcurl itself; 0 or a negative errno. */
int hops_open(const struct fetch_order *o);
/* OPENED is called once the connection stands. */
void hop_run(const struct fetch_order *o, const struct hop *hop, uint64_t left_ms,
             void (*opened)(const char *address), struct hop_answer *ret);
void hop_answer_done(struct hop_answer *a);
