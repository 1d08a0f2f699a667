/* Runs in: daemon. Reads: trusted; ids may be paths of any bytes. May block: no. */
#include "store/events.h"
#include "base/clock.h"
#include "base/mem.h"
#include "store/canonical.h"
#include "store/db_impl.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *const EVENT_TYPE_NAMES[] = {"session", "command", "file",       "web",       "ask",
                                        "blocked", "site",    "credential", "toolchain", "settings",
                                        "project", "wall",    "audit",      NULL};
const char *const EVENT_CHANGE_NAMES[] = {"created", "updated", "removed", NULL};

/* How far back an event is looked for that nobody has had yet. */
#define MERGE_LOOK 64

struct slot {
    uint64_t hash; /* of type, session and id */
    enum event_type type;
    enum event_change change;
    char session_id[ID_MAX];
    size_t id_len;
    char *text; /* the id as it came and a NUL; then the JSON */
};
struct events {
    char boot[EVENTS_BOOT];
    uint64_t last;  /* number of the newest, counted from 1 */
    uint64_t floor; /* whoever is at an older one begins anew */
    uint64_t had;   /* some reader has had all up to this one */
    struct watched watched;
    struct slot *slots; /* EVENTS_MAX; number N lies at N % EVENTS_MAX */
    struct str scratch;
};

static struct events *events_of(struct db *db)
{
    unsigned char boot[4];
    struct events *ev = db->events;

    if (ev)
        return ev;
    ev = calloc(1, sizeof *ev);
    if (!ev)
        return NULL;
    ev->slots = calloc(EVENTS_MAX, sizeof *ev->slots);
    if (!ev->slots || random_bytes(boot, sizeof boot) < 0) {
        free(ev->slots);
        free(ev);
        return NULL;
    }
    (void)snprintf(ev->boot, sizeof ev->boot, "%02x%02x%02x%02x", boot[0], boot[1], boot[2],
                   boot[3]);
    db->events = ev;
    return ev;
}

void events_free(struct db *db)
{
    struct events *ev = db->events;

    if (!ev)
        return;
    for (size_t i = 0; i < EVENTS_MAX; i++)
        free(ev->slots[i].text);
    free(ev->slots);
    str_done(&ev->scratch);
    free(ev);
    db->events = NULL;
}

void events_rolled_back(struct db *db)
{
    struct events *ev = db->events;

    if (!ev)
        return;
    ev->last++; /* a number that no reader has; its slot stays empty */
    free(TAKE(ev->slots[ev->last % EVENTS_MAX].text));
    ev->floor = ev->last;
    watched_notify(&ev->watched);
}

/* FNV-1a of 64 bits (draft-eastlake-fnv, section 2). */
static uint64_t hash_add(uint64_t h, const char *text)
{
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 0x100000001b3;
    return h * 0x100000001b3;
}

static uint64_t event_hash(const struct event *e)
{
    uint64_t h = (0xcbf29ce484222325 ^ (uint64_t)e->type) * 0x100000001b3;

    return hash_add(hash_add(h, e->session_id ? e->session_id : ""), e->id);
}

/* ---- The text ---------------------------------------------------------------------------------
 */

static int id_put(struct str *out, const char *id)
{
    CLEANUP(str_done) struct str shown = {0};
    size_t n = strnlen(id, EVENT_ID_BYTES);
    int r;

    if (id[n] == '\0' && utf8_is_valid(id, n))
        return canonical_add_string(out, id);
    r = str_put_escaped(&shown, id, n);
    return r < 0 ? r : canonical_add_string(out, str_c(&shown));
}

static int doc_put(struct str *out, const char *name, const json_t *doc)
{
    int r;

    if (!doc)
        return 0;
    r = str_printf(out, ",\"%s\":", name);
    return r < 0 ? r : canonical_add(out, doc);
}

static int event_put(struct str *out, const struct event *e, enum event_change change, uint64_t seq)
{
    char at[CLOCK_TEXT_MAX];
    int r;

    clock_text(clock_wall_ms(), at);
    r = str_printf(out, "{\"type\":\"%s\",\"id\":", EVENT_TYPE_NAMES[e->type]);
    if (r == 0)
        r = id_put(out, e->id);
    if (r == 0 && e->session_id)
        r = str_printf(out, ",\"session_id\":\"%s\"", e->session_id);
    if (r == 0)
        r = str_printf(out, ",\"rev\":%lld,\"change\":\"%s\",\"at\":\"%s\"",
                       (long long)(e->rev ? e->rev : (int64_t)seq), EVENT_CHANGE_NAMES[change], at);
    if (r == 0)
        r = doc_put(out, "enforcement", e->enforcement);
    if (r == 0)
        r = doc_put(out, "origin", e->origin);
    return r < 0 ? r : str_putc(out, '}');
}

