/* Runs in: daemon. Reads: trusted; a command's words and output counts. May block: no. */
#include "base/fields.h"
#include "session/command_parts.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>

const char *const COMMAND_STATE_NAMES[] = {"queued",    "starting", "running", "exited", "killed",
                                           "timed_out", "failed",   "lost",    NULL};
static const char *const START_STAGE_NAMES[] = {"wall", "cwd", "exec", "limit", NULL};

/* Any bytes as JSON text; what is not UTF-8 is shown escaped. */
static json_t *any_text(const char *text)
{
    if (utf8_is_valid(text, strlen(text)))
        return json_string(text);
    struct str s = {0};
    (void)str_put_escaped(&s, text, strlen(text));
    json_t *out = json_string(str_c(&s));
    str_done(&s);
    return out;
}

/* A name as in POST C/signal: "TERM"; the number as text where there is none. */
static json_t *signal_json(int signo)
{
    char number[12];
    const char *name = sigabbrev_np(signo);
    if (name)
        return json_string(name);
    (void)snprintf(number, sizeof number, "%d", signo);
    return json_string(number);
}

static json_t *blocked_json(const struct command *c)
{
    json_t *out = json_array();
    for (size_t i = 0; i < c->n_blocked; i++) {
        const struct blocked_host *b = &c->blocked[i];
        (void)json_array_append_new(out, json_pack("{s:s, s:i, s:I, s:s}", "host", b->host, "port",
                                                   (int)b->port, "count", (json_int_t)b->count,
                                                   "reason", b->reason));
    }
    return out;
}

/* Each limit of result.limit: who set it, and how it is lifted. */
static const struct {
    const char *limit, *rule, *cure;
} LIMITS[] = {
    {"time", "timeout_ms of the command, or limits.command_timeout_ms", "give it a longer timeout"},
    {"memory", "limits.memory_bytes", "cordon settings set limits.memory_bytes BYTES"},
    {"processes", "limits.processes", "cordon settings set limits.processes NUMBER"},
    {"cpu", "limits.cpu_percent", "cordon settings set limits.cpu_percent PERCENT"},
    {"files", "the size of a file that it may write", "write smaller files"},
    {"output", "the output could not be kept", "free some space for the state folder"},
};

static void put_limit(json_t *out, const char *limit)
{
    for (size_t i = 0; limit && i < ARRAY_LEN(LIMITS); i++)
        if (strcmp(LIMITS[i].limit, limit) == 0)
            (void)json_array_append_new(out, json_pack("{s:s, s:s, s:s, s:s}", "source", "limit",
                                                       "target", limit, "rule", LIMITS[i].rule,
                                                       "cure", LIMITS[i].cure));
}

static json_t *denied_json(const struct command *c)
{
    json_t *out = json_array();
    put_limit(out, c->result.limit);
    for (size_t i = 0; i < c->n_blocked; i++) {
        const struct blocked_host *b = &c->blocked[i];
        char target[HOST_MAX + 10];
        host_port_text(b->host, b->port, target);
        (void)json_array_append_new(out, json_pack("{s:s, s:s, s:s, s:s}", "source", "egress",
                                                   "target", target, "rule", b->rule ? b->rule : "",
                                                   "cure", b->hint ? b->hint : ""));
    }
    return out;
}

json_t *command_result_json(const struct command *c)
{
    const struct command_result *res = &c->result;
    json_t *out =
        json_pack("{s:o, s:o, s:I, s:I, s:I, s:o, s:o}", "exit_code",
                  res->is_signaled || !c->has_result ? json_null() : json_integer(res->code),
                  "signal", res->is_signaled ? signal_json(res->code) : json_null(), "elapsed_ms",
                  (json_int_t)(c->ended_ms - c->started_ms), "cpu_ms",
                  (json_int_t)(res->cpu_us / 1000), "max_rss_bytes", (json_int_t)res->max_rss_bytes,
                  "blocked", blocked_json(c), "denied", denied_json(c));
    if (out && res->limit)
        (void)json_object_set_new(out, "limit", json_string(res->limit));
    if (out && res->cwd && *res->cwd)
        (void)json_object_set_new(out, "cwd", any_text(res->cwd));
    return out;
}

json_t *command_start_error_json(const struct command *c)
{
    return json_pack("{s:i, s:s}", "errno", c->start_errno, "stage",
                     START_STAGE_NAMES[c->start_stage]);
}

