/* Runs in: cli. Reads: hostile text (hosts, reasons of agents; escaped). May block: yes. */
#include "cli/asks.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define JSON_OPTION                                                                                \
    {                                                                                              \
        "json", 0, NULL, "print JSON", 0                                                           \
    }
#define NOTE_OPTION                                                                                \
    {                                                                                              \
        "note", 0, "TEXT", "why, for the record", 0                                                \
    }
const struct option ASKS_LIST_OPTIONS[] = {{"session", 's', "SESSION", "those of this session", 0},
                                           {"all", 'a', NULL, "those that are over, too", 0},
                                           JSON_OPTION,
                                           {NULL, 0, NULL, NULL, 0}};
const struct option ASKS_ALLOW_OPTIONS[] = {
    {"host", 0, "HOST", "wider than the host asked for: one that the ask offers", 0},
    NOTE_OPTION,
    JSON_OPTION,
    {NULL, 0, NULL, NULL, 0}};
const struct option ASKS_DENY_OPTIONS[] = {NOTE_OPTION, JSON_OPTION, {NULL, 0, NULL, NULL, 0}};

static json_t *collect(struct cli *cli, const struct args *a, struct err *err)
{
    CLEANUP(str_done) struct str path = {0};
    bool all = args_has(a, "all");
    (void)str_puts(&path, all ? "/v1/asks" : "/v1/asks?state=open");
    if (args_has(a, "session")) {
        (void)str_puts(&path, all ? "?session=" : "&session=");
        (void)url_put(&path, args_value(a, "session", 0));
    }
    return cli_collect(cli, str_c(&path), err);
}

static void print_ask(const json_t *ask)
{
    char target[CLI_TARGET];
    const json_t *subject = json_object_get(ask, "subject");
    const json_t *evidence = json_object_get(ask, "evidence");
    const char *answer = json_text(ask, "answer");
    cli_target(subject, target);
    cli_column(json_text(ask, "id"), 30);
    cli_column(answer[0] ? answer : json_text(ask, "state"), 10);
    cli_column(target, 36);
    cli_column(json_text(ask, "requested_by"), 10);
    printf("%s %-4lld ", json_bool(evidence, "blocked") ? "blocked" : "not-tried",
           (long long)json_int(evidence, "count"));
    cli_column(json_text(ask, "session_id"), 30);
    cli_print(json_text(ask, "reason"));
    putchar('\n');
}

int asks_list_command(struct cli *cli, struct args *a)
{
    struct err err = {0};
    CLEANUP(json_decrefp) json_t *items = collect(cli, a, &err);
    size_t i;
    json_t *ask;
    if (!items)
        return cli_fail(&err);
    if (args_has(a, "json")) {
        cli_print_json(items);
        return EXIT_DONE;
    }
    json_array_foreach(items, i, ask) print_ask(ask);
    return EXIT_DONE;
}

static int decide(struct cli *cli, const struct args *a, const char *answer)
{
    struct err err = {0};
    CLEANUP(str_done) struct str path = {0};
    CLEANUP(json_decrefp) json_t *body = json_pack("{s:s}", "answer", answer), *ask = NULL;
    const char *host = args_value(a, "host", 0), *note = args_value(a, "note", 0);
    if (host)
        (void)json_object_set_new(body, "host", json_string(host));
    if (note)
        (void)json_object_set_new(body, "note", json_string(note));
    (void)str_puts(&path, "/v1/asks/");
    (void)url_put(&path, a->args[0]);
    (void)str_puts(&path, "/decide");
    if (cli_call(cli, "POST", str_c(&path), body, &ask, &err) < 0)
        return cli_fail(&err);
    if (args_has(a, "json"))
        cli_print_json(ask);
    else
        print_ask(ask);
    return EXIT_DONE;
}

int asks_allow_command(struct cli *cli, struct args *a)
{
    static const char *const ANSWERS[] = {"once", "session", "always"};
    const char *answer = a->n_args > 1 ? a->args[1] : "session";
    struct err err = {0};
    for (size_t i = 0; i < ARRAY_LEN(ANSWERS); i++)
        if (strcmp(answer, ANSWERS[i]) == 0)
            return decide(cli, a, answer);
    err_set(&err, -EINVAL, "usage", "once, session (the default) or always", "unknown answer '%s'",
            answer);
    return cli_fail(&err);
}

int asks_deny_command(struct cli *cli, struct args *a)
{
    return decide(cli, a, "deny");
}