/* ---- Emitting ---------------------------------------------------------------------------------
 */

static bool is_of(const struct slot *slot, const struct event *e, uint64_t hash)
{
    if (e->type == EVENT_AUDIT && slot->type == EVENT_AUDIT)
        return slot->text != NULL; /* the newest row stands for those before it */
    return slot->text && slot->hash == hash && slot->type == e->type &&
           strcmp(slot->session_id, e->session_id ? e->session_id : "") == 0 &&
           strcmp(slot->text, e->id) == 0;
}

/* The event of the same thing that no reader has had, or NULL. */
static struct slot *find_unread(struct events *ev, const struct event *e, uint64_t hash)
{
    for (uint64_t n = ev->last, i = 0; n > ev->had && n > ev->floor && i < MERGE_LOOK; n--, i++) {
        struct slot *slot = &ev->slots[n % EVENTS_MAX];
        if (is_of(slot, e, hash))
            return slot->change == EVENT_REMOVED ? NULL : slot;
    }
    return NULL;
}

static bool slot_fill(struct events *ev, struct slot *slot, const struct event *e,
                      enum event_change change, uint64_t hash)
{
    size_t id_len = strlen(e->id);
    char *text;

    str_clear(&ev->scratch);
    if (str_add(&ev->scratch, e->id, id_len + 1) < 0 ||
        event_put(&ev->scratch, e, change, ev->last) < 0)
        return false;
    text = malloc(ev->scratch.len + 1);
    if (!text)
        return false;
    memcpy(text, ev->scratch.data, ev->scratch.len + 1);
    free(slot->text);
    *slot = (struct slot){
        .hash = hash, .type = e->type, .change = change, .id_len = id_len, .text = text};
    if (e->session_id)
        (void)snprintf(slot->session_id, sizeof slot->session_id, "%s", e->session_id);
    return true;
}

void events_emit(struct db *db, const struct event *e)
{
    struct events *ev = events_of(db);
    uint64_t hash = event_hash(e);
    bool merges = e->change == EVENT_UPDATED || e->type == EVENT_AUDIT;
    struct slot *slot = ev && merges ? find_unread(ev, e, hash) : NULL;

    if (!ev)
        return;
    if (slot && slot_fill(ev, slot, e, slot->change, hash))
        return; /* who follows was woken for it */
    slot = &ev->slots[++ev->last % EVENTS_MAX];
    if (!slot_fill(ev, slot, e, e->change, hash)) {
        free(TAKE(slot->text)); /* without memory: all begin anew, nothing is silently left out */
        ev->floor = ev->last;
    }
    watched_notify(&ev->watched);
}

/* ---- Reading ----------------------------------------------------------------------------------
 */

const char *events_boot(struct db *db)
{
    struct events *ev = events_of(db);

    return ev ? ev->boot : "00000000";
}

uint64_t events_last(struct db *db)
{
    struct events *ev = events_of(db);

    if (!ev)
        return 0;
    ev->had = ev->last;
    return ev->last;
}

struct watched *events_watched(struct db *db)
{
    struct events *ev = events_of(db);

    return ev ? &ev->watched : &db->rolled_back;
}

static bool lets_through(const struct event_filter *f, const struct slot *slot)
{
    if (!slot->text || !(f->types & 1U << slot->type))
        return false;
    return !f->session_id || strcmp(f->session_id, slot->session_id) == 0;
}

int events_next(struct db *db, uint64_t after, const struct event_filter *filter,
                struct event_seen *ret)
{
    struct events *ev = events_of(db);
    uint64_t oldest;

    *ret = (struct event_seen){.seq = ev ? ev->last : 0};
    if (!ev)
        return 0;
    oldest = ev->last >= EVENTS_MAX ? ev->last - EVENTS_MAX + 1 : 1;
    if (after > ev->last || after < ev->floor || after + 1 < oldest) {
        ev->had = ev->last;
        return -ESTALE;
    }
    for (uint64_t n = after + 1; n <= ev->last; n++) {
        const struct slot *slot = &ev->slots[n % EVENTS_MAX];
        if (n > ev->had)
            ev->had = n;
        if (!lets_through(filter, slot))
            continue;
        *ret = (struct event_seen){n, slot->type, slot->text + slot->id_len + 1};
        return 1;
    }
    return 0;
}
