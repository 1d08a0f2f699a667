/* Runs in: daemon. Reads: trusted (checked by the router). May block: no.
 *
 * GET /events: the ring of store/events, from a number on. A reader that follows keeps one number
 * and is woken when something comes: it costs the daemon no queue, and delays nobody. */
#include "store/events.h"
#include "api/handlers.h"
#include "api/state.h"
#include "base/mem.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FILL_BYTES (64 << 10) /* gathered before a reader is given more */
#define POLL_MAX   500        /* events in one answer of the long-poll form */
#define PACE_MS    20         /* between two wakings of a follower */

struct events_query {
    char *types, *session, *after;
    int64_t wait_ms;
};
#define AT(member) offsetof(struct events_query, member)
static const struct field EVENTS_FIELDS[] = {
    {"types", FIELD_STRING, AT(types), 0, 1, 300, NULL, NULL},
    {"session", FIELD_STRING, AT(session), 0, 1, 40, NULL, NULL},
    {"after", FIELD_STRING, AT(after), 0, 1, 40, NULL, NULL},
    {"wait_ms", FIELD_INT, AT(wait_ms), 0, 0, API_WAIT_MAX, NULL, NULL},
    FIELDS_END};
const struct shape EVENTS_QUERY = {EVENTS_FIELDS, sizeof(struct events_query), NULL};

struct following {
    uint64_t after;
    struct event_filter filter;
    bool is_stale;  /* its number was of another start of the daemon */
    bool has_begun; /* it was given where it stands */
    bool is_over;
    json_t *events; /* long-poll form */
};

static void following_done(void *state)
{
    struct following *f = state;

    json_decref(f->events);
    free(f);
}

/* ---- What is asked for ------------------------------------------------------------------------
 */

/* What ends or restarts a stream comes to everybody, named or not. */
static bool is_control(const char *name, size_t n)
{
    static const char *const NAMES[] = {"reset", "revoked", "shutdown"};

    for (size_t i = 0; i < ARRAY_LEN(NAMES); i++)
        if (strlen(NAMES[i]) == n && memcmp(NAMES[i], name, n) == 0)
            return true;
    return false;
}

static int types_take(struct request *rq, const char *list, unsigned *ret)
{
    *ret = 0;
    while (*list) {
        size_t n = strcspn(list, ","), i = 0;
        while (EVENT_TYPE_NAMES[i] &&
               (strlen(EVENT_TYPE_NAMES[i]) != n || memcmp(EVENT_TYPE_NAMES[i], list, n) != 0))
            i++;
        if (!EVENT_TYPE_NAMES[i] && !is_control(list, n))
            return request_bad_query(rq, "types", "format",
                                     "a list of session, command, file, web, ask, blocked, site, "
                                     "credential, toolchain, settings, project, wall, audit");
        if (EVENT_TYPE_NAMES[i])
            *ret |= 1U << i;
        list += n + (list[n] == ',');
    }
    return 0;
}

/* Nobody is told of what he may not read. */
static int filter_take(struct request *rq, const struct events_query *q, struct following *f)
{
    const struct caller *c = &rq->caller;
    const char *session = q->session;
    int r;

    f->filter.types = (1U << EVENT_TYPES) - 1;
    if (q->types && (r = types_take(rq, q->types, &f->filter.types)) < 0)
        return r;
    if (!(c->scopes & SCOPE_CREDENTIALS))
        f->filter.types &= ~(1U << EVENT_CREDENTIAL);
    if (session && !id_is(session, "ses"))
        return request_bad_query(rq, "session", "format", "not the id of a session");
    if (c->session_id[0]) {
        if (session && strcmp(session, c->session_id) != 0)
            return request_not_found(rq, "session");
        session = c->session_id;
        f->filter.types &= ~(1U << EVENT_AUDIT);
    }
    f->filter.session_id = session; /* it lives as long as the request */
    return 0;
}

/* "<boot>-<seq>"; of another boot, or of none of ours: all is to be read anew. */
static int after_take(struct request *rq, const char *text, const char *boot, struct following *f)
{
    size_t n = EVENTS_BOOT - 1;

    if (strlen(text) < n + 2 || strspn(text, "0123456789abcdef") != n || text[n] != '-' ||
        parse_u64(text + n + 1, 0, 1ULL << 53, &f->after) < 0)
        return request_bad_query(rq, "after", "format", "not the id of an event");
    f->is_stale = memcmp(text, boot, n) != 0;
    return 0;
}

static int following_new(struct request *rq, bool is_stream, struct following **ret)
{
    const struct events_query *q = rq->args;
    const char *after = is_stream && rq->head.last_event_id ? rq->head.last_event_id : q->after;
    struct following *f = calloc(1, sizeof *f);
    int r;

    if (!f)
        return -ENOMEM;
    rq->state = f;
    rq->state_done = following_done;
    if ((r = filter_take(rq, q, f)) < 0)
        return r;
    f->after = events_last(rq->api->d.db);
    *ret = f;
    return after ? after_take(rq, after, events_boot(rq->api->d.db), f) : 0;
}

/* The next event as JSON in OUT: 1; 0 = none at present. A reset is one, and *ret_reset then. */
static int next_put(struct request *rq, struct following *f, struct str *out, bool *ret_reset)
{
    struct event_seen seen;
    char at[CLOCK_TEXT_MAX];
    int r = f->is_stale ? -ESTALE : events_next(rq->api->d.db, f->after, &f->filter, &seen);

    if (f->is_stale)
        seen.seq = events_last(rq->api->d.db);
    f->is_stale = false;
    f->after = seen.seq;
    *ret_reset = r == -ESTALE;
    if (r == 0 || r == -ENOMEM)
        return r;
    if (r > 0)
        return str_puts(out, seen.json) < 0 ? -ENOMEM : 1;
    clock_text(clock_wall_ms(), at);
    return str_printf(out, "{\"type\":\"reset\",\"at\":\"%s\"}", at) < 0 ? -ENOMEM : 1;
}

