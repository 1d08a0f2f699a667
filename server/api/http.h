/* HTTP on the loop: the only place that knows the library. Three listeners (127.0.0.1, ::1, the
 * unix socket), one set of callbacks, no thread. What the library does not check is checked here:
 * the size of a head, two lengths, a length beside a transfer coding, the kind of target.
 *
 * A request that waits is suspended; a watcher of its own then notices when the client hangs up
 * (the library looks at suspended connections no more). A client that shuts down its sending side
 * counts as gone. All that handlers do happens inside turns of this module, never in the middle of
 * a session's step. */
#pragma once
#include "api/request.h"

#define API_CONNECTIONS_MAX 512
#define API_HEAD_MAX        (16 << 10)
#define API_FIELDS_MAX      200 /* what they take in the library fits its pool */
#define API_HEAD_MS         15000
#define API_BODY_IDLE_S     60

struct http;
struct http_callbacks {
    /* The head is there. Fills body_max and wants_upload, or rq->reply with a refusal. */
    void (*head)(struct request *rq);
    /* The body is there, whole. Fills rq->reply or parks. */
    void (*run)(struct request *rq);
    /* Before an answer leaves; < 0 replaces it by rq->reply as it then stands. */
    void (*leaving)(struct request *rq);
    /* Twice a second, of each parked or streaming request: may its caller still ask? */
    bool (*is_valid)(struct request *rq);
};
int http_new(uv_loop_t *loop, struct api_state *api, const struct http_callbacks *cb,
             const char *spool_dir, struct http **ret);
/* Both loopback addresses on one port: FIRST, or (unless FIXED) the next free one up to 7430. */
int http_listen_tcp(struct http *h, int first, bool fixed, uint16_t *ret_port, struct err *err);
int http_listen_unix(struct http *h, const char *path, struct err *err);
/* Every parked request and stream of ACTOR_ID (NULL = of all) ends: with CODE, or its stream. */
void http_end_all(struct http *h, const char *actor_id, const char *code);
/* Streams in all, or of CALLER alone. */
unsigned http_streams(const struct http *h, const struct caller *caller /* NULL = all */);
/* Each request once that has begun to run and is not answered, or streams. */
void http_each(struct http *h, void (*fn)(struct request *rq, void *arg), void *arg);
/* Stops listening, ends all, then CLOSED; frees. */
void http_close(struct http *h, void (*closed)(void *arg), void *arg);
