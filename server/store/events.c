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
/* How far back for an event that says the same of its wall. */
#define MORE_LOOK 32

/* What commands of one wall say alike: one copy for all their events. */
struct shared {
    unsigned refs;
    size_t len;
    char text[]; /* ,"enforcement":{…},"origin":{…} */
};
struct slot {
    int64_t rev, at;
    struct shared *more; /* or NULL */
    char *head;          /* {"type":"…","id":"…","session_id":"…"; NULL: empty */
    uint64_t hash;       /* of head */
    enum event_type type;
    enum event_change change;
    char session_id[ID_MAX];
};
struct events {
    char boot[EVENTS_BOOT];
    uint64_t last;  /* number of the newest, counted from 1 */
    uint64_t floor; /* whoever is at an older one begins anew */
    uint64_t had;   /* some reader has had all up to this one */
    size_t bytes;   /* of all heads */
    struct watched watched;
    struct slot *slots; /* EVENTS_MAX; number N lies at N % EVENTS_MAX */
    struct str head, text;
};

static void slot_clear(struct slot *slot)
{
    if (slot->more && --slot->more->refs == 0)
        free(slot->more);
    free(slot->head);
    *slot = (struct slot){0};
}

static void slot_drop(struct events *ev, struct slot *slot)
{
    ev->bytes -= slot->head ? strlen(slot->head) : 0;
    slot_clear(slot);
}

static void slot_put(struct events *ev, struct slot *slot, const struct slot *take)
{
    slot_drop(ev, slot);
    *slot = *take;
    ev->bytes += strlen(slot->head);
}

/* Long paths: then fewer are kept. */
static void bytes_cut(struct events *ev)
{
    uint64_t n = ev->last > EVENTS_MAX ? ev->last - EVENTS_MAX : 0;

    for (n = n > ev->floor ? n : ev->floor; ev->bytes > EVENTS_BYTES && n + 1 < ev->last; n++) {
        slot_drop(ev, &ev->slots[(n + 1) % EVENTS_MAX]);
        ev->floor = n + 1;
    }
}

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
        slot_clear(&ev->slots[i]);
    free(ev->slots);
    str_done(&ev->head);
    str_done(&ev->text);
    free(ev);
    db->events = NULL;
}

/* All who follow begin anew: nothing is silently left out. */
static void events_reset(struct events *ev)
{
    ev->last++; /* a number that no reader has; its slot stays empty */
    slot_drop(ev, &ev->slots[ev->last % EVENTS_MAX]);
    ev->floor = ev->last;
    watched_notify(&ev->watched);
}

