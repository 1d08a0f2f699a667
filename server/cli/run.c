/* Runs in: cli. Reads: hostile output, passed on. May block: yes. */
#include "cli/run.h"
#include "cli/asking.h"
#include "cli/attach.h"
#include "cli/watcher.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define SESSION_OPTION_ROWS                                                                        \
    {"folder", 'f', "PATH[:ro]", "grant a folder, read-write or :ro (the current one)",            \
     OPTION_REPEATS},                                                                              \
        {"tier", 't', "TIER", "walled (the default), or open: no wall at all", 0},                 \
        {"sandbox", 0, "POLICY", "a fixed policy", OPTION_LATER},                                  \
        {"add-dir", 0, "DIR", "one more folder for the file tools",                                \
         OPTION_LATER | OPTION_REPEATS},                                                           \
        {"cd", 'C', "DIR", "the working folder", 0},                                               \
        {"allow", 0, "HOST[:PORT]", "a site that may be reached; no port means 443 and 80",        \
         OPTION_REPEATS},                                                                          \
        {"publish", 0, "PORT", "a port opened inside answers on this machine's 127.0.0.1",         \
         OPTION_REPEATS},                                                                          \
        {"network", 0, "PROFILE", "allowlist (the default), open or none", 0},                     \
        {"config", 0, "FILE", "a configuration file for this session", OPTION_LATER},              \
        {"ask", 0, NULL,                                                                           \
         "ask about refused sites: run does it on the terminal, where there is one", 0},           \
    {                                                                                              \
        "no-ask", 0, NULL, "nobody is asked: an unlisted site is refused at once", 0               \
    }
#define COMMAND_OPTION_ROWS                                                                        \
    {"timeout", 0, "DURATION", "end the command after 500ms, 30s, 5m or 2h: exit 124", 0},         \
        {"env", 'e', "NAME[=VALUE]", "a variable; without a value the one it has here",            \
         OPTION_REPEATS},                                                                          \
        {"tty", 0, NULL, "run it on a terminal", OPTION_LATER},                                    \
        {"no-tty", 0, NULL, "run it on pipes (as it is in this version)", 0},                      \
    {                                                                                              \
        "json", 0, NULL, "print one JSON record, with the output in `text`", 0                     \
    }

const struct option RUN_OPTIONS[] = {
    SESSION_OPTION_ROWS,
    COMMAND_OPTION_ROWS,
    {"keep", 0, NULL, "the session stays; its id goes to standard error", 0},
    {NULL, 0, NULL, NULL, 0}};
const struct option EXEC_OPTIONS[] = {{"cd", 'C', "DIR", "the working folder inside", 0},
                                      COMMAND_OPTION_ROWS,
                                      {NULL, 0, NULL, NULL, 0}};
const struct option SESSION_OPTIONS[] = {SESSION_OPTION_ROWS,
                                         {"json", 0, NULL, "print the session as JSON", 0},
                                         {NULL, 0, NULL, NULL, 0}};

#define OUTPUT_MAX   (1 << 30) /* the most a spool may hold: nothing is lost to a slow reader */
#define INLINE_MAX   (1 << 20)
#define END_GRACE_MS 1000 /* for what the command left behind: TERM, then KILL */
#define ENV_BODY_MAX (200 << 10)

struct run {
    struct cli *cli;
    const struct args *args;
    struct watcher watcher;
    bool has_watcher;
    bool own_session; /* ours: it ends with us */
    bool asks;        /* the person at the terminal, about sites */
    struct asking asking;
    char session_path[80];  /* /v1/sessions/ses_… */
    char command_path[192]; /* …/commands/cmd_… */
};

/* What is being made is known to the watcher before it is known here. */
static int start_watcher(void *arg, struct httpc *h)
{
    struct run *run = arg;
    char path[112] = "/v1/sessions";
    if (run->session_path[0])
        snprintf(path, sizeof path, "%s/commands", run->session_path);
    watcher_start(&run->watcher, run->cli->client, path);
    run->has_watcher = true;
    return watcher_answer(&run->watcher, h);
}

static void watch_next(struct run *run)
{
    run->cli->client->awaits = run->has_watcher ? NULL : start_watcher;
    run->cli->client->awaits_arg = run;
}

/* ---- What is asked for
 * --------------------------------------------------------------------------*/

/* NAME=VALUE, or NAME with the value it has here. */
static int add_variable(json_t *env, const char *typed, struct err *err)
{
    const char *equals = strchr(typed, '='), *value = equals ? equals + 1 : getenv(typed);
    size_t n = equals ? (size_t)(equals - typed) : strlen(typed);
    if (n == 0)
        return err_set(err, -EINVAL, "usage", "NAME or NAME=VALUE", "-e '%s' has no name", typed);
    if (!value)
        return err_set(err, -EINVAL, "usage", "give it a value: -e NAME=VALUE",
                       "-e %s: there is no such variable here", typed);
    json_t *text = json_string(value);
    CLEANUP(freep) char *name = strndup(typed, n);
    if (!text || !name || json_object_set_new(env, name, text) < 0)
        return err_set(err, -EILSEQ, "usage", NULL, "-e %.*s: not UTF-8 text", (int)n, typed);
    return 0;
}

