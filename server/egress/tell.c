/* Runs in: egress. Reads: hostile (texts of the client, escaped). May block: no.
 *
 * What the daemon is asked and told of a connection. */
#include "base/mem.h"
#include "egress/conn_parts.h"

#define CHECK_MS (3700 * UINT64_C(1000)) /* a held answer may take an hour */

static void tell_closed(struct conn *c)
{
    struct pack p = {0};
    pack_u32(&p, c->id);
    pack_u32(&p, c->request);
    pack_u64(&p, c->to_up.bytes);
    pack_u64(&p, c->to_client.bytes);
    pack_u8(&p, (c->is_tunnel || c->state == CONN_TUNNEL) && !c->is_named);
    link_send(&c->eg->link, M_EG_CLOSED, &p);
    c->owed = OWED_NOTHING;
}

void tell_result(struct conn *c, enum eg_outcome outcome, const char *address, const char *detail)
{
    struct pack p = {0};
    if (c->owed == OWED_CLOSED) { /* dialled anew: the daemon was told of the first time */
        if (outcome != EG_OPENED)
            tell_closed(c);
        return;
    }
    pack_u32(&p, c->id);
    pack_u32(&p, c->request);
    pack_u8(&p, (uint8_t)outcome);
    pack_str(&p, address);
    pack_str(&p, detail);
    link_send(&c->eg->link, M_EG_RESULT, &p);
    c->owed = outcome == EG_OPENED ? OWED_CLOSED : OWED_NOTHING;
}

void tell_end(struct conn *c, const char *why)
{
    if (c->owed == OWED_RESULT)
        tell_result(c, EG_FAILED, "", why);
    if (c->owed == OWED_CLOSED)
        tell_closed(c);
}

/* HOST as it came, N bytes, may be anything. */
void tell_refused(struct conn *c, const char *host, size_t n, const char *why)
{
    CLEANUP(str_done) struct str text = {0};
    struct pack p = {0};
    (void)str_put_escaped(&text, host, n < 100 ? n : 100);
    pack_u32(&p, c->id);
    pack_str(&p, str_c(&text));
    pack_str(&p, why);
    link_send(&c->eg->link, M_EG_REFUSED, &p);
}

void request_check(struct conn *c)
{
    struct pack p = {0};
    pack_u32(&p, c->id);
    pack_u32(&p, c->request);
    pack_u8(&p, (uint8_t)c->door);
    pack_str(&p, c->host);
    pack_u16(&p, c->port);
    c->state = CONN_CHECKING;
    head_drop(c);
    free(TAKE(c->socks));
    peer_want(c->client, 0);
    deadline_set(&c->deadline, CHECK_MS);
    link_send(&c->eg->link, M_EG_CHECK, &p);
}
