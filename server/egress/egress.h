/* One session's way out: what all parts of cordon-egress share.
 *
 * What comes in by the doors is hostile, and so is what comes back from the world; what comes from
 * the daemon is believed. The process holds no list, no secret and no file. For each request it
 * asks the daemon (M_EG_CHECK), and does nothing with the host before the answer is ALLOW. It ends
 * when the daemon's end of the channel closes.
 *
 *     doors -> conn (parse, ask) -> verdict -> dial (resolve, check, connect) -> flow (copy) */
#pragma once
#include "egress/dial.h"
#include "egress/flow.h"
#include "egress/link.h"
#include "wire/egress.h"

#define EGRESS_DOORS_MAX 8
#define EGRESS_SLACK     64   /* connections above the limit that still get a 503 */
#define EGRESS_SLOTS     4096 /* of connections; a power of two, in the lower bits of their ids */

struct conn;
struct names;
struct listener;
struct slot;
struct egress {
    uv_loop_t *loop;
    struct link link;
    struct egress_start start;
    bool is_started;
    struct resolver *resolver;
    struct pool *pool;
    int route_fd;
    struct peer *doors[EGRESS_DOORS_MAX];
    size_t n_doors;
    struct peer *nameserver; /* or NULL: nothing is redirected */
    struct names *names;
    bool has_ipv6, told_full;
    struct listener *listeners; /* egress/listen.h */
    struct closing closing;
    struct deadline rest; /* accepting waits for it */
    struct slot *slots;   /* connections by the lower bits of their id; grows */
    size_t n_slots, n_conns;
    uint32_t turn; /* where the search for an unused slot begins */
};
/* Takes the channel's descriptor; everything that needs files or new kinds of sockets is opened
 * here, before the daemon's order locks the process down. */
int egress_init(struct egress *eg, uv_loop_t *loop, int take_channel);
/* Takes what waits at LISTENING; DOOR and PORT as for conn_accept. */
void egress_accept(struct egress *eg, int listening, enum eg_door door, uint16_t port);
int egress_conn_add(struct egress *eg, struct conn *c, uint32_t *ret_id); /* -ENOSPC */
void egress_conn_remove(struct egress *eg, uint32_t id);
