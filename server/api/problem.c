/* Runs in: daemon. Reads: trusted. May block: no. */
#include "api/problem.h"
#include "base/log.h"
#include "base/mem.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct problem PROBLEMS[] = {
    {"host_missing", 400, "Exactly one Host is needed, over HTTP/1.1",
     "Send one Host field that names the daemon's own address and port."},
    {"json_invalid", 400, "The request cannot be read: its framing, or its body as JSON",
     "Send one JSON document in UTF-8, at most 32 levels deep, with nothing behind it."},
    {"token_missing", 401, "A bearer token is needed",
     "Send Authorization: Bearer with the token of ~/.local/state/cordon/token."},
    {"token_invalid", 401, "The token or code is unknown, revoked or expired",
     "Read the token file again, or have a new token made."},
    {"host_not_allowed", 403, "This Host is not the daemon's",
     "Use the daemon's own address and port."},
    {"origin_not_allowed", 403, "A page of another origin may not ask",
     "Ask from the daemon's own page, or from a program without Origin."},
    {"peer_not_allowed", 403, "The socket is for its owner's account alone",
     "Ask as the account that runs the daemon."},
    {"socket_only", 403, "This is answered on the unix socket alone",
     "Ask through the daemon's unix socket."},
    {"scope_missing", 403, "The token lacks a scope", "Use a token that has the scope named."},
    {"outside_session", 403, "The path lies in no folder of the session",
     "Use a path below one of the session's folders."},
    {"folder_read_only", 403, "The folder is read-only",
     "Make a session that grants the folder with mode rw."},
    {"protected_place", 403, "The folder is a protected place, in one, or around one",
     "Grant a project's folder instead."},
    {"access_denied", 403, "The wall refused the file operation",
     "Work inside the session's folders."},
    {"site_not_listed", 403, "The site is on no list of this session",
     "Add the site to the machine's list, or for this session."},
    {"network_none", 403, "The session has no network", "Use a session with a network."},
    {"private_address", 403, "An address of a refused class, or Cordon's own port",
     "A person may add a site for exactly that address."},
    {"asks_off", 403, "Nobody is asked", "A person adds sites in the settings."},
    {"ask_denied", 403, "A person said no, or nobody answered", "Give it up in this session."},
    {"not_found", 404, "There is no such thing, or it is not yours",
     "Look at the list it is from."},
    {"version_unknown", 404, "This version of the API does not exist", "Use /v1."},
    {"method_not_allowed", 405, "The method does not exist here", "Use a method of Allow."},
    {"not_acceptable", 406, "There is no such output format", "Accept one of the formats named."},
    {"session_not_ready", 409, "The session is not ready", "Wait for state ready."},
    {"session_ended", 409, "The session has ended", "Make a new session."},
    {"session_running", 409, "The session has not ended", "Stop the session first."},
    {"wall_unavailable", 409, "The wall was not proved", "Look at the failed checks."},
    {"command_ended", 409, "The command has ended", "Read its record."},
    {"command_running", 409, "The command has not ended", "Stop the command first."},
    {"stdin_none", 409, "The command has no pipe as standard input",
     "Start it with \"stdin\": \"pipe\"."},
    {"stdin_gap", 409, "The offset lies ahead of what was taken", "Go on at accepted_to."},
    {"edit_mismatch", 409, "The old text is absent, or there several times",
     "Read the file again, or set all."},
    {"ask_closed", 409, "The question is answered, or over", "Look at the member decided."},
    {"answer_not_offered", 409, "That answer is not on offer", "Give one of the ask's answers."},
    {"already_allowed", 409, "The site may be reached", "Go on."},
    {"confirm_required", 409, "This widens what may be done and wants a confirmation",
     "Send it again with ?confirm= and the value of the member confirm."},
    {"key_reused", 409, "The Idempotency-Key belongs to another body", "Use a new key."},
    {"exists", 409, "It is there already", "Change what is there."},
    {"search_not_configured", 409, "No search provider is configured",
     "Set web.search_provider, and store its key with PUT /v1/web/providers."},
    {"code_used", 410, "The sign-in code was used before", "Have a new code made."},
    {"code_expired", 410, "The sign-in code has expired", "Have a new code made."},
    {"output_expired", 410, "The output is kept no longer", "Run the command again."},
    {"rev_mismatch", 412, "It has changed since it was read",
     "Read it again and send the new ETag."},
    {"body_too_large", 413, "The body is too large", "Send less."},
    {"content_type", 415, "The body's type is not the one asked for",
     "Send the Content-Type named."},
    {"range_invalid", 416, "The range lies beyond what is there", "Ask for less."},
    {"body_invalid", 422, "The body has faults", "Mend what errors names."},
    {"query_invalid", 422, "The query has faults", "Mend what errors names."},
    {"site_invalid", 422, "This is not a site", "Write a host, or host and port."},
    {"path_invalid", 422, "This is not a path that can be used",
     "Use an absolute path that exists."},
    {"list_setting", 422, "This setting is a list",
     "Change it through its own routes or a configuration file."},
    {"if_match_required", 428, "If-Match is needed", "Send the ETag that you read."},
    {"rate_limited", 429, "Too many failed sign-ins", "Wait for retry_after_ms."},
    {"stdin_full", 429, "The command has not read its input yet", "Wait for retry_after_ms."},
    {"too_many", 429, "A limit is reached", "End what is no longer needed."},
    {"headers_too_large", 431, "The head of the request is too large",
     "Send at most 16 KiB of field lines."},
    {"internal", 500, "A fault of the daemon; nothing was widened", "Look at the daemon's log."},
    {"fetch_failed", 502, "The server could not be fetched from",
     "Look at the name, the port and the certificate; try again."},
    {"session_refused", 503, "The wall was not proved, so the session was refused",
     "Look at the failed checks."},
    {"shutting_down", 503, "The daemon is stopping", "Ask again later."},
    {"fetch_timeout", 504, "The server did not answer in time", "Try again later."},
    {"disk_full", 507, "The state cannot be written", "Make room on the disk."},
};

