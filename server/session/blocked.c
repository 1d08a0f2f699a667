/* Runs in: daemon. Reads: hostile (hosts come through the egress, canonical by now).
 * May block: no. */
#include "session/parts.h"
#include "store/records.h"

/* One refused connection: counted for the session and for each command that runs, as nothing tells
 * which of them it was; recorded once. */
void session_blocked(struct session *s, const char *host, uint16_t port, const char *reason,
                     const char *rule, const char *hint)
{
    char target[HOST_MAX + 10];
    struct blocked_row row = {.session_id = s->id, .host = host, .reason = reason, .port = port};
    s->n_blocked++;
    (void)blocked_count(s->ss->deps.db, &row);
    for (struct command *c = s->commands; c; c = command_next(c))
        if (command_is_running(c))
            command_blocked(c, host, port, reason, rule, hint);
    host_port_text(host, port, target);
    session_audit(s, NULL, "site.blocked", target,
                  json_pack("{s:s, s:s}", "reason", reason, "rule", rule), OUTCOME_REFUSED);
    session_touched(s);
}
