/* Runs in: cli. Reads: trusted; names and paths may be anything (escaped). May block: yes. */
#include "cli/session.h"
#include "cli/run.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

const struct option SESSION_LIST_OPTIONS[] = {{"all", 'a', NULL, "those that ended, too", 0},
                                              {"json", 0, NULL, "print JSON", 0},
                                              {NULL, 0, NULL, NULL, 0}};
const struct option SESSION_STOP_OPTIONS[] = {
    {"grace", 0, "DURATION", "between TERM and KILL (5s)", 0}, {NULL, 0, NULL, NULL, 0}};
const struct option POLICY_OPTIONS[] = {
    {"render", 0, "FORM", "what the kernel is told: bwrap, landlock, seccomp", 0},
    {"tier", 't', "TIER", "without a session: of this tier (walled)", 0},
    {NULL, 0, NULL, NULL, 0}};

int session_new_command(struct cli *cli, struct args *a)
{
    struct err err = {0};
    CLEANUP(json_decrefp) json_t *body = session_body(a, &err), *doc = NULL;
    if (!body || cli_call(cli, "POST", "/v1/sessions", body, &doc, &err) < 0)
        return cli_fail(&err);
    if (!json_bool(body, "require_wall"))
        cli_note("no wall: tier open (level none)");
    if (args_has(a, "json")) {
        cli_print_json(doc);
    } else {
        cli_print(json_text(doc, "id"));
        putchar('\n');
    }
    return EXIT_DONE;
}

static void print_row(const json_t *s)
{
    cli_column(json_text(s, "id"), 30);
    cli_column(json_text(s, "state"), 10);
    cli_column(json_text(s, "tier"), 8);
    cli_column(json_text(json_object_get(s, "enforcement"), "level"), 14);
    cli_column(json_text(s, "created_at"), 24);
    cli_print(json_text(s, "name"));
    putchar('\n');
}

static bool is_over(const json_t *s)
{
    const char *state = json_text(s, "state");
    return strcmp(state, "ended") == 0 || strcmp(state, "refused") == 0;
}

/* Page by page; ended ones are left out unless ALL. A new array. */
static json_t *collect(struct cli *cli, bool all, struct err *err)
{
    CLEANUP(json_decrefp) json_t *items = json_array();
    char path[300] = "/v1/sessions?limit=200", cursor[200];
    for (;;) {
        CLEANUP(json_decrefp) json_t *page = NULL;
        size_t i;
        json_t *s;
        if (cli_call(cli, "GET", path, NULL, &page, err) < 0)
            return NULL;
        json_array_foreach(json_object_get(page, "items"), i, s) if (all || !is_over(s))
            json_array_append(items, s);
        snprintf(cursor, sizeof cursor, "%s", json_text(page, "next_cursor"));
        if (!cursor[0])
            return TAKE(items);
        snprintf(path, sizeof path, "/v1/sessions?limit=200&cursor=%s", cursor);
    }
}

int session_list_command(struct cli *cli, struct args *a)
{
    struct err err = {0};
    CLEANUP(json_decrefp) json_t *items = collect(cli, args_has(a, "all"), &err);
    size_t i;
    json_t *s;
    if (!items)
        return cli_fail(&err);
    if (args_has(a, "json")) {
        cli_print_json(items);
        return EXIT_DONE;
    }
    json_array_foreach(items, i, s) print_row(s);
    return EXIT_DONE;
}

static int session_path(const char *id, const char *rest, struct str *ret)
{
    int r = str_puts(ret, "/v1/sessions/");
    if (r >= 0)
        r = url_put(ret, id);
    return r < 0 ? r : str_puts(ret, rest);
}

int session_show_command(struct cli *cli, struct args *a)
{
    struct err err = {0};
    CLEANUP(str_done) struct str path = {0};
    CLEANUP(json_decrefp) json_t *doc = NULL;
    (void)session_path(a->args[0], "", &path);
    if (cli_call(cli, "GET", str_c(&path), NULL, &doc, &err) < 0)
        return cli_fail(&err);
    cli_print_json(doc);
    return EXIT_DONE;
}

