/* Runs in: cli. Reads: trusted. May block: yes. */
#include "cli/token.h"
#include "base/clock.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

const struct option TOKEN_NEW_OPTIONS[] = {
    {"scope", 0, "SCOPE", "read exec ask:create ask:decide sessions settings credentials admin",
     OPTION_REPEATS},
    {"session", 's', "SESSION", "an agent's token: for this session only", 0},
    {"expires", 0, "DURATION", "ends after 30s, 5m or 2h (never)", 0},
    {"json", 0, NULL, "print the document of the API", 0},
    {NULL, 0, NULL, NULL, 0}};
const struct option TOKEN_LIST_OPTIONS[] = {{"json", 0, NULL, "print JSON", 0},
                                            {NULL, 0, NULL, NULL, 0}};

static json_t *token_body(const struct args *a, struct err *err)
{
    const char *session = args_value(a, "session", 0), *expires = args_value(a, "expires", 0);
    json_t *scopes = json_array();
    for (size_t i = 0; i < args_count(a, "scope"); i++)
        json_array_append_new(scopes, json_string(args_value(a, "scope", i)));
    CLEANUP(json_decrefp)
    json_t *body = json_pack("{s:s, s:o}", "name", a->args[0], "scopes", scopes);
    int64_t ms;
    if (!body) {
        err_set(err, -EILSEQ, "usage", NULL, "the name is not UTF-8 text");
        return NULL;
    }
    if (session)
        json_object_set_new(body, "session_id", json_string(session));
    if (expires && parse_duration(expires, &ms) < 0) {
        err_set(err, -EINVAL, "usage", "30s, 5m or 2h", "bad --expires '%s'", expires);
        return NULL;
    }
    if (expires) {
        char text[CLOCK_TEXT_MAX];
        clock_text(clock_wall_ms() + ms, text);
        json_object_set_new(body, "expires_at", json_string(text));
    }
    return TAKE(body);
}

int token_new_command(struct cli *cli, struct args *a)
{
    struct err err = {0};
    if (!args_has(a, "scope")) {
        err_set(&err, -EINVAL, "usage", "--scope read --scope exec …", "which scopes?");
        return cli_fail(&err);
    }
    CLEANUP(json_decrefp) json_t *body = token_body(a, &err), *doc = NULL;
    if (!body || cli_call(cli, "POST", "/v1/tokens", body, &doc, &err) < 0)
        return cli_fail(&err);
    if (args_has(a, "json")) {
        cli_print_json(doc);
        return EXIT_DONE;
    }
    cli_print(json_text(doc, "token"));
    putchar('\n');
    cli_note("%s: shown this once; revoke it with: cordon token revoke %s", json_text(doc, "name"),
             json_text(doc, "id"));
    return EXIT_DONE;
}

static void print_token(const json_t *t)
{
    size_t i;
    json_t *scope;
    cli_column(json_text(t, "id"), 30);
    cli_column(json_text(t, "name"), 20);
    cli_column(json_text(t, "session_id"), 30);
    cli_column(json_text(t, "created_at"), 24);
    cli_column(json_text(t, "expires_at"), 24);
    json_array_foreach(json_object_get(t, "scopes"), i, scope)
    {
        if (i)
            putchar(' ');
        cli_print(json_string_value(scope));
    }
    putchar('\n');
}

int token_list_command(struct cli *cli, struct args *a)
{
    struct err err = {0};
    CLEANUP(json_decrefp) json_t *doc = NULL;
    size_t i;
    json_t *t;
    if (cli_call(cli, "GET", "/v1/tokens?limit=500", NULL, &doc, &err) < 0)
        return cli_fail(&err);
    if (args_has(a, "json")) {
        cli_print_json(json_object_get(doc, "items"));
        return EXIT_DONE;
    }
    json_array_foreach(json_object_get(doc, "items"), i, t) print_token(t);
    return EXIT_DONE;
}

int token_revoke_command(struct cli *cli, struct args *a)
{
    struct err err = {0};
    CLEANUP(str_done) struct str path = {0};
    (void)str_puts(&path, "/v1/tokens/");
    (void)url_put(&path, a->args[0]);
    return cli_call(cli, "DELETE", str_c(&path), NULL, NULL, &err) < 0 ? cli_fail(&err) : EXIT_DONE;
}
