/* What the files of HTTP on the loop share; nobody else includes this.
 *
 *     http.c         the library's instances, its callbacks, life and end
 *     http_listen.c  listening sockets
 *     http_gate.c    connections before their first request; http_head.h judges its head
 *     http_conn.c    connections: the time a head may take, hang-ups
 *     http_intake.c  from the library to struct request: head and body
 *     http_wait.c    turns: parked requests and silent streams, suspended and resumed
 *     http_reply.c   struct reply to the library
 *
 * The life of a request: RQ_NEW (its target is there) -> RQ_BODY or RQ_REFUSED (its head was
 * judged)
 * -> RQ_READY -> RQ_SENT, by way of RQ_PARKED where the handler waits for something. */
#pragma once
#include "api/http.h"
#include "base/watch.h"
#include <uv.h>

struct MHD_Connection;
struct MHD_Daemon;

#define HTTP_SERVERS_MAX 3

enum request_state { RQ_NEW = 0, RQ_BODY, RQ_REFUSED, RQ_PARKED, RQ_READY, RQ_SENT };

struct server {
    struct http *http;
    struct MHD_Daemon *mhd;
    int listener;          /* owned */
    uv_poll_t listen_poll; /* of it */
    uv_poll_t poll;        /* the library's epoll descriptor */
    uv_timer_t timer;      /* the library's next deadline */
    bool is_unix, wants_run;
};

struct http {
    uv_loop_t *loop;
    struct api_state *api;
    struct http_callbacks cb;
    char *spool_dir, *socket_path;
    struct server servers[HTTP_SERVERS_MAX];
    unsigned n_servers, n_conns, n_gates, n_handles;
    uv_timer_t turn;  /* wakes parked requests: changes and deadlines */
    uv_timer_t sweep; /* ends heads that never come */
    struct gate *gates;
    struct conn *conns;
    struct http_request *requests;
    bool closing;
    void (*closed)(void *arg);
    void *closed_arg;
};

struct conn {
    struct http *http;
    struct server *server;
    struct conn *prev, *next;
    int fd;
    uint64_t since; /* ms: the present head is waited for since then */
    bool busy, has_poll;
    int64_t peer_uid;
    uv_poll_t poll; /* notices a hang-up while suspended */
    struct http_request *waiting;
    struct http_request *spare; /* the last one, for the next: no memory is asked for each */
};

struct http_request {
    struct request rq;
    struct http *http;
    struct conn *conn;
    struct MHD_Connection *mhd;
    struct http_request *prev, *next;
    enum request_state state;
    bool suspended, gone, dirty, ended;
    uint64_t deadline;  /* of a parked request, UINT64_MAX = none */
    uint64_t last_sent; /* of a stream */
    wake_fn *woken;
    struct watch watch;
    struct str chunk;
};

/* http.c */
void server_run(struct server *s);
void http_handle_closed(struct http *h); /* one of n_handles; the last one frees */

/* http_listen.c: each a listening socket, or a negative errno with ERR filled */
int listen_tcp(int first, bool fixed, uint16_t *ret_port, int *ret_v4, int *ret_v6 /* or -1 */,
               struct err *err);
int listen_unix(const char *path, struct err *err);

/* http_gate.c */
int gates_open(struct server *s); /* its listener takes connections from now on */
void gates_sweep(struct http *h, uint64_t now);
void gates_close(struct http *h);

/* http_conn.c */
void conn_sweep_start(struct http *h);
struct conn *conn_new(struct server *s, int fd);
void conn_free(struct conn *c);
void conn_watch_hangup(struct conn *c, struct http_request *waiting);
void conn_ignore_hangup(struct conn *c);

/* http_intake.c */
struct http_request *request_new(struct conn *c, struct MHD_Connection *mhd, const char *target);
void request_free(struct http_request *hr);
void head_take(struct http_request *hr, const char *method, const char *version);
void body_open(struct http_request *hr);
void body_take(struct http_request *hr, const char *bytes, size_t n);

/* http_wait.c */
void request_suspend(struct http_request *hr);
void request_gone(struct http_request *hr); /* its client hung up */
void request_dirty(struct http_request *hr);
/* A parked one is answered with CODE, a stream ends. */
void request_end(struct http_request *hr, const char *code);

/* http_reply.c: false = the connection cannot go on */
bool request_send(struct http_request *hr);
