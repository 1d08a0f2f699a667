/* Runs in: daemon. Reads: hostile (frames of cordon-egress, which reads the world). May block: no.
 *
 * The answer table of the way out: cordon-egress asks for each request whether its host may be
 * reached, and tells what became of it. The decision, the counts and the audit rows are made here.
 * Its twin across the wall is egress/tell. */
#include "base/log.h"
#include "session/egress_parts.h"
#include "store/traffic.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* ---- Requests under way -----------------------------------------------------------------------
 */

static struct request **request_at(struct egress_link *l, uint32_t conn, uint32_t number)
{
    struct request **at = &l->requests;
    while (*at && ((*at)->conn != conn || (*at)->number != number))
        at = &(*at)->next;
    return at;
}

static void request_drop(struct egress_link *l, struct request **at)
{
    struct request *rq = *at;
    if (!rq)
        return;
    *at = rq->next;
    l->n_requests--;
    ask_leave(&rq->wait, false);
    free(rq);
}

void requests_drop(struct egress_link *l)
{
    while (l->requests)
        request_drop(l, &l->requests);
}

static struct request *request_add(struct egress_link *l, uint32_t conn, uint32_t number,
                                   const char *host, uint16_t port)
{
    struct request *rq = calloc(1, sizeof *rq);
    if (!rq)
        return NULL;
    rq->link = l;
    rq->conn = conn;
    rq->number = number;
    rq->port = port;
    (void)snprintf(rq->host, sizeof rq->host, "%s", host);
    rq->next = l->requests;
    l->requests = rq;
    l->n_requests++;
    return rq;
}

/* ---- The verdict ------------------------------------------------------------------------------
 */

/* What goes out goes through the proxy of this host's network, where there is one. */
static void put_via(struct egress_link *l, struct pack *p, uint32_t conn, uint32_t number,
                    const struct verdict_out *v)
{
    const struct request *rq = *request_at(l, conn, number);
    CLEANUP(str_done) struct str authorization = {0};
    char target[HOST_MAX + 10] = "";
    struct upstream up;
    bool is_of_network = (v->flags & ~EG_ALLOW_PRIVATE) == 0; /* not of this machine by grant */
    if (v->verdict == EG_ALLOW && is_of_network && rq && !rq->is_name &&
        session_via(l->s->ss, rq->host, rq->port, rq->door == EG_DOOR_HTTP, &up)) {
        host_port_text(up.host, up.port, target);
        if (upstream_authorization(&up, &authorization) < 0)
            p->r = -ENOMEM;
    }
    pack_str(p, target);
    pack_str(p, str_c(&authorization));
}

static int send_verdict(struct egress_link *l, uint32_t conn, uint32_t number,
                        const struct verdict_out *v)
{
    CLEANUP(pack_done) struct pack p = {0};
    pack_u32(&p, conn);
    pack_u32(&p, number);
    pack_u8(&p, (uint8_t)v->verdict);
    pack_u8(&p, v->flags);
    pack_str(&p, v->reason);
    pack_str(&p, v->rule);
    pack_str(&p, v->hint);
    put_via(l, &p, conn, number, v);
    return channel_send(&l->ch, M_EG_VERDICT, &p, NULL, 0);
}

/* Another server is named within a tunnel: judged by itself, never held. The tunnel's end is its
 * end. */
static int take_name(struct egress_link *l, uint32_t conn, uint32_t number, const char *host,
                     uint16_t port)
{
    const struct host_entry *why = NULL;
    struct verdict_out v;
    char rule[HOST_MAX + 60];
    const struct request *tunnel = *request_at(l, conn, number & ~EG_NAME_REQUEST);
    if (!(number & EG_NAME_REQUEST) || !tunnel || !tunnel->is_open || tunnel->port != port)
        return -EBADMSG;
    egress_judge(l->g, host, port, &v, &why);
    if (v.verdict == EG_ALLOW) {
        struct request *rq = request_add(l, conn, number, host, port);
        if (!rq)
            return -ENOMEM;
        rq->is_name = true;
        return send_verdict(l, conn, number, &v);
    }
    (void)snprintf(rule, sizeof rule, "the TLS name within a connection to %s", tunnel->host);
    v.verdict = EG_DENY;
    v.reason = "name_mismatch";
    v.rule = rule;
    session_blocked(l->s, host, port, v.reason, v.rule, v.hint);
    return send_verdict(l, conn, number, &v);
}

