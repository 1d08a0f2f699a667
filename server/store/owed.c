/* Runs in: daemon. Reads: trusted; texts come from clients. May block: no. */
#include "store/owed.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "store/db_impl.h"
#include <errno.h>
#include <string.h>

/* A copy of a record or of a row of the audit. */
struct owed {
    struct owed *next;
    bool is_audit, is_in_group;
    char *words[5]; /* record: id, session_id, state, tier, text; audit: action, ids, target */
    json_t *docs[3];
    enum record_kind kind;
    enum outcome outcome;
    bool has_actor;
    struct actor actor;
    int64_t at;
};

static void owed_free(struct owed *o)
{
    for (size_t i = 0; i < ARRAY_LEN(o->words); i++)
        free(o->words[i]);
    for (size_t i = 0; i < ARRAY_LEN(o->docs); i++)
        json_decref(o->docs[i]);
    free(o);
}

static bool words_copy(struct owed *o, const char *const words[static 5])
{
    for (size_t i = 0; i < ARRAY_LEN(o->words); i++)
        if (words[i] && !(o->words[i] = strdup(words[i])))
            return false;
    return true;
}

static struct owed *of_record(const struct record *r)
{
    struct owed *o = calloc(1, sizeof *o);
    const char *const words[5] = {r->id, r->session_id, r->state, r->tier, r->text};
    if (!o || !words_copy(o, words)) {
        if (o)
            owed_free(o);
        return NULL;
    }
    o->kind = r->kind;
    o->docs[0] = json_incref((json_t *)(uintptr_t)r->doc);
    return o;
}

static struct owed *of_audit(const struct audit_entry *e)
{
    struct owed *o = calloc(1, sizeof *o);
    const char *const words[5] = {e->action, e->session_id, e->command_id, e->target, NULL};
    if (!o || !words_copy(o, words)) {
        if (o)
            owed_free(o);
        return NULL;
    }
    o->is_audit = true;
    o->outcome = e->outcome;
    o->at = e->at;
    o->has_actor = e->actor != NULL;
    if (e->actor)
        o->actor = *e->actor;
    json_t *docs[] = {e->take_before, e->take_after, e->enforcement};
    for (size_t i = 0; i < ARRAY_LEN(docs); i++)
        o->docs[i] = json_incref(docs[i]);
    return o;
}

static int put(struct db *db, const struct owed *o)
{
    if (o->is_audit)
        return audit_add(db, &(struct audit_entry){.actor = o->has_actor ? &o->actor : NULL,
                                                   .action = o->words[0],
                                                   .session_id = o->words[1],
                                                   .command_id = o->words[2],
                                                   .target = o->words[3],
                                                   .take_before = json_incref(o->docs[0]),
                                                   .take_after = json_incref(o->docs[1]),
                                                   .outcome = o->outcome,
                                                   .at = o->at,
                                                   .enforcement = o->docs[2]});
    return record_put(db, &(struct record){.kind = o->kind,
                                           .id = o->words[0],
                                           .session_id = o->words[1],
                                           .state = o->words[2],
                                           .tier = o->words[3],
                                           .text = o->words[4],
                                           .doc = o->docs[0]});
}

/* A record whose session is gone will not be taken at any time. */
static bool is_settled(int r)
{
    return r == 0 || r == -EEXIST || r == -E2BIG;
}

static void append(struct owed_list *l, struct owed *o)
{
    *l->end = o;
    l->end = &o->next;
    l->n++;
}

static void add(struct db *db, struct owed *o)
{
    owed_join(db);
    append(&db->owed, o);
    if (!db->full || db->is_open_group)
        o->is_in_group = is_settled(put(db, o));
}

/* An older one of the same id need not be written any more. */
static void forget_older(struct owed_list *l, const char *id)
{
    for (struct owed **at = &l->first; *at; at = &(*at)->next) {
        struct owed *o = *at;
        if (o->is_audit || strcmp(o->words[0], id) != 0)
            continue;
        *at = o->next;
        if (!*at)
            l->end = at;
        l->n--;
        owed_free(o);
        return;
    }
}

void owed_record(struct db *db, const struct record *r)
{
    struct owed *o = of_record(r);
    forget_older(&db->owed, r->id);
    if (o)
        add(db, o);
    else
        log_error("record.lost", "id=%s state=%s", r->id, r->state);
}

/* NULL: it is lost. */
static struct owed *take_audit(struct db *db, const struct audit_entry *e)
{
    struct owed *o = db->owed.n < OWED_MAX ? of_audit(e) : NULL;
    json_decref(e->take_before);
    json_decref(e->take_after);
    if (!o && !db->owed.is_over)
        log_error("audit.lost", "action=%s owed=%zu", e->action, db->owed.n);
    db->owed.is_over = !o; /* said once */
    return o;
}

void owed_audit(struct db *db, const struct audit_entry *e)
{
    struct owed *o = take_audit(db, e);
    if (o)
        add(db, o);
}

void owed_audit_soon(struct db *db, const struct audit_entry *e)
{
    struct owed_list *l = &db->owed;
    struct owed *o = take_audit(db, e);
    if (!o)
        return;
    o->at = clock_wall_ms();
    if (db->is_open_group || db->group_error || db->full) {
        add(db, o);
        return;
    }
    append(l, o);
    if (l->n_waiting++ == 0)
        l->waiting_ms = clock_now_ms();
}

void owed_join(struct db *db)
{
    if (db->owed.n_waiting == 0 || db->group_error || db->full)
        return;
    owed_write(db);
}

uint64_t owed_due(const struct db *db)
{
    const struct owed_list *l = &db->owed;
    if (l->n_waiting == 0 || db->full)
        return UINT64_MAX;
    uint64_t waited = clock_now_ms() - l->waiting_ms;
    return waited < OWED_WAIT_MS ? OWED_WAIT_MS - waited : 0;
}

json_t *owed_doc(const struct db *db, const char *id)
{
    for (const struct owed *o = db->owed.first; o; o = o->next)
        if (!o->is_audit && strcmp(o->words[0], id) == 0)
            return o->docs[0];
    return NULL;
}

size_t owed_count(const struct db *db)
{
    return db->owed.n;
}

void owed_write(struct db *db)
{
    if (db->owed.n == 0 || db->group_error || (db->full && db_is_full(db) && db->full))
        return;
    db->owed.n_waiting = 0;
    for (struct owed *o = db->owed.first; o; o = o->next) {
        if (o->is_in_group)
            continue;
        o->is_in_group = is_settled(put(db, o));
        if (!o->is_in_group)
            return;
    }
}

void owed_taken(struct db *db)
{
    struct owed_list *l = &db->owed;
    struct owed **at = &l->first;
    while (*at) {
        struct owed *o = *at;
        if (!o->is_in_group) {
            at = &o->next;
            continue;
        }
        *at = o->next;
        l->n--;
        owed_free(o);
    }
    l->end = at;
}

void owed_rolled_back(struct db *db)
{
    db->owed.n_waiting = 0;
    for (struct owed *o = db->owed.first; o; o = o->next)
        o->is_in_group = false;
}

void owed_done(struct db *db)
{
    struct owed *next;
    for (struct owed *o = db->owed.first; o; o = next) {
        next = o->next;
        owed_free(o);
    }
}
