/* One HTTP/1.1 connection as a client, one exchange at a time, driven by poll(2) (RFC 9112).
 * The descriptor is non-blocking; whoever polls calls httpc_step() when it is ready.
 *
 *     struct httpc h = {.fd = -1};
 *     httpc_open_unix(&h, path);
 *     httpc_send(&h, &request);
 *     while (!(r = httpc_step(&h))) poll(h.fd, httpc_events(&h)) …
 *     h.status, h.body                      // body grows as it comes; consume what was used
 *     httpc_close(&h); */
#pragma once
#include "base/str.h"
#include "wire/httphead.h"
#include <stdbool.h>
#include <stdint.h>

#define HTTP_HEAD_MAX ((size_t)64 << 10)

struct httpc_request {
    const char *method, *target;
    const char *type;   /* Content-Type, or NULL without a body */
    const char *accept; /* or NULL */
    const char *token;  /* bearer, or NULL */
    int64_t if_match;   /* revision, < 0 = none */
    const void *body;
    size_t len;
};

struct httpc {
    int fd;       /* -1 = not open */
    bool is_busy; /* a request is out and its answer is not complete */
    int status;   /* of the answer, once its head came; 0 before */
    bool is_ndjson;
    struct str body; /* decoded; the owner consumes */
    /* internal */
    char host[64];
    struct str out, in;
    size_t sent;
    struct httphead head;
    bool has_head, keep_alive;
    enum body_kind kind;
    uint64_t left; /* of a body with a length */
    struct chunks chunks;
};

/* H is {.fd = -1}, or was closed. */
int httpc_open_unix(struct httpc *h, const char *path);
int httpc_open_tcp(struct httpc *h, uint16_t port); /* 127.0.0.1 */
void httpc_close(struct httpc *h);
/* Queues a request; -EBUSY while one is out. The bytes go with httpc_step. */
int httpc_send(struct httpc *h, const struct httpc_request *rq);
/* Sends and receives what goes without waiting. 1 = the answer is complete, 0 = wait for
 * httpc_events(), negative errno = the connection is lost (-ECONNRESET when it ended early,
 * -EBADMSG for a bad answer). */
int httpc_step(struct httpc *h);
short httpc_events(const struct httpc *h);
/* The same until it is complete, at most DEADLINE_MS (< 0 = none): 0, -ETIMEDOUT, or as above. */
int httpc_wait(struct httpc *h, int64_t deadline_ms);
