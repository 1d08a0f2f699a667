/* Runs in: cli. Reads: trusted. May block: yes (--why puts a wall up and proves it). */
#include "cli/status.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

const struct option STATUS_OPTIONS[] = {
    {"json", 0, NULL, "print the document of the API", 0},
    {"why", 0, NULL, "put a wall up now, prove it, and say what failed and what to do", 0},
    {NULL, 0, NULL, NULL, 0}};

static int not_running(const struct args *a)
{
    if (args_has(a, "json"))
        puts("{\"state\": \"down\"}");
    else
        puts("state      down: cordond is not running; every command but status and stop starts it "
             "(or: cordon serve)");
    return EXIT_NO;
}

static void print_checks(const json_t *checks, bool all)
{
    size_t i;
    json_t *c;
    json_array_foreach(checks, i, c)
    {
        bool ok = json_bool(c, "ok");
        if (ok && !all)
            continue;
        printf("check      %-4s ", ok ? "ok" : json_bool(c, "required") ? "FAIL" : "weak");
        cli_column(json_text(c, "id"), 20);
        cli_print(json_text(c, "detail"));
        putchar('\n');
    }
}

static void print_providers(const json_t *providers)
{
    size_t i;
    json_t *p;
    json_array_foreach(providers, i, p)
    {
        printf("provider   ");
        cli_column(json_text(p, "id"), 12);
        cli_print(json_text(p, "state"));
        if (json_text(p, "reason")[0]) {
            printf(": ");
            cli_print(json_text(p, "reason"));
        }
        putchar('\n');
    }
}

static void print_fixes(const json_t *fixes)
{
    size_t i;
    json_t *f;
    json_array_foreach(fixes, i, f)
    {
        printf("fix        ");
        cli_print(json_text(f, "text"));
        if (json_text(f, "command")[0]) {
            printf(":  ");
            cli_print(json_text(f, "command"));
        }
        putchar('\n');
    }
}

static void print_line(const char *name, const char *value)
{
    printf("%-10s ", name);
    cli_print(value);
    putchar('\n');
}

static void print_status(const struct cli *cli, const json_t *doc, bool why)
{
    const char *state = json_text(doc, "state");
    print_line("state", state);
    print_line("provider", json_text(doc, "provider"));
    if (strcmp(state, "off") == 0)
        puts("           sessions made over REST have no wall (level none); cordon run always has "
             "one.\n           turn it on: cordon settings set sandbox_provider bubblewrap");
    print_providers(json_object_get(doc, "providers"));
    print_checks(json_object_get(doc, "checks"), why);
    print_fixes(json_object_get(doc, "fix"));
    print_line("refused", json_bool(doc, "sessions_refused") ? "sessions are refused" : "no");
    print_line("platform", json_text(doc, "platform"));
    print_line("version", json_text(doc, "version"));
    print_line("url", cli->client->url);
}

static bool has_failed_check(const json_t *doc)
{
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(doc, "checks"), i,
                       c) if (json_bool(c, "required") && !json_bool(c, "ok")) return true;
    return false;
}

int status_command(struct cli *cli, struct args *a)
{
    struct err err = {0};
    CLEANUP(json_decrefp) json_t *doc = NULL;
    bool why = args_has(a, "why");
    int r = client_open(&cli->places, &cli->client, &err);
    if (r == -ENOENT)
        return not_running(a);
    if (r >= 0)
        r = why ? cli_call(cli, "POST", "/v1/status/check", NULL, &doc, &err)
                : cli_call(cli, "GET", "/v1/status", NULL, &doc, &err);
    if (r < 0)
        return cli_fail(&err);
    if (args_has(a, "json"))
        cli_print_json(doc);
    else
        print_status(cli, doc, why);
    return json_bool(doc, "sessions_refused") || has_failed_check(doc) ? EXIT_NO : EXIT_DONE;
}
