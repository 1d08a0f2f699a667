/* Runs in: egress. Reads: hostile. May block: no.
 *
 * The door of programs that know nothing of a proxy: the kernel tells where they meant to go, and
 * the name that this address stands for is what is judged. They see a connection that is there at
 * once; a refusal is a reset. */
#include "egress/conn_parts.h"
#include "egress/names.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#define FIRST_BYTES_MS 200 /* for a client that waits for the server to speak first */

static uint16_t port_of(const struct sockaddr_storage *sa)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    memcpy(&v4, sa, sizeof v4);
    memcpy(&v6, sa, sizeof v6);
    return ntohs(sa->ss_family == AF_INET6 ? v6.sin6_port : v4.sin_port);
}

static void address_text(const struct sockaddr_storage *sa, char ret[static INET6_ADDRSTRLEN])
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    memcpy(&v4, sa, sizeof v4);
    memcpy(&v6, sa, sizeof v6);
    if (!(sa->ss_family == AF_INET6 ? inet_ntop(AF_INET6, &v6.sin6_addr, ret, INET6_ADDRSTRLEN)
                                    : inet_ntop(AF_INET, &v4.sin_addr, ret, INET6_ADDRSTRLEN)))
        ret[0] = '\0';
}

/* A reset at once meets clients between their connect and their first bytes, where some take it for
 * nothing at all: one of them then waits for ever, another ends without a word. */
void redirect_reset(struct conn *c)
{
    tell_end(c, "");
    up_drop(c, true);
    c->state = CONN_RESETTING;
    deadline_set(&c->deadline, FIRST_BYTES_MS);
    peer_want(c->client, UV_READABLE);
}

static void redirect_refuse(struct conn *c, const char *address, const char *why)
{
    tell_refused(c, address, strlen(address), why);
    redirect_reset(c);
}

void redirect_request(struct conn *c, const struct sockaddr_storage *wanted)
{
    char address[INET6_ADDRSTRLEN], canonical[HOST_MAX];
    const char *host = names_host(c->eg->names, (const struct sockaddr *)wanted);
    address_text(wanted, address);
    c->door = EG_DOOR_REDIRECT;
    c->is_tunnel = true;
    c->request = 1;
    c->port = port_of(wanted);
    if (c->over_limit) {
        const char *at = host != NULL ? host : address;
        tell_refused(c, at, strlen(at), "too many connections at once");
        conn_close(c, true); /* at once: what waits takes the place of another */
        return;
    }
    if (c->port == 0) {
        redirect_refuse(c, host != NULL ? host : address, "port 0 is no port");
        return;
    }
    if (host == NULL && synthetic_is((const struct sockaddr *)wanted)) {
        redirect_refuse(c, address, "an address of this session that stands for no name");
        return;
    }
    if (host == NULL) {
        if (host_canonical(address, strlen(address), false, canonical) == HOST_BAD) {
            redirect_refuse(c, address, "no address that can be judged");
            return;
        }
        host = canonical;
    }
    snprintf(c->host, sizeof c->host, "%s", host);
    request_check(c);
}
