/* One request and its reply, as the router and the handlers see them: no library of HTTP in sight.
 *
 * Life: http.c makes it with the head, route_head() judges it, http.c gathers the body, route_run()
 * calls the handler. A handler fills rq->reply and returns 0, or returns a negative errno with
 * rq->err filled (a code of api/problem.c), or parks the request and returns 0: it is answered
 * later with request_answer(), always from a callback of request_park(). The router, not the
 * handler, sees to Host, Origin, token, scope, type, size, members and If-Match's presence.
 *
 *     int site_show(struct request *rq)
 *     {
 *         struct site s;
 *         if (site_get(rq->api->d.db, rq->params[0], &s) < 0)
 *             return request_not_found(rq, "site");
 *         return reply_rev(rq, 200, site_to_json(&s), s.rev);
 *     } */
#pragma once
#include "api/api.h"
#include "base/clock.h"
#include "base/fields.h"
#include "base/str.h"
#include "base/watch.h"
#include "store/tokens.h"

#define REQUEST_PARAMS        3
#define REQUEST_QUERY_MAX     32
#define REPLY_HEADERS_MAX     8
#define API_JSON_MAX          (256 << 10) /* bytes of a JSON body */
#define API_COMMAND_MAX       (2 << 20)   /* argv and env of 1 MiB, as JSON */
#define API_STDIN_MAX         (256 << 10)
#define API_UPLOAD_MAX        (1LL << 30)
#define API_PAGE_MAX          (16LL << 20) /* bytes of a file in one answer */
#define API_WAIT_MAX          60000        /* ms, any wait_ms */
#define API_STREAMS_MAX       256
#define API_STREAMS_TOKEN_MAX 16
#define API_KEEPALIVE_MS      15000

enum method {
    METHOD_OTHER = 0,
    METHOD_GET,
    METHOD_POST,
    METHOD_PUT,
    METHOD_PATCH,
    METHOD_DELETE,
    METHOD_OPTIONS
};
extern const char *const METHOD_NAMES[];

struct caller { /* who asks; filled by auth */
    struct actor actor;
    unsigned scopes;
    char session_id[32]; /* an agent's token: its session; else empty */
    int64_t expires_at;  /* wall ms, 0 = never */
    bool has_token;      /* came with a bearer: not so the owner on the socket */
};

struct head { /* field lines that anybody here asks for; NULL = absent; borrowed for the request */
    const char *host, *origin, *fetch_site, *authorization, *content_type, *accept, *if_match;
    const char *if_none_match, *idempotency_key, *last_event_id, *range, *content_length, *transfer;
    unsigned n_host, n_origin, n_fetch_site, n_authorization, n_content_length, n_content_type;
    unsigned n_transfer;
    size_t bytes;
    bool is_old;     /* HTTP/1.0 or unknown */
    uint64_t length; /* of the body, 0 when unknown */
    bool has_length, has_bad_length, is_chunked;
};

struct query_member {
    char *name, *value;
};

struct request;
/* A body that grows while the client reads. fill() adds to OUT and returns
 *   > 0 more may come at once, 0 nothing at present (asked again when the subject changes),
 *   < 0 that was all. Called only when there is room: a slow reader holds nobody up. */
struct stream {
    int (*fill)(struct request *rq, struct str *out);
    /* Each 15 s without anything sent; NULL = none. */
    void (*keepalive)(struct request *rq, struct str *out);
    /* Last words of one that is ended from outside, with CODE; NULL = none. */
    void (*ending)(struct request *rq, struct str *out, const char *code);
    /* A change of the subject wakes it at most once in so many ms: what comes in a flood is then
     * gathered. 0 = each time. */
    unsigned pace_ms;
};

struct reply {
    int status;   /* 0 = none yet */
    json_t *json; /* owned; or */
    struct str text;
    const char *content_type; /* of text, fd, stream */
    int fd;                   /* owned, or -1: LENGTH bytes from OFFSET */
    uint64_t offset, length;
    const struct stream *stream;
    const char *is_borrowed; /* static bytes, LENGTH of them */
    bool must_close;
    struct reply_header {
        char name[32];
        char *value; /* owned */
    } headers[REPLY_HEADERS_MAX];
    unsigned n_headers;
};