/* ---- The stream -------------------------------------------------------------------------------
 */

static int id_put(struct request *rq, const struct following *f, struct str *out)
{
    return str_printf(out, "id: %s-%" PRIu64 "\n", events_boot(rq->api->d.db), f->after);
}

/* A comment, and the place to resume from: an id without data is no event, and is remembered (HTML
 * standard, 9.2.6). Without it who filters much would come back with a number long gone. */
static int place_put(struct request *rq, const struct following *f, struct str *out,
                     const char *comment)
{
    int r = str_printf(out, ": %s\n", comment);

    if (r >= 0)
        r = id_put(rq, f, out);
    return r < 0 ? r : str_putc(out, '\n');
}

static int event_put(struct request *rq, const struct following *f, struct str *out,
                     const char *json)
{
    int r = id_put(rq, f, out);

    return r < 0 ? r : str_printf(out, "data: %s\n\n", json);
}

static int events_fill(struct request *rq, struct str *out)
{
    CLEANUP(str_done) struct str one = {0};
    struct following *f = rq->state;
    bool was_begun = f->has_begun, is_reset = false;
    int r = 1;

    if (f->is_over)
        return -1;
    if (!was_begun && !f->is_stale && place_put(rq, f, out, "cordon") < 0)
        return -1;
    f->has_begun = true;
    while (out->len < FILL_BYTES && !f->is_over && (r = next_put(rq, f, &one, &is_reset)) > 0) {
        if (event_put(rq, f, out, str_c(&one)) < 0)
            return -1;
        f->is_over = is_reset && was_begun; /* too slow: cut */
        str_clear(&one);
    }
    return r < 0 ? -1 : out->len > 0 ? 1 : 0;
}

static void events_keepalive(struct request *rq, struct str *out)
{
    (void)place_put(rq, rq->state, out, "keepalive");
}

static void events_ending(struct request *rq, struct str *out, const char *code)
{
    char at[CLOCK_TEXT_MAX];
    CLEANUP(str_done) struct str json = {0};

    clock_text(clock_wall_ms(), at);
    if (str_printf(&json, "{\"type\":\"%s\",\"at\":\"%s\"}",
                   strcmp(code, "shutting_down") == 0 ? "shutdown" : "revoked", at) >= 0)
        (void)event_put(rq, rq->state, out, str_c(&json));
}
static const struct stream EVENTS = {events_fill, events_keepalive, events_ending, PACE_MS};

/* ---- The long-poll form -----------------------------------------------------------------------
 */

static int collect(struct request *rq, struct following *f)
{
    CLEANUP(str_done) struct str one = {0};
    bool is_reset;
    int r = 0;

    while (json_array_size(f->events) < POLL_MAX && (r = next_put(rq, f, &one, &is_reset)) > 0) {
        if (json_array_append_new(f->events, json_loads(str_c(&one), 0, NULL)) < 0)
            return -ENOMEM;
        str_clear(&one);
    }
    return r < 0 ? r : 0;
}

static int poll_reply(struct request *rq, struct following *f)
{
    char next[EVENTS_BOOT + 24];

    (void)snprintf(next, sizeof next, "%s-%" PRIu64, events_boot(rq->api->d.db), f->after);
    return reply_json(rq, 200, json_pack("{s:o, s:s}", "events", TAKE(f->events), "next", next));
}

static void on_event(struct request *rq, enum wake why)
{
    struct following *f = rq->state;
    int r;

    if (why == WAKE_GONE)
        return;
    r = collect(rq, f);
    if (r < 0)
        request_answer(rq, r);
    else if (why == WAKE_TIMEOUT || json_array_size(f->events) > 0)
        request_answer(rq, poll_reply(rq, f));
}

static int poll_start(struct request *rq, struct following *f)
{
    const struct events_query *q = rq->args;
    int r;

    f->events = json_array();
    r = f->events ? collect(rq, f) : -ENOMEM;
    if (r < 0)
        return r;
    if (json_array_size(f->events) > 0 || q->wait_ms == 0)
        return poll_reply(rq, f);
    request_park(rq, events_watched(rq->api->d.db), (uint64_t)q->wait_ms, on_event);
    return 0;
}

/* ---- The request ------------------------------------------------------------------------------
 */

int events_follow(struct request *rq)
{
    const struct events_query *q = rq->args;
    bool any = !rq->head.accept || !*rq->head.accept || request_accepts(rq, "*/*");
    bool is_stream =
        any || request_accepts(rq, "text/event-stream") || request_accepts(rq, "text/*");
    struct following *f = NULL;
    int r;

    if (!is_stream && !request_accepts(rq, "application/json"))
        return request_refuse(rq, "not_acceptable", NULL, "text/event-stream or application/json");
    if (any && request_accepts(rq, "application/json"))
        is_stream = request_accepts(rq, "text/event-stream");
    if (is_stream && q->wait_ms)
        return request_bad_query(rq, "wait_ms", "conflict",
                                 "of the form application/json; a stream does not end");
    if ((r = following_new(rq, is_stream, &f)) < 0)
        return r;
    if (!is_stream)
        return poll_start(rq, f);
    if ((r = api_stream_allowed(rq)) < 0)
        return r;
    rq->reply.content_type = "text/event-stream";
    request_stream(rq, &EVENTS, events_watched(rq->api->d.db));
    return 0;
}
