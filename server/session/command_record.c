/* Runs in: daemon. Reads: trusted. May block: no.
 *
 * What is written down of a command: its document and its rows in the audit. */
#include "session/command_parts.h"
#include "store/records.h"
#include <stdio.h>
#include <string.h>

#define TARGET_BYTES 512 /* of the words, in an audit row */

int command_put_record(struct command *c)
{
    json_t *doc = command_to_json(c);
    if (!doc)
        return -ENOMEM;
    struct record r = {.kind = RECORD_COMMAND,
                       .id = c->id,
                       .session_id = c->session->id,
                       .state = COMMAND_STATE_NAMES[c->state],
                       .tier = TIER_NAMES[c->session->tier],
                       .text = json_string_value(json_object_get(doc, "display")),
                       .doc = doc};
    int rc = 0;
    if (command_is_ended(c))
        sessions_record(c->session->ss, &r);
    else
        rc = record_put(c->session->ss->deps.db, &r);
    json_decref(doc);
    return rc;
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

json_t *command_ended_after(const struct command *c)
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

int command_put_audit(struct command *c, const char *action, json_t *take_after,
                      enum outcome outcome)
{
    char target[TARGET_BYTES];
    put_target(c, target);
    struct audit_entry e = {.actor = &c->actor,
                            .action = action,
                            .session_id = c->session->id,
                            .command_id = c->id,
                            .target = target,
                            .take_after = take_after,
                            .outcome = outcome,
                            .enforcement = c->enforcement};
    return audit_add(c->session->ss->deps.db, &e);
}