/* To a published port: what listens inside is asked for, and decides what is answered. */
static int publish_check(struct egress_link *l, uint32_t conn, uint32_t number, uint16_t port)
{
    if (!session_publishes(l->s, port))
        return -EBADMSG;
    struct request *rq = request_add(l, conn, number, "localhost", port);
    if (!rq)
        return -ENOMEM;
    rq->is_published = true;
    (void)snprintf(rq->rule, sizeof rq->rule, "publish %u", port);
    publish_connect(l->s, l, conn, number, port);
    return 0;
}

static void request_allowed(struct request *rq, const struct verdict_out *v,
                            const struct host_entry *why)
{
    rq->is_proof = v->verdict == EG_ANSWER_SELF;
    (void)snprintf(rq->rule, sizeof rq->rule, "%s", v->rule);
    if (why && why->rule.id)
        (void)snprintf(rq->site_id, sizeof rq->site_id, "%s", why->rule.id);
}

/* It was answered. An allowed one goes by the lists as they are now, but for `once`. */
static void held_over(struct ask_wait *w, const struct verdict_out *answer)
{
    struct request *rq = container_of(w, struct request, wait);
    struct egress_link *l = rq->link;
    const struct host_entry *why = NULL;
    struct verdict_out v = *answer;
    rq->is_held = false;
    rq->is_once = v.verdict == EG_ALLOW && strcmp(v.reason, "once") == 0;
    if (v.verdict == EG_ALLOW && !rq->is_once)
        egress_judge(l->g, rq->host, rq->port, &v, &why);
    if (v.verdict == EG_HOLD)
        v.reason = "not_listed";
    if (v.verdict == EG_ALLOW)
        request_allowed(rq, &v, why);
    else
        v.verdict = EG_DENY;
    if (!l->is_closing)
        (void)send_verdict(l, rq->conn, rq->number, &v);
    if (v.verdict == EG_ALLOW)
        return;
    session_blocked(l->s, rq->host, rq->port, v.reason, v.rule, v.hint);
    request_drop(l, request_at(l, rq->conn, rq->number));
}

/* Held until a person answers; or V is a refusal then. */
static void request_hold(struct request *rq, struct verdict_out *v)
{
    struct session *s = rq->link->s;
    rq->wait.over = held_over;
    ask_hold(s, ASKER_CONNECTION, rq->host, rq->port, &rq->wait, v);
    rq->is_held = v->verdict == EG_HOLD;
    for (struct command *c = s->commands; c && rq->is_held; c = command_next(c))
        if (command_is_running(c))
            command_asked(c, rq->wait.ask_id, rq->host, rq->port);
}

int take_check(struct egress_link *l, struct unpack *u)
{
    struct session *s = l->s;
    const struct host_entry *why = NULL;
    struct verdict_out v;
    char canonical[HOST_MAX];
    uint32_t conn = unpack_u32(u), number = unpack_u32(u);
    uint8_t door = unpack_u8(u);
    CLEANUP(freep) char *host = unpack_str(u, HOST_MAX - 1);
    uint16_t port = unpack_u16(u);
    int r = unpack_end(u);
    if (r < 0 || !host)
        return r < 0 ? r : -ENOMEM;
    if (door > EG_DOOR_PUBLISH || port == 0 || l->n_requests >= EGRESS_REQUESTS ||
        host_canonical(host, strlen(host), false, canonical) == HOST_BAD ||
        strcmp(host, canonical) != 0 || *request_at(l, conn, number))
        return -EBADMSG;
    if (door == EG_DOOR_TLS_NAME)
        return take_name(l, conn, number, host, port);
    if (door == EG_DOOR_PUBLISH)
        return publish_check(l, conn, number, port);
    egress_judge(l->g, host, port, &v, &why);
    bool proof = egress_is_proof_probe(l->g, host, port);
    if (v.verdict != EG_DENY) {
        struct request *rq = request_add(l, conn, number, host, port);
        if (!rq)
            return -ENOMEM;
        rq->door = door;
        request_allowed(rq, &v, why);
        if (v.verdict == EG_HOLD)
            request_hold(rq, &v);
        if (v.verdict == EG_DENY)
            request_drop(l, request_at(l, conn, number));
    }
    if (v.verdict == EG_DENY && !proof)
        session_blocked(s, host, port, v.reason, v.rule, v.hint);
    return send_verdict(l, conn, number, &v);
}