extern char **environ;

/* No wall: the command is to find what it would find without us, and the daemon's own environment
 * is that of whoever started it first. */
static void add_environment(json_t *env)
{
    size_t room = ENV_BODY_MAX;
    for (char **e = environ; *e; e++) {
        const char *equals = strchr(*e, '=');
        CLEANUP(freep)
        char *name = equals && equals > *e ? strndup(*e, (size_t)(equals - *e)) : NULL;
        size_t n = strlen(*e);
        json_t *value = name && n < room ? json_string(equals + 1) : NULL;
        if (value && json_object_set_new(env, name, value) == 0)
            room -= n;
    }
}

static json_t *argv_json(char *const *argv, struct err *err)
{
    json_t *list = json_array();
    for (; *argv; argv++) {
        if (json_array_append_new(list, json_string(*argv)) == 0)
            continue;
        err_set(err, -EILSEQ, "usage", "put it into a file that the command reads",
                "the argument '%s' is not UTF-8 text", *argv);
        json_decref(list);
        return NULL;
    }
    return list;
}

static json_t *command_body(const struct run *run, bool stdin_pipe, struct err *err)
{
    const struct args *a = run->args;
    const char *timeout = args_value(a, "timeout", 0), *tier = args_value(a, "tier", 0);
    CLEANUP(json_decrefp) json_t *body = json_object();
    json_t *argv = argv_json(a->argv, err), *env = json_object();
    int64_t ms;
    json_object_set_new(body, "env", env);
    if (!argv || json_object_set_new(body, "argv", argv) < 0)
        return NULL;
    if (timeout && parse_duration(timeout, &ms) < 0) {
        err_set(err, -EINVAL, "usage", "500ms, 30s, 5m or 2h; at most 24h", "bad --timeout '%s'",
                timeout);
        return NULL;
    }
    if (timeout)
        json_object_set_new(body, "timeout_ms", json_integer(ms));
    if (run->own_session && tier && strcmp(tier, "open") == 0)
        add_environment(env);
    for (size_t i = 0; i < args_count(a, "env"); i++)
        if (add_variable(env, args_value(a, "env", i), err) < 0)
            return NULL;
    if (json_object_size(env) == 0)
        json_object_del(body, "env");
    mode_t mask = umask(0); /* the caller's, not that of whoever started the daemon */
    (void)umask(mask);
    json_object_set_new(body, "umask", json_integer(mask));
    if (!run->own_session && args_has(a, "cd"))
        json_object_set_new(body, "cwd", json_string(args_value(a, "cd", 0)));
    json_object_set_new(body, "stdin", json_string(stdin_pipe ? "pipe" : "none"));
    json_object_set_new(body, "max_output_bytes", json_integer(OUTPUT_MAX));
    json_object_set_new(body, "origin", json_pack("{s:s}", "kind", "agent"));
    return TAKE(body);
}

/* ---- How it ended
 * -------------------------------------------------------------------------------*/

static int signal_number(const char *name)
{
    static const struct {
        const char *name;
        int number;
    } NAMES[] = {{"HUP", SIGHUP},       {"INT", SIGINT},   {"QUIT", SIGQUIT},   {"ILL", SIGILL},
                 {"TRAP", SIGTRAP},     {"ABRT", SIGABRT}, {"BUS", SIGBUS},     {"FPE", SIGFPE},
                 {"KILL", SIGKILL},     {"USR1", SIGUSR1}, {"SEGV", SIGSEGV},   {"USR2", SIGUSR2},
                 {"PIPE", SIGPIPE},     {"ALRM", SIGALRM}, {"TERM", SIGTERM},   {"CHLD", SIGCHLD},
                 {"CONT", SIGCONT},     {"STOP", SIGSTOP}, {"TSTP", SIGTSTP},   {"TTIN", SIGTTIN},
                 {"TTOU", SIGTTOU},     {"URG", SIGURG},   {"XCPU", SIGXCPU},   {"XFSZ", SIGXFSZ},
                 {"VTALRM", SIGVTALRM}, {"PROF", SIGPROF}, {"WINCH", SIGWINCH}, {"SYS", SIGSYS}};
    uint64_t n;
    if (str_starts(name, "SIG"))
        name += 3;
    for (size_t i = 0; i < ARRAY_LEN(NAMES); i++)
        if (strcmp(NAMES[i].name, name) == 0)
            return NAMES[i].number;
    return parse_u64(name, 1, 127, &n) == 0 ? (int)n : SIGKILL;
}

