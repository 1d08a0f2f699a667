/* The link to one cordon-egress: of egress_link.c (its life, its frames) and egress_requests.c
 * (what is asked through it) alone. */
#pragma once
#include "base/child.h"
#include "session/channel.h"
#include "session/logpipe.h"
#include "session/parts.h"
#include "wire/msg.h"

/* A request under way: from its check until it is refused, has failed, or is closed. */
struct request {
    struct request *next;
    struct egress_link *link;
    struct ask_wait wait; /* while is_held */
    uint32_t conn, number;
    char host[HOST_MAX];
    uint16_t port;
    char site_id[32];
    char rule[HOST_MAX + 12];
    uint8_t door; /* enum eg_door */
    bool is_proof, is_open, is_published, is_held;
    bool is_once; /* allowed by an answer for it alone: no site covers it */
    bool is_name; /* the TLS name within the tunnel whose number it has, but for EG_NAME_REQUEST */
};

struct egress_link {
    struct closing closing;
    struct channel ch;
    struct child child;
    struct logpipe said;
    struct session *s;
    struct generation *g; /* the sandbox whose way out it is */
    struct request *requests;
    size_t n_requests;
    bool is_ready, is_closing;
    void (*closed)(void *arg);
    void *closed_arg;
};

/* Frames of the egress about requests; a negative answer is nonsense, or a lack of memory. */
int take_check(struct egress_link *l, struct unpack *u);
int take_result(struct egress_link *l, struct unpack *u);
int take_closed(struct egress_link *l, struct unpack *u);
int take_refused(struct egress_link *l, struct unpack *u);
void requests_lost(struct egress_link *l); /* the egress is gone, and with it what was open */
void requests_drop(struct egress_link *l); /* nothing is told of them */
