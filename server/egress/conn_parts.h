/* What one client connection is made of: shared by the files below, and by nobody else.
 *
 * door_http.c, door_socks.c, door_redirect.c, door_port.c a request, to the question · upstream.c
 * the verdict, the dial, the socket behind it · tunnel.c bytes both ways · hello.c the TLS name
 * within · exchange.c plain HTTP, request and response · answer.c our own answers, the end behind
 * them · tell.c what the daemon is asked and told · conn.c its life.
 *
 * A further door is a further door_*.c: it fills in "the present request", calls request_check(),
 * and has its row in answer.c (how a refusal is said) and tunnel.c (how "opened" is said). */
#pragma once
#include "egress/conn.h"
#include "egress/reply.h"
#include "egress/via.h"
#include "wire/socks.h"
#include "wire/tlshello.h"

#define READ_BYTES 16384
#define DRAIN_MS   2000
#define QUIET_MS   (3600 * UINT64_C(1000)) /* an exchange in which no byte moves */

enum conn_state {
    CONN_CLOSED = 0,
    CONN_HEAD,
    CONN_CHECKING,
    CONN_DIALLING,
    CONN_TUNNEL,
    CONN_REQUEST,  /* the response head is still to come; the request body may be under way */
    CONN_RESPONSE, /* the response body is under way; the request body may be too */
    CONN_ANSWERING,
    CONN_DRAINING, /* all is said; what the client still sends is thrown away */
    CONN_RESETTING /* refused; the reset comes as the answer to the client's first bytes */
};

/* What the daemon is still owed for the present request. */
enum owed { OWED_NOTHING = 0, OWED_RESULT, OWED_CLOSED };

/* What a tunnel's client said first, until it is plain what it is. */
struct hello {
    struct tlshello tls;
    struct str held;
    bool is_asked; /* the daemon, about the name in it */
};

struct conn {
    struct closing closing;
    struct deadline deadline;
    struct egress *eg;
    uint32_t id, request;
    enum conn_state state;
    enum owed owed;
    struct peer *client, *up;
    struct str in;         /* read from the client, not yet taken */
    struct httphead *head; /* the one being read, of a request or a response */
    struct socks *socks;   /* a SOCKS client that has not asked yet */
    struct hello *hello;
    struct dial *dial;
    struct via *via;
    struct via_proxy *proxy; /* to go through for the present request, or NULL */
    bool over_limit;
    bool is_held; /* CHECKING: a person is asked */

    /* The present request. */
    enum eg_door door;
    char host[HOST_MAX];
    uint16_t port;
    bool is_tunnel; /* asks for one; else it is plain HTTP */
    bool is_named;  /* a tunnel whose TLS name was judged */
    bool is_head, is_upgrade, is_safe, wants_json, keep_alive, allow_private, allow_loopback;
    int minor;
    enum body_kind body;
    uint64_t body_len;
    struct str up_head; /* as upstream will get it */
    unsigned interims;
    bool responded; /* bytes of a response are with the client */
    bool up_garbage;

    /* The upstream connection, which a later request to the same place may use again. */
    char up_host[HOST_MAX], up_address[DIAL_ADDRESS_MAX];
    uint16_t up_port;
    bool up_private, up_reused;
    bool is_forwarded; /* the connection is to the proxy itself, which gets absolute URIs */
    char *up_proxy;    /* "host:port", or NULL: none */

    struct flow to_up, to_client;
    uint64_t seen; /* bytes both ways when the deadline last passed */
    struct str out;
    size_t out_at;
};

/* conn.c */
void conn_ready(void *arg, struct peer *p, int events);
void conn_close(struct conn *c, bool reset); /* tells the daemon what it is owed */
void head_drop(struct conn *c);
void up_drop(struct conn *c, bool reset);

/* tell.c */
void request_check(struct conn *c); /* asks for the verdict; conn_verdict() goes on */
void tell_result(struct conn *c, enum eg_outcome outcome, const char *address, const char *detail);
void tell_end(struct conn *c, const char *why);
void tell_refused(struct conn *c, const char *host, size_t n, const char *why);

/* door_http.c */
void request_next(struct conn *c); /* the connection's first, or the next on a kept one */
void head_start(struct conn *c, bool is_response);
void head_read(struct conn *c);
/* door_socks.c */
bool socks_is_first(char first);
int socks_start(struct conn *c, char first);
void socks_take(struct conn *c, const char *bytes, size_t n, size_t *ret_used);
bool socks_is_asked(const struct conn *c);
void socks_request(struct conn *c);
/* How CODE is said to a client that came by a SOCKS door. */
size_t socks_said(const struct conn *c, enum socks_code code, uint8_t ret[static SOCKS_REPLY_MAX]);

/* door_redirect.c */
struct sockaddr_storage;
void redirect_request(struct conn *c, const struct sockaddr_storage *wanted);
void redirect_reset(struct conn *c); /* ends the connection */

/* door_port.c */
void port_request(struct conn *c, enum eg_door door, uint16_t port);

/* upstream.c */
void socket_prepare(int fd);
void held_left(struct conn *c); /* the client gave up while a person is asked */
void conn_dial(struct conn *c);

/* tunnel.c */
/* How the client hears that its tunnel is open. */
int opened_put(struct str *out, const struct conn *c);
void tunnel_start(struct conn *c); /* c->up is connected */
void tunnel_step(struct conn *c);
void waits_follow(struct conn *c);

/* hello.c */
int hello_start(struct conn *c); /* c->in are the client's first bytes */
void hello_step(struct conn *c); /* c->hello is gone when it went on, c->state tells if ended */
void hello_verdict(struct conn *c, const struct verdict_in *v);
void hello_late(struct conn *c);
void hello_drop(struct conn *c);

/* exchange.c */
void exchange_start(struct conn *c); /* the request to c->up */
void exchange_step(struct conn *c);

/* answer.c: each ends the connection */
void answer_bad(struct conn *c, int status, const char *detail, const char *hint);
void answer_trouble(struct conn *c, int status, const char *code, const char *detail);
void answer_undialled(struct conn *c, const struct dialled *r);
void verdict_deny(struct conn *c, const struct verdict_in *v);
void answer_start(struct conn *c); /* c->out is the last thing the client hears */
void answer_step(struct conn *c);
void conn_drain(struct conn *c);
void drain_step(struct conn *c);
