/* Runs in: cli. Reads: hostile (hosts and words that came from inside; escaped). May block: yes. */
#include "cli/why.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

const struct option BLOCKED_OPTIONS[] = {{"json", 0, NULL, "print JSON", 0},
                                         {NULL, 0, NULL, NULL, 0}};
const struct option WHY_OPTIONS[] = {{"json", 0, NULL, "print JSON", 0}, {NULL, 0, NULL, NULL, 0}};

static void number_column(int64_t n, int width)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)n);
    cli_column(text, width);
}

static void print_blocked(const json_t *b)
{
    cli_column(json_text(b, "host"), 40);
    number_column(json_int(b, "port"), 5);
    number_column(json_int(b, "count"), 6);
    cli_column(json_text(b, "reason"), 14);
    cli_column(json_text(b, "last_at"), 24);
    cli_print(json_text(b, "session_id"));
    putchar('\n');
}

int blocked_command(struct cli *cli, struct args *a)
{
    struct err err = {0};
    CLEANUP(str_done) struct str path = {0};
    CLEANUP(json_decrefp) json_t *items = NULL;
    size_t i;
    json_t *b;
    (void)str_puts(&path, a->n_args ? "/v1/sessions/" : "/v1");
    if (a->n_args)
        (void)url_put(&path, a->args[0]);
    (void)str_puts(&path, "/blocked");
    items = cli_collect(cli, str_c(&path), &err);
    if (!items)
        return cli_fail(&err);
    if (args_has(a, "json")) {
        cli_print_json(items);
        return EXIT_DONE;
    }
    json_array_foreach(items, i, b) print_blocked(b);
    return EXIT_DONE;
}

/* ---- Why --------------------------------------------------------------------------------------
 */

static json_t *command_of(struct cli *cli, const char *session_id, const char *id, struct err *err)
{
    CLEANUP(str_done) struct str path = {0};
    json_t *doc = NULL;
    (void)str_puts(&path, "/v1/sessions/");
    (void)url_put(&path, session_id);
    (void)str_puts(&path, "/commands/");
    (void)url_put(&path, id);
    return cli_call(cli, "GET", str_c(&path), NULL, &doc, err) < 0 ? NULL : doc;
}

/* A command's id does not name its session, the newest of which are asked first. */
static json_t *command_find(struct cli *cli, const char *id, struct err *err)
{
    CLEANUP(json_decrefp) json_t *sessions = cli_collect(cli, "/v1/sessions", err);
    size_t i;
    json_t *s;
    if (!sessions)
        return NULL;
    json_array_foreach(sessions, i, s)
    {
        json_t *doc = command_of(cli, json_text(s, "id"), id, err);
        if (doc || strcmp(err->code, "not_found") != 0)
            return doc;
        err_clear(err);
    }
    err_set(err, -ENOENT, "not_found", "the id is that of a command's record, cmd_…",
            "no command %s", id);
    return NULL;
}

static void print_line(const char *name, const char *text)
{
    if (!*text)
        return;
    printf("  %-5s ", name);
    cli_print(text);
    putchar('\n');
}

/* How often TARGET was refused, from result.blocked; 0 when it is not there. */
static int64_t times(const json_t *result, const char *target)
{
    size_t i;
    json_t *b;
    json_array_foreach(json_object_get(result, "blocked"), i, b)
    {
        char text[CLI_TARGET];
        cli_target(b, text);
        if (strcmp(text, target) == 0)
            return json_int(b, "count");
    }
    return 0;
}

static void print_denied(const json_t *result, const json_t *d)
{
    int64_t n = times(result, json_text(d, "target"));
    bool is_limit = strcmp(json_text(d, "source"), "limit") == 0;
    cli_print(json_text(d, "source"));
    fputs(is_limit ? " reached: " : " refused ", stdout);
    cli_print(json_text(d, "target"));
    if (n > 1)
        printf(" (%lld times)", (long long)n);
    putchar('\n');
    print_line("rule", json_text(d, "rule"));
    print_line("cure", json_text(d, "cure"));
}

static bool print_start_error(const json_t *doc)
{
    const json_t *e = json_object_get(doc, "start_error");
    if (!e)
        return false;
    fputs("it never ran: ", stdout);
    cli_print(json_text(e, "stage"));
    printf(": %s\n", strerror((int)json_int(e, "errno")));
    return true;
}

/* Without a result (it runs still, or was lost) the counts are all there is. */
static int print_so_far(struct cli *cli, const json_t *doc, struct err *err)
{
    CLEANUP(str_done) struct str path = {0};
    CLEANUP(json_decrefp) json_t *page = NULL;
    size_t i;
    json_t *b;
    (void)str_puts(&path, "/v1/sessions/");
    (void)url_put(&path, json_text(doc, "session_id"));
    (void)str_puts(&path, "/blocked?limit=500&command=");
    (void)url_put(&path, json_text(doc, "id"));
    int r = cli_call(cli, "GET", str_c(&path), NULL, &page, err);
    if (r < 0)
        return r;
    json_array_foreach(json_object_get(page, "items"), i, b)
    {
        fputs("egress refused ", stdout);
        cli_print(json_text(b, "host"));
        printf(" port %lld (%lld times)\n", (long long)json_int(b, "port"),
               (long long)json_int(b, "count"));
        print_line("why", json_text(b, "reason"));
    }
    if (json_array_size(json_object_get(page, "items")) == 0)
        puts("nothing was refused so far");
    return 0;
}

static void print_why(const json_t *doc)
{
    const json_t *result = json_object_get(doc, "result");
    bool any = print_start_error(doc);
    size_t i;
    json_t *d;
    json_array_foreach(json_object_get(result, "denied"), i, d)
    {
        print_denied(result, d);
        any = true;
    }
    if (!any)
        puts("nothing was refused while it ran");
}

int why_command(struct cli *cli, struct args *a)
{
    struct err err = {0};
    CLEANUP(json_decrefp) json_t *doc = command_find(cli, a->args[0], &err);
    if (!doc)
        return cli_fail(&err);
    if (args_has(a, "json")) {
        cli_print_json(doc);
        return EXIT_DONE;
    }
    cli_print(json_text(doc, "display"));
    printf(": %s", json_text(doc, "state"));
    const json_t *code = json_object_get(json_object_get(doc, "result"), "exit_code");
    if (json_is_integer(code))
        printf(", exit code %lld", (long long)json_integer_value(code));
    putchar('\n');
    if (!json_object_get(doc, "result") && !json_object_get(doc, "start_error"))
        return print_so_far(cli, doc, &err) < 0 ? cli_fail(&err) : EXIT_DONE;
    print_why(doc);
    return EXIT_DONE;
}