static json_t *output_json(const struct command *c)
{
    if (c->output_counts)
        return json_incref(c->output_counts);
    if (!c->spool)
        return json_pack("{s:i, s:i, s:i, s:i, s:i}", "stdout_bytes", 0, "stderr_bytes", 0,
                         "pty_bytes", 0, "dropped_bytes", 0, "next_seq", 1);
    return json_pack("{s:I, s:I, s:i, s:I, s:I}", "stdout_bytes",
                     (json_int_t)spool_bytes(c->spool, SPOOL_STDOUT), "stderr_bytes",
                     (json_int_t)spool_bytes(c->spool, SPOOL_STDERR), "pty_bytes", 0,
                     "dropped_bytes", (json_int_t)spool_dropped(c->spool), "next_seq",
                     (json_int_t)spool_next_seq(c->spool));
}

static bool is_plain(const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-+=./:,@%^";
    return *word && word[strspn(word, plain)] == '\0';
}

/* One word as a shell would need it. */
static void put_word(struct str *out, const char *word)
{
    if (is_plain(word)) {
        (void)str_puts(out, word);
        return;
    }
    (void)str_putc(out, '\'');
    for (const char *p = word; *p; p++)
        (void)(*p == '\'' ? str_puts(out, "'\\''") : str_putc(out, *p));
    (void)str_putc(out, '\'');
}

static void put_display(const struct command *c, json_t *out)
{
    struct str text = {0};
    if (c->shell)
        (void)str_puts(&text, c->shell);
    for (size_t i = 0; !c->shell && i < c->argv.n && text.len <= COMMAND_DISPLAY_MAX; i++) {
        if (i > 0)
            (void)str_putc(&text, ' ');
        put_word(&text, c->argv.items[i]);
    }
    size_t n = text.len;
    bool cut = n > COMMAND_DISPLAY_MAX;
    if (cut) /* never in the middle of a character (RFC 3629) */
        for (n = COMMAND_DISPLAY_MAX; n > 0 && ((unsigned char)text.data[n] & 0xc0) == 0x80; n--)
            ;
    (void)json_object_set_new(out, "display", json_stringn(str_c(&text), n));
    if (cut)
        (void)json_object_set_new(out, "display_truncated", json_true());
    str_done(&text);
}

static void put_words(const struct command *c, json_t *out)
{
    if (c->shell) {
        (void)json_object_set_new(out, "shell", json_string(c->shell));
        return;
    }
    json_t *argv = json_array();
    for (size_t i = 0; i < c->argv.n; i++)
        (void)json_array_append_new(argv, json_string(c->argv.items[i]));
    (void)json_object_set_new(out, "argv", argv);
}

json_t *command_to_json(const struct command *c)
{
    json_t *out = json_pack(
        "{s:s, s:s, s:s, s:o, s:s, s:I, s:I, s:I, s:I, s:s, s:O, s:[], s:o, s:o}", "id", c->id,
        "session_id", c->session->id, "state", COMMAND_STATE_NAMES[c->state], "cwd",
        any_text(c->cwd), "stdin", c->stdin_pipe ? "pipe" : "none", "timeout_ms",
        (json_int_t)c->timeout_ms, "idle_timeout_ms", (json_int_t)c->idle_timeout_ms,
        "kill_grace_ms", (json_int_t)c->kill_grace_ms, "max_output_bytes",
        (json_int_t)c->max_output_bytes, "on_disconnect", c->kill_on_disconnect ? "kill" : "keep",
        "origin", c->origin, "notices", "env", json_incref(c->env_names), "output", output_json(c));
    if (!out)
        return NULL;
    put_words(c, out);
    put_display(c, out);
    (void)json_object_set_new(out, "umask", json_integer(c->umask));
    (void)json_object_set(out, "enforcement", c->enforcement);
    if (c->started_at)
        (void)json_object_set_new(out, "started_at", time_json(c->started_at));
    if (c->ended_at)
        (void)json_object_set_new(out, "ended_at", time_json(c->ended_at));
    if (c->state == COMMAND_FAILED)
        (void)json_object_set_new(out, "start_error", command_start_error_json(c));
    else if (command_is_ended(c))
        (void)json_object_set_new(out, "result", command_result_json(c));
    return out;
}