/* NULL when unknown. */
static const struct problem *problem_find(const char *code)
{
    for (size_t i = 0; i < ARRAY_LEN(PROBLEMS); i++)
        if (strcmp(PROBLEMS[i].code, code) == 0)
            return &PROBLEMS[i];
    return NULL;
}

static const struct problem *problem_of(struct request *rq)
{
    const struct problem *p = problem_find(rq->err.code);

    if (p)
        return p;
    log_error("api.code_unknown", "request=%s code=%s detail=%s", rq->id, rq->err.code,
              rq->err.detail);
    p = problem_find("internal");
    assert(p); /* a row of the table above */
    return p;
}

/* errors[] as collected, or the one member that the refusal itself names. */
static json_t *problem_errors(struct request *rq, const struct problem *p)
{
    if (p->status != 422)
        return NULL;
    if (field_errors_any(&rq->errors))
        return json_incref(rq->errors.list);
    if (rq->err.pointer[0] == '\0')
        return NULL;
    return json_pack("[{s:s, s:s, s:s}]", "pointer", rq->err.pointer, "code", "format", "detail",
                     rq->err.detail);
}

static void retry_after(struct request *rq)
{
    const json_t *ms = json_object_get(rq->extra, "retry_after_ms");

    if (ms)
        (void)reply_header(rq, "Retry-After", "%lld",
                           (long long)((json_integer_value(ms) + 999) / 1000));
}

void problem_reply(struct request *rq)
{
    const struct problem *p = problem_of(rq);
    char type[64];
    json_t *doc, *errors;

    (void)snprintf(type, sizeof type, "/v1/problems/%s", p->code);
    doc = json_pack("{s:s, s:s, s:i, s:s, s:s, s:s}", "type", type, "title", p->title, "status",
                    p->status, "instance", rq->id, "code", p->code, "hint",
                    rq->err.hint[0] ? rq->err.hint : p->cure);
    (void)json_object_set_new(doc, "detail",
                              json_string(p->status == 500 ? p->title : rq->err.detail));
    errors = problem_errors(rq, p);
    if (errors)
        (void)json_object_set_new(doc, "errors", errors);
    if (rq->extra)
        (void)json_object_update_missing(doc, rq->extra);
    retry_after(rq);
    if (p->status == 401)
        (void)reply_header(rq, "WWW-Authenticate", "Bearer realm=\"cordon\"");
    (void)reply_json(rq, p->status, doc);
    rq->reply.content_type = "application/problem+json";
    log_info("api.refused", "request=%s method=%s status=%d code=%s", rq->id,
             METHOD_NAMES[rq->method], p->status, p->code);
}

int problem_page(struct request *rq)
{
    const struct problem *p = problem_find(rq->params[0]);

    if (!p)
        return request_not_found(rq, "problem");
    (void)str_printf(&rq->reply.text, "%s (%d)\n\n%s.\n\n%s\n", p->code, p->status, p->title,
                     p->cure);
    return reply_text(rq, 200, "text/plain; charset=utf-8", NULL);
}