static int exit_of_failure(const struct run *run, const json_t *record)
{
    const json_t *error = json_object_get(record, "start_error");
    if (!error)
        error = json_object_get(json_object_get(record, "result"), "start_error");
    int number = (int)json_int(error, "errno");
    if (strcmp(json_text(error, "stage"), "exec") == 0) {
        cli_note("%s: %s (inside the wall)", run->args->argv[0], strerror(number));
        return number == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN;
    }
    struct err err = {0};
    err_set(&err, -number, "session_refused",
            strcmp(json_text(error, "stage"), "cwd") == 0 ? "name a working folder it has with -C"
                                                          : "see: cordon status --why",
            "the command could not be started (at %s: %s)", json_text(error, "stage"),
            strerror(number));
    return cli_fail(&err);
}

static void tell_blocked(const json_t *result)
{
    size_t i;
    json_t *b;
    json_array_foreach(json_object_get(result, "blocked"), i, b)
    {
        char target[CLI_TARGET];
        const char *reason = json_text(b, "reason");
        long long count = json_int(b, "count");
        cli_target(b, target);
        if (strcmp(reason, "not_listed") == 0)
            cli_note("refused: %s is not listed (%lld times); allow it with --allow %s", target,
                     count, target);
        else
            cli_note("refused: %s (%s, %lld times)", target, reason, count);
    }
}

/* RECORD: state, result and, for `failed`, start_error. */
static int exit_of(const struct run *run, const json_t *record)
{
    const json_t *result = json_object_get(record, "result");
    const char *state = json_text(record, "state");
    if (strcmp(state, "exited") == 0)
        return (int)json_int(result, "exit_code");
    if (strcmp(state, "timed_out") == 0)
        return EXIT_TIMED_OUT;
    if (strcmp(state, "killed") == 0)
        return EXIT_SIGNAL + signal_number(json_text(result, "signal"));
    if (strcmp(state, "failed") == 0)
        return exit_of_failure(run, record);
    struct err err = {0};
    err_set(&err, -ECONNRESET, "internal", "cordond.log in the state folder says more",
            "the command was lost: cordond or its runner ended");
    return cli_fail(&err);
}

/* ---- The way through
 * ----------------------------------------------------------------------------*/

static int start_it(struct run *run, bool stdin_pipe, struct err *err)
{
    char path[112];
    CLEANUP(json_decrefp) json_t *body = command_body(run, stdin_pipe, err), *record = NULL;
    if (!body)
        return -EINVAL;
    snprintf(path, sizeof path, "%s/commands", run->session_path);
    watch_next(run);
    int r = cli_call(run->cli, "POST", path, body, &record, err);
    if (r < 0)
        return r;
    snprintf(run->command_path, sizeof run->command_path, "%s/%s", path, json_text(record, "id"));
    return 0;
}

static void stop_it(struct run *run, int grace_ms)
{
    char path[224];
    CLEANUP(json_decrefp) json_t *body = json_pack("{s:i}", "grace_ms", grace_ms);
    struct err err = {0};
    if (!run->own_session && !run->command_path[0])
        return;
    snprintf(path, sizeof path, "%s/stop",
             run->own_session ? run->session_path : run->command_path);
    /* After a broken stream the connection is in no state to carry another request. */
    if (run->cli->client->main.is_busy)
        httpc_close(&run->cli->client->main);
    if (cli_call(run->cli, "POST", path, body, NULL, &err) < 0 &&
        strcmp(err.code, "session_ended") != 0 && strcmp(err.code, "command_ended") != 0)
        (void)cli_fail(&err);
}

static int print_record(struct run *run, struct err *err)
{
    char path[256];
    CLEANUP(json_decrefp) json_t *record = NULL;
    snprintf(path, sizeof path, "%s?wait_ms=1000&inline_bytes=%d", run->command_path, INLINE_MAX);
    int r = cli_call(run->cli, "GET", path, NULL, &record, err);
    if (r < 0)
        return r;
    cli_print_json(record);
    return fflush(stdout) == 0 ? 0 : -errno;
}

static int follow_it(struct run *run, bool stdin_pipe, struct err *err)
{
    bool json = args_has(run->args, "json");
    struct attach a = {.client = run->cli->client, .command_path = run->command_path};
    a.pass_stdin = stdin_pipe;
    a.discard_output = json;
    if (run->asks) {
        run->asking.client = run->cli->client;
        run->asking.session_path = run->session_path;
        a.asking = &run->asking;
    }
    int r = attach_run(&a, err), code = EXIT_CORDON;
    if (r >= 0 && a.end) {
        if (json && (r = print_record(run, err)) < 0) {
            attach_done(&a);
            return r;
        }
        code = exit_of(run, a.end);
        tell_blocked(json_object_get(a.end, "result"));
        if (a.lost_bytes && !json) {
            cli_note(
                "%llu bytes of output are missing: they were written faster than they were read",
                (unsigned long long)a.lost_bytes);
            code = EXIT_CORDON;
        }
    } else if (r >= 0) {
        code = EXIT_SIGNAL + (a.left_by_signal ? a.left_by_signal : SIGPIPE);
        if (!run->own_session || args_has(run->args, "keep"))
            stop_it(run, 0);
    }
    attach_done(&a);
    return r < 0 ? r : code;
}

