/* The egress's own answers: refusals and troubles, JSON for clients that ask for it, else text,
 * both naming host, port, the rule and what to do. The reason also stands in the status line and in
 * Proxy-Status (RFC 9209), as many clients show nothing but that of a refused CONNECT. Pure. */
#pragma once
#include "base/str.h"
#include <stdint.h>

struct reply {
    int status;       /* 400 403 502 503 504 */
    const char *code; /* stable, as in problem documents: "site_not_listed" … */
    const char *host; /* canonical, or NULL */
    uint16_t port;
    const char *detail; /* one sentence: what happened */
    const char *rule;   /* the rule's source, or NULL */
    const char *hint;   /* the one thing to do, or NULL */
};
/* The whole response, with Connection: close. HEAD: no body. -ENOMEM. */
int reply_put(struct str *out, const struct reply *reply, bool json, bool head);
/* For a refused check: the verdict's reason (a word such as "not_listed") as code and sentence. */
const char *reply_reason_code(const char *reason);
const char *reply_reason_text(const char *reason);
