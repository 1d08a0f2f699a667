/* Runs in: daemon. Reads: trusted (checked by the router). May block: no.
 *
 * What was refused, and how much was let through. */
#include "store/blocked.h"
#include "api/handlers.h"
#include "api/session_parts.h"
#include "api/state.h"
#include "store/traffic.h"
#include <errno.h>

static const char *const GROUPS[] = {"none", "host", NULL};
struct blocked_args {
    struct page page;
    int group;
    char *command;
};
static const struct field BLOCKED_FIELDS[] = {
    PAGE_FIELDS(blocked_args),
    {"group", FIELD_ENUM, offsetof(struct blocked_args, group), 0, 0, 0, GROUPS, NULL},
    FIELDS_END};
static const struct field SESSION_BLOCKED_FIELDS[] = {
    PAGE_FIELDS(blocked_args),
    {"command", FIELD_STRING, offsetof(struct blocked_args, command), 0, 1, 40, NULL, NULL},
    FIELDS_END};
static const struct blocked_args DEFAULTS = {.page.limit = PAGE_DEFAULT};
const struct shape BLOCKED_QUERY = {BLOCKED_FIELDS, sizeof(struct blocked_args), &DEFAULTS};
const struct shape SESSION_BLOCKED_QUERY = {SESSION_BLOCKED_FIELDS, sizeof(struct blocked_args),
                                            &DEFAULTS};

static const char *const BUCKETS[] = {"hour", NULL};
struct stats_args {
    int bucket;
};
static const struct field STATS_FIELDS[] = {
    {"bucket", FIELD_ENUM, offsetof(struct stats_args, bucket), 0, 0, 0, BUCKETS, NULL},
    FIELDS_END};
const struct shape STATS_QUERY = {STATS_FIELDS, sizeof(struct stats_args), NULL};

static int blocked_page(struct request *rq, const char *session_id)
{
    const struct blocked_args *in = rq->args;
    struct blocked_query q = {.session_id = session_id,
                              .command_id = in->command,
                              .cursor = in->page.cursor,
                              .limit = (unsigned)in->page.limit};
    char next[BLOCKED_CURSOR];
    json_t *items = NULL;
    int r = in->group ? blocked_by_host(rq->api->d.db, &q, &items, next)
                      : blocked_list(rq->api->d.db, &q, &items, next);

    if (r == -EINVAL)
        return request_bad_query(rq, "cursor", "format", "not a cursor of this list");
    return r < 0 ? r : reply_items(rq, items, next[0] ? next : NULL);
}

int blocked_show(struct request *rq)
{
    return blocked_page(rq, NULL);
}

int session_blocked_show(struct request *rq)
{
    const struct blocked_args *in = rq->args;
    struct session *s;
    json_t *doc = NULL;
    int r = session_any(rq, &s, &doc);

    json_decref(doc);
    if (r < 0)
        return r;
    if (in->command && !id_is(in->command, "cmd"))
        return request_bad_query(rq, "command", "format", "not the id of a command");
    return blocked_page(rq, rq->params[0]);
}

int stats_show(struct request *rq)
{
    json_t *stats = NULL;
    int r = traffic_stats(rq->api->d.db, &stats);

    return r < 0 ? r : reply_json(rq, 200, stats);
}
