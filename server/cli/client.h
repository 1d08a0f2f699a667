/* The daemon of this user: found by server.json, its instance checked, spoken to over its unix
 * socket, or over TCP with the owner's token where the socket cannot be reached.
 *
 *     r = client_open(&places, &c, &err);           // -ENOENT: none runs
 *     r = client_call(c, &rq, WAIT_MS, &err);       // c->main holds status and body
 *     client_close(c); */
#pragma once
#include "base/err.h"
#include "cli/httpc.h"
#include "cli/places.h"

#define CLIENT_WAIT_MS 90000 /* beyond the longest wait_ms of the API */

struct client {
    struct httpc main;  /* the connection of client_call */
    char *socket, *url; /* of server.json */
    char *state;        /* where the token lies */
    char instance_id[64], version[32];
    int64_t pid;
    uint16_t port;
    char token[64]; /* empty over the socket: the caller is the owner there */
    /* Called once, when the next request is on its way, in place of waiting for its answer. */
    int (*awaits)(void *arg, struct httpc *h);
    void *awaits_arg;
};

/* -ENOENT with code not_running when no daemon of this user answers. */
int client_open(const struct places *places, struct client **ret, struct err *err);
void client_close(struct client *c);
/* One more connection to the same daemon. */
int client_connect(struct client *c, struct httpc *ret);
/* Sends RQ (its token is set here) and waits for the answer; 0 whatever its status. */
int client_call(struct client *c, struct httpc_request *rq, struct err *err);
/* For exchanges the caller drives itself. */
int client_send(struct client *c, struct httpc *h, struct httpc_request *rq);
/* The problem document (RFC 9457) in an answer that is no success -> ERR; returns -EPROTO. */
int client_problem(int status, const struct str *body, struct err *err);