/* ---- What became of it ------------------------------------------------------------------------
 */

static void audit_opened(struct session *s, const struct request *rq, const char *address,
                         const char *detail, enum outcome outcome)
{
    char target[HOST_MAX + 10];
    host_port_text(rq->host, rq->port, target);
    json_t *after = json_pack("{s:s, s:s}", "rule", rq->rule, "address", address);
    if (*detail)
        (void)json_object_set_new(after, "detail", json_string(detail));
    session_audit(s, NULL, "connection.opened", target, after, outcome);
}

static void result_refused(struct session *s, const struct request *rq, const char *reason,
                           const char *detail)
{
    if (rq->site_id[0])
        (void)site_used(s->ss->deps.db, rq->site_id, true);
    session_blocked(s, rq->host, rq->port, reason, detail,
                    strcmp(reason, "address_class") == 0
                        ? "a private address is reached only by a site with allow_private"
                        : "");
}

static const char *refused_reason(uint8_t outcome)
{
    switch ((enum eg_outcome)outcome) {
    case EG_ADDRESS_CLASS:
        return "address_class";
    case EG_OWN_PORT:
        return "own_port";
    case EG_RESOLVE_FAILED:
        return "resolve_failed";
    case EG_FAILED:
    case EG_OPENED:
    case EG_CONNECT_FAILED:
    case EG_TIMED_OUT:
        return NULL;
    }
    return NULL;
}

int take_result(struct egress_link *l, struct unpack *u)
{
    struct session *s = l->s;
    uint32_t conn = unpack_u32(u), number = unpack_u32(u);
    uint8_t outcome = unpack_u8(u);
    CLEANUP(freep) char *address = unpack_str(u, 128);
    CLEANUP(freep) char *detail = unpack_str(u, 1024);
    int r = unpack_end(u);
    if (r < 0 || !address || !detail)
        return r < 0 ? r : -ENOMEM;
    struct request **at = request_at(l, conn, number), *rq = *at;
    if (!rq || outcome > EG_TIMED_OUT || rq->is_open || rq->is_held || rq->is_name ||
        !utf8_is_valid(address, strlen(address)) || !utf8_is_valid(detail, strlen(detail)))
        return -EBADMSG;
    if (rq->is_proof) {
        request_drop(l, at);
        return 0;
    }
    if (outcome == EG_OPENED) {
        rq->is_open = true;
        if (rq->site_id[0])
            (void)site_used(s->ss->deps.db, rq->site_id, false);
        (void)traffic_count(s->ss->deps.db, rq->host, rq->port, TRAFFIC_ALLOWED);
        audit_opened(s, rq, address, detail, OUTCOME_OK);
        return 0;
    }
    const char *reason = refused_reason(outcome);
    if (reason)
        result_refused(s, rq, reason, detail);
    else
        audit_opened(s, rq, address, detail, OUTCOME_ERROR);
    request_drop(l, at);
    return 0;
}

