/* Runs in: daemon. Reads: trusted. May block: no.
 *
 * What is written down of a command: its document and its rows in the audit. */
#include "session/command_parts.h"
#include "store/owed.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define TARGET_BYTES 512 /* of the words, in an audit row */

struct written { /* what a record is made of */
    json_t *doc;
    struct record r;
};

/* The column goes by what is written, and the turn to running is not: the API looks at what lives.
 */
static const char *column(enum command_state state)
{
    return COMMAND_STATE_NAMES[state == COMMAND_STARTING ? COMMAND_RUNNING : state];
}

static int written_make(const struct command *c, struct written *ret)
{
    json_t *doc = command_to_json(c);
    ret->doc = doc;
    ret->r = (struct record){.kind = RECORD_COMMAND,
                             .id = c->id,
                             .session_id = c->session->id,
                             .state = column(c->state),
                             .tier = TIER_NAMES[c->session->tier],
                             .text = json_string_value(json_object_get(doc, "display")),
                             .doc = doc};
    return doc ? 0 : -ENOMEM;
}

/* The first words, never cut in the middle of a character. */
static void put_target(const struct command *c, char ret[static TARGET_BYTES])
{
    struct str text = {0};
    for (size_t i = 0; i < c->argv.n && text.len < TARGET_BYTES; i++)
        (void)str_printf(&text, "%s%s", i ? " " : "", c->argv.items[i]);
    const char *from = c->shell ? c->shell : str_c(&text);
    size_t n = strlen(from);
    if (n >= TARGET_BYTES)
        for (n = TARGET_BYTES - 1; n > 0 && ((unsigned char)from[n] & 0xc0) == 0x80; n--)
            ;
    memcpy(ret, from, n);
    ret[n] = '\0';
    str_done(&text);
}

static json_t *ended_after(const struct command *c)
{
    json_t *after = json_pack("{s:s, s:I}", "state", COMMAND_STATE_NAMES[c->state], "elapsed_ms",
                              (json_int_t)(c->ended_ms - c->started_ms));
    if (c->has_result)
        (void)json_object_set_new(after, c->result.is_signaled ? "signal" : "exit_code",
                                  json_integer(c->result.code));
    if (c->n_blocked)
        (void)json_object_set_new(after, "blocked", json_integer((json_int_t)c->n_blocked));
    return after;
}

static struct audit_entry row(struct command *c, const char *action, const char *target)
{
    return (struct audit_entry){.actor = &c->actor,
                                .action = action,
                                .session_id = c->session->id,
                                .command_id = c->id,
                                .target = target,
                                .outcome = OUTCOME_OK,
                                .enforcement = c->enforcement};
}

void command_tell(struct command *c, enum event_change change)
{
    events_emit(c->session->ss->deps.db,
                &(struct event){EVENT_COMMAND, change, c->id, c->session->id, (int64_t)c->state + 1,
                                c->enforcement, c->origin});
}

int command_record_start(struct command *c)
{
    struct db *db = c->session->ss->deps.db;
    char target[TARGET_BYTES];
    struct written w;
    int r = written_make(c, &w);
    put_target(c, target);
    struct audit_entry e = row(c, "command.started", target);
    if (r == 0 && c->state == COMMAND_STARTING)
        r = audit_add(db, &e);
    if (r == 0)
        r = record_put(db, &w.r);
    json_decref(w.doc);
    if (r == 0)
        r = db_commit(db);
    if (r == 0)
        command_tell(c, c->generation ? EVENT_UPDATED : EVENT_CREATED);
    return r;
}

void command_record_end(struct command *c)
{
    struct db *db = c->session->ss->deps.db;
    char target[TARGET_BYTES];
    struct written w;
    command_blocked_said(c);
    put_target(c, target);
    struct audit_entry e = row(c, "command.ended", target);
    e.take_after = ended_after(c);
    e.outcome = c->state == COMMAND_EXITED ? OUTCOME_OK : OUTCOME_ERROR;
    owed_audit(db, &e);
    if (written_make(c, &w) == 0)
        owed_record(db, &w.r);
    json_decref(w.doc);
    command_tell(c, EVENT_UPDATED);
}
