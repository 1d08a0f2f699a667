/* Ports both ways, of one session. Private to this room.
 *
 * A service of the host's loopback is reached inside by grant: a site `localhost:PORT` of the
 * session makes the runner listen on that port inside; the listener is handed out, checked, and
 * given to the egress, which asks for each connection as for any other. One that the session has
 * taken itself is told as a warning. Taken back, the listener goes.
 *
 * A published port is a listener of ours on the host's 127.0.0.1, made when the session is and
 * closed when it ends. The egress of the sandbox in force accepts on it; for each connection the
 * runner inside connects to that port on its loopback and hands the socket out. Where nothing
 * listens in the sandbox in force, those it took over from are asked, newest first. */
#pragma once
#include "base/err.h"
#include <stdint.h>

#define SESSION_PUBLISH 32 /* ports of one session */
#define SESSION_LOCAL   32 /* services of the host's loopback */

struct egress_link;
struct generation;
struct session;

struct published {
    uint16_t port;
    int fd; /* listening; -1 before publish_open */
};
/* A port inside that stands for a service of the host; of one sandbox. */
struct local_port {
    struct local_port *next;
    uint16_t port;
    int fds[2];
    unsigned n_fds; /* 0: it is asked for, or is not to be had */
};

/* -EEXIST with ERR (exists) when one is taken on this machine, -EINVAL (body_invalid). */
int publish_open(struct session *s, struct err *err);
void publish_close(struct session *s);

/* After any change of what is granted, of the sandbox in force, or of its egress. */
void session_ports_follow(struct session *s);
void generation_ports_free(struct generation *g);
/* Is `localhost:PORT` a site of the session's own? */
bool session_has_local(const struct session *s, uint16_t port);
/* A connection NUMBER of CONN came to a published port: egress_link_give() follows, once, unless
 * the link is gone by then. */
void publish_connect(struct session *s, struct egress_link *l, uint32_t conn, uint32_t number,
                     uint16_t port);
bool session_publishes(const struct session *s, uint16_t port);