void egress_link_give(struct egress_link *l, uint32_t conn, uint32_t number, int take_fd,
                      const char *why)
{
    struct request **at = request_at(l, conn, number), *rq = *at;
    if (rq && rq->is_published && !rq->is_open && take_fd >= 0) {
        CLEANUP(pack_done) struct pack p = {0};
        pack_u32(&p, conn);
        pack_u32(&p, number);
        (void)channel_send(&l->ch, M_EG_SOCKET, &p, &take_fd, 1);
    } else if (rq && rq->is_published && !rq->is_open) {
        const struct verdict_out v = {.reason = "not_listed", .rule = why};
        audit_opened(l->s, rq, "", why, OUTCOME_ERROR);
        request_drop(l, at);
        (void)send_verdict(l, conn, number, &v);
    }
    fd_close(take_fd);
}

int take_closed(struct egress_link *l, struct unpack *u)
{
    char target[HOST_MAX + 10];
    uint32_t conn = unpack_u32(u), number = unpack_u32(u);
    uint64_t up = unpack_u64(u), down = unpack_u64(u);
    uint8_t opaque = unpack_u8(u);
    int r = unpack_end(u);
    if (r < 0)
        return r;
    struct request **at = request_at(l, conn, number), *rq = *at;
    if (!rq) /* one that was refused, or failed: told before */
        return 0;
    if (rq->is_name)
        return -EBADMSG;
    if (!rq->is_held && !rq->is_open) /* it gave up, and crossed our verdict: its result comes */
        return 0;
    struct request **name = request_at(l, conn, number | EG_NAME_REQUEST);
    if (rq->is_open) {
        host_port_text(rq->host, rq->port, target);
        json_t *after =
            json_pack("{s:s, s:I, s:I, s:b}", "rule", rq->rule, "up_bytes", (json_int_t)up,
                      "down_bytes", (json_int_t)down, "opaque", opaque != 0);
        if (*name)
            (void)json_object_set_new(after, "tls_name", json_string((*name)->host));
        session_audit_soon(l->s, "connection.closed", target, after, OUTCOME_OK);
    }
    if (*name)
        request_drop(l, name);
    request_drop(l, request_at(l, conn, number));
    return 0;
}

/* The egress is gone, and with it what was open. */
void requests_lost(struct egress_link *l)
{
    while (l->requests) {
        const struct request *rq = l->requests;
        if (rq->is_open) {
            char target[HOST_MAX + 10];
            host_port_text(rq->host, rq->port, target);
            session_audit(l->s, NULL, "connection.closed", target,
                          json_pack("{s:s, s:s}", "rule", rq->rule, "detail", "the egress ended"),
                          OUTCOME_ERROR);
        }
        request_drop(l, &l->requests);
    }
}

int take_refused(struct egress_link *l, struct unpack *u)
{
    (void)unpack_u32(u);
    CLEANUP(freep) char *host = unpack_str(u, 1024);
    CLEANUP(freep) char *why = unpack_str(u, 1024);
    int r = unpack_end(u);
    if (r < 0 || !host || !why)
        return r < 0 ? r : -ENOMEM;
    if (!utf8_is_valid(host, strlen(host)) || !utf8_is_valid(why, strlen(why)))
        return -EBADMSG;
    session_refusal(l->s, host, json_pack("{s:s}", "detail", why));
    return 0;
}

/* ---- What lists and others change --------------------------------------------------------------
 */

void egress_link_recheck(struct egress_link *l)
{
    const struct host_entry *why;
    struct verdict_out v;
    bool must_end = false;
    if (!l || l->is_closing)
        return;
    for (struct request *rq = l->requests; rq; rq = rq->next) {
        if (rq->is_proof || rq->is_published || rq->is_held || rq->is_once)
            continue;
        egress_judge(l->g, rq->host, rq->port, &v, &why);
        if (v.verdict == EG_ALLOW)
            continue;
        CLEANUP(pack_done) struct pack p = {0};
        pack_u32(&p, rq->conn);
        must_end |= channel_send(&l->ch, M_EG_CUT, &p, NULL, 0) < 0;
    }
    if (must_end) { /* what was taken back stays open in no case */
        log_warn("egress.cut", "session=%s a connection could not be cut", l->s->id);
        child_kill(&l->child, SIGKILL);
    }
}