static int run_it(struct run *run, struct err *err)
{
    int r, number = attach_signal();
    bool stdin_pipe = attach_has_stdin();
    if (number)
        return EXIT_SIGNAL + number;
    if ((r = start_it(run, stdin_pipe, err)) < 0)
        return r;
    bool ends_session = run->own_session && !args_has(run->args, "keep");
    char path[224];
    snprintf(path, sizeof path, "%s/stop", ends_session ? run->session_path : run->command_path);
    watcher_set(&run->watcher, path);
    return follow_it(run, stdin_pipe, err);
}

/* Nobody to ask is an immediate no: the session is told so, and nothing waits. */
static int find_person(struct run *run, json_t *body, struct err *err)
{
    bool wanted = args_has(run->args, "ask"),
         is_open = strcmp(json_text(body, "tier"), "open") == 0;
    const char *network = json_text(body, "network");
    bool has_list = !is_open && (*network == '\0' || strcmp(network, "allowlist") == 0);
    if (wanted && !has_list)
        return err_set(err, -EINVAL, "usage", "leave --ask away, or use a network with a list",
                       "--ask: there is nothing to ask about: every site is open, or none");
    if (args_has(run->args, "no-ask") || !has_list)
        return 0;
    run->asks = (wanted || isatty(STDERR_FILENO)) && asking_open(&run->asking);
    if (run->asks)
        return 0;
    if (wanted)
        return err_set(err, -ENXIO, "usage", "leave --ask away, or run it on a terminal",
                       "--ask: there is no terminal to ask on");
    json_object_set_new(body, "approvals", json_string("full"));
    json_object_set_new(body, "unattended", json_true());
    return 0;
}

static int create_session(struct run *run, struct err *err)
{
    char path[224];
    size_t i;
    json_t *w;
    CLEANUP(json_decrefp) json_t *body = session_body(run->args, err), *session = NULL;
    int r = body ? find_person(run, body, err) : -EINVAL;
    if (r >= 0)
        r = cli_connect(run->cli, err);
    if (r < 0)
        return r;
    watch_next(run);
    r = cli_call(run->cli, "POST", "/v1/sessions", body, &session, err);
    if (r < 0)
        return r;
    snprintf(run->session_path, sizeof run->session_path, "/v1/sessions/%s",
             json_text(session, "id"));
    snprintf(path, sizeof path, "%s/stop", run->session_path);
    watcher_set(&run->watcher, args_has(run->args, "keep") ? "" : path);
    if (!json_bool(body, "require_wall"))
        cli_note("no wall: tier open; the command can do all that you can (level none)");
    json_array_foreach(json_object_get(session, "warnings"), i, w)
    {
        cli_note("%s: %s", json_text(w, "code"), json_text(w, "detail"));
    }
    return 0;
}

int run_command(struct cli *cli, struct args *a)
{
    struct run run = {.cli = cli, .args = a, .watcher = {-1}, .own_session = true};
    struct err err = {0};
    attach_prepare();
    int code = create_session(&run, &err);
    if (code >= 0)
        code = run_it(&run, &err);
    if (code < 0)
        code = cli_fail(&err);
    if (run.session_path[0] && args_has(a, "keep"))
        cli_note("the session stays: %s", run.session_path + strlen("/v1/sessions/"));
    else if (run.session_path[0])
        stop_it(&run, END_GRACE_MS);
    watcher_done(&run.watcher);
    if (run.asks)
        asking_close(&run.asking);
    return code;
}

int exec_command(struct cli *cli, struct args *a)
{
    struct run run = {.cli = cli, .args = a, .watcher = {-1}};
    CLEANUP(str_done) struct str id = {0};
    struct err err = {0};
    attach_prepare();
    int code = cli_connect(cli, &err);
    if (code >= 0)
        code = url_put(&id, a->args[0]) < 0 || id.len > 60
                   ? err_set(&err, -EINVAL, "usage", "cordon session list",
                             "'%s' is no session's id", a->args[0])
                   : 0;
    if (code >= 0) {
        snprintf(run.session_path, sizeof run.session_path, "/v1/sessions/%s", str_c(&id));
        code = run_it(&run, &err);
    }
    if (code < 0)
        code = cli_fail(&err);
    watcher_done(&run.watcher);
    return code;
}