int session_stop_command(struct cli *cli, struct args *a)
{
    struct err err = {0};
    const char *grace = args_value(a, "grace", 0);
    int64_t ms = 5000;
    CLEANUP(str_done) struct str path = {0};
    if (grace && parse_duration(grace, &ms) < 0) {
        err_set(&err, -EINVAL, "usage", "500ms, 30s, 5m or 2h", "bad --grace '%s'", grace);
        return cli_fail(&err);
    }
    CLEANUP(json_decrefp) json_t *body = json_pack("{s:I}", "grace_ms", (json_int_t)ms);
    (void)session_path(a->args[0], "/stop", &path);
    return cli_call(cli, "POST", str_c(&path), body, NULL, &err) < 0 ? cli_fail(&err) : EXIT_DONE;
}

/* A rendering is text of our own renderers, but paths in it are not: escaped line by line. */
static void print_lines(const struct str *text)
{
    for (const char *p = str_c(text); *p;) {
        size_t n = strcspn(p, "\n");
        CLEANUP(str_done) struct str line = {0};
        (void)str_put_escaped(&line, p, n);
        puts(str_c(&line));
        p += n + (p[n] == '\n');
    }
}

static int render(struct cli *cli, const char *path, struct err *err)
{
    struct httpc_request rq = {.method = "GET", .target = path, .if_match = -1};
    int r = cli_connect(cli, err);
    if (r >= 0)
        r = client_call(cli->client, &rq, err);
    if (r < 0)
        return r;
    struct httpc *h = &cli->client->main;
    if (h->status != 200)
        return client_problem(h->status, &h->body, err);
    print_lines(&h->body);
    return 0;
}

static int preview(struct cli *cli, const struct args *a, struct err *err)
{
    CLEANUP(json_decrefp) json_t *body = session_body(a, err), *doc = NULL;
    int r = body ? cli_call(cli, "POST", "/v1/policy/preview", body, &doc, err) : -EINVAL;
    if (r >= 0)
        cli_print_json(doc);
    return r;
}

int policy_command(struct cli *cli, struct args *a)
{
    struct err err = {0};
    const char *form = args_value(a, "render", 0), *tier = args_value(a, "tier", 0);
    CLEANUP(str_done) struct str path = {0};
    int r = 0;
    if (form && strcmp(form, "seatbelt") == 0)
        r = err_set(&err, -ENOTSUP, "not_in_this_version", "bwrap, landlock or seccomp",
                    "--render seatbelt: not in this version");
    else if (form && strcmp(form, "bwrap") != 0 && strcmp(form, "landlock") != 0 &&
             strcmp(form, "seccomp") != 0)
        r = err_set(&err, -EINVAL, "usage", "bwrap, landlock or seccomp", "--render '%s'?", form);
    else if (a->n_args && tier)
        r = err_set(&err, -EINVAL, "usage", "leave --tier away", "the session has a tier");
    else if (a->n_args)
        (void)session_path(a->args[0], "/policy", &path);
    else
        (void)str_puts(&path, "/v1/policy?tier=");
    if (r >= 0 && !a->n_args)
        (void)url_put(&path, tier ? tier : "walled");
    if (r >= 0 && form) {
        (void)str_puts(&path, a->n_args ? "?render=" : "&render=");
        (void)str_puts(&path, form);
        r = render(cli, str_c(&path), &err);
    } else if (r >= 0 && a->n_args) {
        CLEANUP(json_decrefp) json_t *doc = NULL;
        r = cli_call(cli, "GET", str_c(&path), NULL, &doc, &err);
        if (r >= 0)
            cli_print_json(doc);
    } else if (r >= 0) {
        r = preview(cli, a, &err);
    }
    return r < 0 ? cli_fail(&err) : EXIT_DONE;
}