/* WAKE_GONE: the client hung up. Nothing can be answered; a reply that is filled nevertheless is
 * kept for the request's Idempotency-Key. */
enum wake { WAKE_CHANGED = 0, WAKE_TIMEOUT, WAKE_GONE };
typedef void wake_fn(struct request *rq, enum wake why);

struct route;
struct api_state;
struct request {
    struct api_state *api;
    char id[ID_MAX];
    enum method method;
    bool is_head, is_unix, was_parked;
    int64_t peer_uid; /* of the unix socket; -1 else */
    char *target;     /* as it came */
    char *path;       /* up to '?', still percent-encoded */
    struct head head;
    const struct route *route;
    char *params[REQUEST_PARAMS]; /* of {…} in the route's pattern, decoded */
    unsigned n_params;
    struct query_member query[REQUEST_QUERY_MAX];
    unsigned n_query;
    struct caller caller;
    uint64_t body_max;
    struct str body;      /* buffered */
    int body_fd;          /* of an upload, or -1 */
    uint64_t body_length; /* bytes that came */
    bool wants_upload;    /* the body goes to body_fd */
    json_t *json;         /* a JSON body, parsed */
    void *in, *args;      /* body's and query's members by the route's tables */

    struct err err; /* of a refusal */
    struct field_errors errors;
    json_t *extra; /* members of its own that a problem document gets, or NULL */
    struct reply reply;

    void *state; /* the handler's; state_done is called once, at the end */
    void (*state_done)(void *state);
    void (*after_sent)(struct request *rq); /* once the answer has left */
    void (*not_sent)(struct request *rq);   /* instead: the client was gone before */
    char idempotency_hash[65];
    struct http_request *http; /* http.c's own part */
};

/* Parks the request: WOKEN is called when SUBJECT (may be NULL) changes, when WAIT_MS has passed
 * (UINT64_MAX = never), and when the client hangs up. It may answer, or leave things as they are:
 * then it is called again. After WAKE_TIMEOUT and WAKE_GONE it is not. */
void request_park(struct request *rq, struct watched *subject, uint64_t wait_ms, wake_fn *woken);
/* rq->reply is filled (or rq->err: then pass a negative R): the parked request goes on. */
void request_answer(struct request *rq, int r);
/* The answer is STREAM: fill() is called soon, and again at each change of SUBJECT, when set. */
void request_stream(struct request *rq, const struct stream *stream, struct watched *subject);

/* Frees all that the request holds but http.c's part. */
void request_done(struct request *rq);

/* Fill a reply; all return 0, or -ENOMEM. JSON and what is called take_ are taken. */
int reply_json(struct request *rq, int status, json_t *take_json);
int reply_items(struct request *rq, json_t *take_items, const char *next_cursor /* or NULL */);
int reply_rev(struct request *rq, int status, json_t *take_json, int64_t rev); /* with ETag */
int reply_text(struct request *rq, int status, const char *type, const char *text);
int reply_empty(struct request *rq); /* 204 */
int reply_header(struct request *rq, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Fill rq->err and return a negative errno. */
int request_refuse(struct request *rq, const char *code, const char *hint, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
int request_not_found(struct request *rq, const char *what);
/* A fault in the body at POINTER (RFC 6901), or in a query member; KIND as in errors[]. */
int request_bad_member(struct request *rq, const char *pointer, const char *kind, const char *fmt,
                       ...) __attribute__((format(printf, 4, 5)));
int request_bad_query(struct request *rq, const char *name, const char *kind, const char *detail);
/* A member that a problem document gets beside the fixed ones; VALUE is taken. */
void request_extra(struct request *rq, const char *name, json_t *take_value);
/* If-Match must name REV: else 412 rev_mismatch with `current`. */
int request_if_match(struct request *rq, int64_t rev);
/* ?confirm= must be VALUE: else 409 confirm_required with `confirm`. */
int request_confirm(struct request *rq, const char *value, const char *what);
const char *request_query(const struct request *rq, const char *name); /* NULL = absent */
/* Is TYPE named in Accept (RFC 9110, 12.5.1; weights do not count)? */
bool request_accepts(const struct request *rq, const char *type);
/* How an answer in bytes shows its level: header Cordon-Enforcement. Borrows. */
int reply_enforcement(struct request *rq, const json_t *enforcement);