void events_rolled_back(struct db *db)
{
    if (db->events)
        events_reset(db->events);
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

/* Which thing: this alone says whether two events are of the same. */
static int head_put(struct str *out, const struct event *e)
{
    int r = str_printf(out, "{\"type\":\"%s\",\"id\":", EVENT_TYPE_NAMES[e->type]);

    if (r == 0)
        r = id_put(out, e->id);
    if (r == 0 && e->session_id)
        r = str_printf(out, ",\"session_id\":\"%s\"", e->session_id);
    return r;
}

static int doc_put(struct str *out, const char *name, const json_t *doc)
{
    int r;

    if (!doc)
        return 0;
    r = str_printf(out, ",\"%s\":", name);
    return r < 0 ? r : canonical_add(out, doc);
}

/* The copy that a late event of the same session has, or a new one. */
static int more_take(struct events *ev, const struct event *e, struct shared **ret)
{
    struct str *text = &ev->text;
    int r;

    *ret = NULL;
    if (!e->enforcement && !e->origin)
        return 0;
    str_clear(text);
    r = doc_put(text, "enforcement", e->enforcement);
    if (r == 0)
        r = doc_put(text, "origin", e->origin);
    for (uint64_t n = ev->last, i = 0; r == 0 && n > 0 && i < MORE_LOOK; n--, i++) {
        struct shared *more = ev->slots[n % EVENTS_MAX].more;
        if (more && more->len == text->len && memcmp(more->text, text->data, text->len) == 0) {
            more->refs++;
            *ret = more;
            return 0;
        }
    }
    *ret = r == 0 ? malloc(sizeof **ret + text->len) : NULL;
    if (!*ret)
        return r < 0 ? r : -ENOMEM;
    (*ret)->refs = 1;
    (*ret)->len = text->len;
    memcpy((*ret)->text, text->data, text->len);
    return 0;
}

static const char *event_text(struct events *ev, uint64_t seq)
{
    const struct slot *slot = &ev->slots[seq % EVENTS_MAX];
    struct str *out = &ev->text;
    char at[CLOCK_TEXT_MAX];

    clock_text(slot->at, at);
    str_clear(out);
    if (str_printf(out, "%s,\"rev\":%lld,\"change\":\"%s\",\"at\":\"%s\"", slot->head,
                   (long long)(slot->rev ? slot->rev : (int64_t)seq),
                   EVENT_CHANGE_NAMES[slot->change], at) < 0 ||
        (slot->more && str_add(out, slot->more->text, slot->more->len) < 0) ||
        str_putc(out, '}') < 0)
        return NULL;
    return str_c(out);
}

/* ---- Emitting ---------------------------------------------------------------------------------
 */

/* FNV-1a of 64 bits (draft-eastlake-fnv, section 2). */
static uint64_t hash_of(const char *text)
{
    uint64_t h = 0xcbf29ce484222325;

    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 0x100000001b3;
    return h;
}

static bool is_same(const struct slot *slot, enum event_type type, const char *head, uint64_t hash)
{
    if (!slot->head || slot->type != type)
        return false;
    /* The newest row of the audit stands for those before it. */
    return type == EVENT_AUDIT || (slot->hash == hash && strcmp(slot->head, head) == 0);
}

/* The event of the same thing that no reader has had, or NULL. */
static struct slot *find_unread(struct events *ev, enum event_type type, const char *head,
                                uint64_t hash)
{
    for (uint64_t n = ev->last, i = 0; n > ev->had && n > ev->floor && i < MERGE_LOOK; n--, i++) {
        struct slot *slot = &ev->slots[n % EVENTS_MAX];
        if (is_same(slot, type, head, hash))
            return slot->change == EVENT_REMOVED ? NULL : slot;
    }
    return NULL;
}

static int slot_make(struct events *ev, const struct event *e, struct slot *ret)
{
    int r;

    *ret =
        (struct slot){.rev = e->rev, .at = clock_wall_ms(), .type = e->type, .change = e->change};
    str_clear(&ev->head);
    r = head_put(&ev->head, e);
    if (r == 0)
        r = more_take(ev, e, &ret->more);
    if (r < 0)
        return r;
    ret->hash = hash_of(str_c(&ev->head));
    ret->head = strdup(str_c(&ev->head));
    if (e->session_id)
        (void)snprintf(ret->session_id, sizeof ret->session_id, "%s", e->session_id);
    return ret->head ? 0 : -ENOMEM;
}

void events_emit(struct db *db, const struct event *e)
{
    struct events *ev = events_of(db);
    bool merges = e->change == EVENT_UPDATED || e->type == EVENT_AUDIT;
    struct slot fresh, *unread;

    if (!ev)
        return;
    if (slot_make(ev, e, &fresh) < 0) {
        slot_clear(&fresh);
        events_reset(ev);
        return;
    }
    unread = merges ? find_unread(ev, e->type, fresh.head, fresh.hash) : NULL;
    if (unread) { /* who follows was woken for it */
        fresh.change = unread->change;
        slot_put(ev, unread, &fresh);
        return;
    }
    slot_put(ev, &ev->slots[++ev->last % EVENTS_MAX], &fresh);
    bytes_cut(ev);
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
    if (!slot->head || !(f->types & 1U << slot->type))
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
        *ret = (struct event_seen){n, slot->type, event_text(ev, n)};
        return ret->json ? 1 : -ENOMEM;
    }
    return 0;
}
