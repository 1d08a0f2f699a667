/* Asks: may this session reach host:port? A question to a person, as a durable resource.
 *
 * One open ask per session, host and port; whoever wants the same joins it. The block comes first:
 * who raises one was refused, or waits. Life: OPEN, and once, for good, DECIDED (a person
 * answered), EXPIRED (nobody did: that is deny, and the next try asks again), CANCELLED (the
 * session ended, or nobody is asked any more) or SUPERSEDED (the site was allowed elsewhere). A
 * given deny holds for the session. Each change is recorded (store/asks) and stands in the audit.
 *
 * Who is held embeds a struct ask_wait:
 *
 *     site_judge(s, tier, network, ASKER_WEB_FETCH, host, port, &v, &why);
 *     if (v.verdict == EG_HOLD)
 *         ask_hold(s, ASKER_WEB_FETCH, host, port, &call->wait, &v);   // else v is the verdict
 *     …                                             // call->wait.over(&call->wait, &v), once; or
 *     ask_leave(&call->wait, true);                 // it answers 202 with wait.ask_id
 *     …                                             // the same call again, with that ask_id:
 *     ask_use(s, ask_id, host, port, &v);           // EG_HOLD: still open, ask_hold again */
#pragma once
#include "base/clock.h"
#include "base/err.h"
#include "base/watch.h"
#include "store/audit.h"
#include "store/db.h"
#include <jansson.h>
#include <stdbool.h>

#define ASKS_OPEN_MAX   30  /* of one session */
#define ASKS_HELD_MAX   64  /* waits of one session */
#define ASKS_DENIED_MAX 256 /* given denies that a session remembers: the oldest goes */
#define ASK_REASON_MAX  500 /* bytes */
#define ASK_LIFE_MAX_MS ((int64_t)3600000) /* with what was added to it */

enum asker { ASKER_AGENT = 0, ASKER_CONNECTION, ASKER_WEB_FETCH, ASKER_WEB_SEARCH };
enum ask_answer { ANSWER_DENY = 0, ANSWER_ONCE, ANSWER_SESSION, ANSWER_ALWAYS };
enum ask_state { ASK_OPEN = 0, ASK_DECIDED, ASK_EXPIRED, ASK_CANCELLED, ASK_SUPERSEDED };
extern const char *const ASKER_NAMES[];  /* "agent" "connection" "web_fetch" "web_search" NULL */
extern const char *const ANSWER_NAMES[]; /* "deny" "once" "session" "always" NULL */

struct ask;
struct session;
struct sessions;
struct verdict_out;

/* ---- Who waits (this room) ---------------------------------------------------------------- */

struct ask_wait {
    /* Once, with EG_ALLOW or EG_DENY; it waits no longer then, and may be freed or held anew in
     * here. Allowed by `once`, v->reason is "once": it holds for this request alone, and no site
     * covers it. */
    void (*over)(struct ask_wait *w, const struct verdict_out *v);
    char ask_id[ID_MAX]; /* of the ask it was held by last; for the 202 */
    /* internal */
    struct ask *ask; /* NULL: does not wait */
    struct ask_wait *next;
    enum asker by;
};
/* W waits for the answer, with the one open ask of host:port, which is made if there is none. host
 * is canonical, port not 0. Does not call W->over. *V becomes EG_HOLD; or, when it cannot wait (too
 * many asks or waits, no memory), EG_DENY with the reason, and W does not wait. */
void ask_hold(struct session *s, enum asker by, const char *host, uint16_t port, struct ask_wait *w,
              struct verdict_out *v);
/* W gives up, and its `over` is not called; the ask stays. Does nothing when W does not wait.
 * RETURNS: its caller was told the ask's id and will ask again with it (202): `once` stays on offer
 * for that. */
void ask_leave(struct ask_wait *w, bool returns);
/* The same call again with the id of an ask: *V is EG_ALLOW (a `once` is spent by that), EG_DENY,
 * or EG_HOLD: not answered, hold it again. -ENOENT: no ask of this session for host:port. What was
 * answered `session` or `always` is judged by the lists as they are now. */
int ask_use(struct session *s, const char *ask_id, const char *host, uint16_t port,
            struct verdict_out *v);

/* ---- The agent asks; a person answers (api) ----------------------------------------------- */

/* *RET is the ask: a new one, or with *RET_JOINED the open one for host:port. reason NULL or at
 * most ASK_REASON_MAX bytes. ERR: site_invalid, private_address, network_none, already_allowed,
 * asks_off, ask_denied, too_many, session_ended, disk_full. */
int session_ask(struct session *s, const char *host, int port, const char *reason,
                const struct actor *actor, json_t **ret, bool *ret_joined, struct err *err);

struct ask_decision {
    enum ask_answer answer;
    const char *host; /* NULL = the host asked for; else one of that answer's hosts */
    const char *note; /* or NULL */
};
/* Exactly once. *RET is the ask as it is then. ERR: not_found; ask_closed (*RET_DECIDED is then its
 * `decided`, or NULL when nobody decided); answer_not_offered; body_invalid with /host; too_many,
 * exists, disk_full: it stays open. */
int ask_decide(struct sessions *ss, const char *id, const struct ask_decision *d,
               const struct actor *actor, json_t **ret, json_t **ret_decided, struct err *err);
/* One asks.expiry_ms more, up to ASK_LIFE_MAX_MS in all. ERR: not_found, ask_closed. */
int ask_extend(struct sessions *ss, const char *id, const struct actor *actor, json_t **ret,
               json_t **ret_decided, struct err *err);
/* The ask as it is, open or not; -ENOENT. *ret_open: whether it can still be answered. */
int ask_show(struct sessions *ss, const char *id, json_t **ret, bool *ret_open);
/* Changes whenever any ask does; for long polls. */
struct watched *asks_watched(struct sessions *ss);
