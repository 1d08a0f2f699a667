/* What changed, told once to whoever follows: a ring in memory beside the tables. Only pointers to
 * things go through it ({type, id, session_id?, rev, change, at}); who is told then GETs the thing.
 *
 * Emitting never fails and never waits: a reader asks for what comes after the last number it has,
 * and one that was left behind by EVENTS_MAX is told so (-ESTALE) and begins anew. An update of a
 * thing whose last event no reader has had yet takes that event's place, so that a thing that
 * changes a thousand times in one turn is one event. When a group of writes is rolled back, all
 * who follow are told to begin anew: what they were told of may not be.
 *
 *     events_emit(db, &(struct event){EVENT_ASK, EVENT_CREATED, ask->id, ask->session_id,
 * ask->rev});
 */
#pragma once
#include "base/watch.h"
#include "store/db.h"
#include <jansson.h>

#define EVENTS_MAX     10000     /* kept; older ones are gone */
#define EVENTS_BYTES   (4 << 20) /* of their ids and the like; past it fewer are kept */
#define EVENT_ID_BYTES 4096      /* of an id; a longer one is cut */
#define EVENTS_BOOT    9         /* 8 hex digits of this start of the daemon, and NUL */

enum event_type {
    EVENT_SESSION = 0,
    EVENT_COMMAND,
    EVENT_FILE,
    EVENT_WEB,
    EVENT_ASK,
    EVENT_BLOCKED,
    EVENT_SITE,
    EVENT_CREDENTIAL,
    EVENT_TOOLCHAIN,
    EVENT_SETTINGS,
    EVENT_PROJECT,
    EVENT_WALL,
    EVENT_AUDIT,
    EVENT_TYPES
};
extern const char *const EVENT_TYPE_NAMES[]; /* NULL-terminated */
enum event_change { EVENT_CREATED = 0, EVENT_UPDATED, EVENT_REMOVED };
extern const char *const EVENT_CHANGE_NAMES[];

struct event {
    enum event_type type;
    enum event_change change;
    /* Of the thing: "ask_…". A file's path; "host:port" of blocked; "settings"; "wall". Bytes that
     * are not UTF-8 are escaped. */
    const char *id;
    const char *session_id; /* or NULL: of no session */
    int64_t rev;            /* of the thing, or a number that grows; 0 = the event's own */
    /* Of command, file and web; or NULL. Borrowed. */
    const json_t *enforcement, *origin;
};
void events_emit(struct db *db, const struct event *e);

/* ---- Reading (api/events.c) ------------------------------------------------------------------ */

const char *events_boot(struct db *db);        /* changes with each start */
uint64_t events_last(struct db *db);           /* number of the newest, 0 = none yet */
struct watched *events_watched(struct db *db); /* something came */
struct event_filter {
    unsigned types;         /* 1 << enum event_type */
    const char *session_id; /* NULL = any, and what belongs to no session */
};
struct event_seen {
    uint64_t seq;
    enum event_type type;
    const char *json; /* its data; borrowed until the next call here */
};
/* The first event behind AFTER that FILTER lets through: 1 and RET; 0 when there is none, then
 * RET->seq is the number of the newest, from which to ask on. -ESTALE: AFTER is older than the
 * ring, or everything must be read anew; RET->seq is the number to go on from. -ENOMEM. */
int events_next(struct db *db, uint64_t after, const struct event_filter *filter,
                struct event_seen *ret);
