/* Runs in: daemon. Reads: trusted (checked by the router). May block: no. */
#include "store/audit.h"
#include "api/handlers.h"
#include "api/state.h"
#include "base/clock.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERIFY_ROWS 500 /* a slice; the loop turns between two */

struct audit_args {
    struct page page;
    char *session, *actor, *action, *outcome, *target, *since, *until;
};
static const struct audit_args DEFAULTS = {.page.limit = PAGE_DEFAULT};
#define MEMBER(name)                                                                               \
    {                                                                                              \
#name, FIELD_STRING, offsetof(struct audit_args, name), 0, 1, 300, NULL, NULL              \
    }
static const struct field FIELDS[] = {PAGE_FIELDS(audit_args), MEMBER(session), MEMBER(actor),
                                      MEMBER(action),          MEMBER(outcome), MEMBER(target),
                                      MEMBER(since),           MEMBER(until),   FIELDS_END};
const struct shape AUDIT_QUERY = {FIELDS, sizeof(struct audit_args), &DEFAULTS};

static int time_take(struct request *rq, const char *name, const char *text, int64_t *ret)
{
    if (!text || clock_parse(text, ret) == 0)
        return 0;
    return request_bad_query(rq, name, "format",
                             "a time as in RFC 3339, e.g. 2026-12-01T09:30:00Z");
}

static int outcome_take(struct request *rq, const char *text)
{
    for (size_t i = 0; text && OUTCOME_NAMES[i]; i++)
        if (strcmp(OUTCOME_NAMES[i], text) == 0)
            return 0;
    return text ? request_bad_query(rq, "outcome", "format", "ok, refused or error") : 0;
}

int audit_show(struct request *rq)
{
    const struct audit_args *a = rq->args;
    struct audit_query q = {.session = a->session,
                            .actor = a->actor,
                            .action = a->action,
                            .outcome = a->outcome,
                            .target = a->target,
                            .limit = (unsigned)a->page.limit};
    uint64_t before = 0;
    json_t *items = NULL;
    int64_t next = 0;
    char cursor[24];
    int r = time_take(rq, "since", a->since, &q.since);
    if (r == 0)
        r = time_take(rq, "until", a->until, &q.until);
    if (r == 0)
        r = outcome_take(rq, a->outcome);
    if (r == 0 && a->page.cursor && parse_u64(a->page.cursor, 1, INT64_MAX, &before) < 0)
        r = request_bad_query(rq, "cursor", "format", "not a cursor of this list");
    q.before_seq = (int64_t)before;
    if (r == 0)
        r = audit_list(rq->api->d.db, &q, &items, &next);
    if (r < 0)
        return r;
    (void)snprintf(cursor, sizeof cursor, "%" PRId64, next);
    return reply_items(rq, items, next > 0 ? cursor : NULL);
}

/* ---- The chain, a slice a turn of the loop
 * --------------------------------------------------------- */

static void verify_more(struct request *rq, enum wake why)
{
    struct audit_verify *v = rq->state;
    if (why == WAKE_GONE)
        return;
    int more = audit_verify_step(rq->api->d.db, v, VERIFY_ROWS);
    if (more > 0) {
        request_park(rq, NULL, 0, verify_more);
        return;
    }
    json_t *out = json_pack("{s:b, s:I}", "ok", v->ok, "rows", (json_int_t)v->rows);
    if (out && v->broken_at > 0)
        (void)json_object_set_new(out, "broken_at", json_integer(v->broken_at));
    request_answer(rq, more < 0 ? more : reply_json(rq, 200, out));
    if (more < 0)
        json_decref(out);
}

int audit_check(struct request *rq)
{
    struct audit_verify *v = calloc(1, sizeof *v);
    if (!v)
        return -ENOMEM;
    rq->state = v;
    rq->state_done = free;
    request_park(rq, NULL, 0, verify_more);
    return 0;
}
