/* Runs in: cli. Reads: trusted; hosts may be anything (escaped). May block: yes. */
#include "cli/sites.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define SESSION_OPTION                                                                             \
    {                                                                                              \
        "session", 's', "SESSION", "the sites of this session instead", 0                          \
    }
const struct option SITES_LIST_OPTIONS[] = {
    SESSION_OPTION, {"json", 0, NULL, "print JSON", 0}, {NULL, 0, NULL, NULL, 0}};
const struct option SITES_ADD_OPTIONS[] = {
    SESSION_OPTION,
    {"list", 0, "LIST", "machine (the default); guarded is for that tier, which comes later", 0},
    {"note", 0, "TEXT", "why", 0},
    {"allow-private", 0, NULL, "also where it lies in a private network", 0},
    {NULL, 0, NULL, NULL, 0}};
const struct option SITES_REMOVE_OPTIONS[] = {SESSION_OPTION, {NULL, 0, NULL, NULL, 0}};
const struct option SITES_CHECK_OPTIONS[] = {SESSION_OPTION, {NULL, 0, NULL, NULL, 0}};

/* A port apart where one is written; what is not well written is the daemon's to refuse, which
 * says how it should be. */
json_t *site_json(const char *typed, struct err *err)
{
    const char *colon = strrchr(typed, ':'), *bracket = strrchr(typed, ']');
    uint64_t port = 0;
    size_t n = strlen(typed);
    if (colon && (bracket ? colon > bracket : strchr(typed, ':') == colon) && colon[1] != '0' &&
        parse_u64(colon + 1, 1, 65535, &port) == 0)
        n = (size_t)(colon - typed);
    json_t *site = json_pack("{s:s%}", "host", typed, n);
    if (site && port)
        json_object_set_new(site, "port", json_integer((json_int_t)port));
    if (!site)
        err_set(err, -EINVAL, "site_invalid", NULL, "%s: not UTF-8", typed);
    return site;
}

/* /v1/sites, or /v1/sessions/S/sites. */
static void sites_path(const struct args *a, struct str *ret)
{
    const char *session = args_value(a, "session", 0);
    (void)str_puts(ret, session ? "/v1/sessions/" : "/v1");
    if (session)
        (void)url_put(ret, session);
    (void)str_puts(ret, "/sites");
}

static json_t *collect(struct cli *cli, const struct args *a, struct err *err)
{
    CLEANUP(json_decrefp) json_t *items = json_array();
    CLEANUP(str_done) struct str cursor = {0};
    for (;;) {
        CLEANUP(str_done) struct str path = {0};
        CLEANUP(json_decrefp) json_t *page = NULL;
        sites_path(a, &path);
        if (!args_has(a, "session"))
            (void)str_puts(&path, "?limit=500");
        if (cursor.len) {
            (void)str_puts(&path, args_has(a, "session") ? "?cursor=" : "&cursor=");
            (void)url_put(&path, cursor.data);
        }
        if (cli_call(cli, "GET", str_c(&path), NULL, &page, err) < 0)
            return NULL;
        json_array_extend(items, json_object_get(page, "items"));
        str_clear(&cursor);
        (void)str_puts(&cursor, json_text(page, "next_cursor"));
        if (!cursor.len)
            return TAKE(items);
    }
}

static void print_site(const json_t *s)
{
    char port[16] = "80,443";
    if (json_int(s, "port"))
        snprintf(port, sizeof port, "%lld", (long long)json_int(s, "port"));
    printf("%s ", json_bool(s, "enabled") ? "on " : "off");
    cli_column(json_text(s, "host"), 36);
    cli_column(port, 7);
    cli_column(json_text(s, "list"), 8);
    cli_column(json_text(s, "source"), 10);
    cli_column(json_text(s, "id"), 30);
    cli_print(json_text(s, "note"));
    putchar('\n');
}

int sites_list_command(struct cli *cli, struct args *a)
{
    struct err err = {0};
    CLEANUP(json_decrefp) json_t *items = collect(cli, a, &err);
    size_t i;
    json_t *s;
    if (!items)
        return cli_fail(&err);
    if (args_has(a, "json")) {
        cli_print_json(items);
        return EXIT_DONE;
    }
    json_array_foreach(items, i, s) print_site(s);
    return EXIT_DONE;
}

/* The row for what was typed (its id, or host and port), borrowed of ITEMS. */
static json_t *find_site(const json_t *items, const char *typed, const json_t *site)
{
    size_t i;
    json_t *s;
    json_array_foreach(items, i, s)
    {
        if (strcmp(json_text(s, "id"), typed) == 0)
            return s;
        bool same_host = strcasecmp(json_text(s, "host"), json_text(site, "host")) == 0 ||
                         strcmp(json_text(s, "host_unicode"), json_text(site, "host")) == 0;
        if (same_host && json_int(s, "port") == json_int(site, "port"))
            return s;
    }
    return NULL;
}

static int set_enabled(struct cli *cli, const json_t *row, bool on, struct err *err)
{
    CLEANUP(str_done) struct str path = {0};
    CLEANUP(json_decrefp) json_t *patch = json_pack("{s:b}", "enabled", on), *doc = NULL;
    (void)str_puts(&path, "/v1/sites/");
    (void)url_put(&path, json_text(row, "id"));
    int r = cli_patch(cli, str_c(&path), json_int(row, "rev"), patch, &doc, err);
    if (r >= 0 && on)
        print_site(doc);
    return r;
}

/* It is there already: a row of the catalogue that is not ticked is ticked. */
static int tick(struct cli *cli, const struct args *a, const json_t *site, struct err *err)
{
    CLEANUP(json_decrefp) json_t *items = collect(cli, a, err);
    const json_t *row = items ? find_site(items, a->args[0], site) : NULL;
    if (!row || args_has(a, "session"))
        return -EEXIST;
    err_clear(err);
    if (!json_bool(row, "enabled"))
        return set_enabled(cli, row, true, err);
    print_site(row);
    return 0;
}

int sites_add_command(struct cli *cli, struct args *a)
{
    struct err err = {0};
    CLEANUP(str_done) struct str path = {0};
    CLEANUP(json_decrefp) json_t *site = site_json(a->args[0], &err), *doc = NULL;
    const char *list = args_value(a, "list", 0), *note = args_value(a, "note", 0);
    if (!site)
        return cli_fail(&err);
    if (list && args_has(a, "session")) {
        err_set(&err, -EINVAL, "usage", NULL, "--list and --session exclude each other");
        return cli_fail(&err);
    }
    if (list)
        json_object_set_new(site, "list", json_string(list));
    if (note)
        json_object_set_new(site, "note", json_string(note));
    if (args_has(a, "allow-private"))
        json_object_set_new(site, "allow_private", json_true());
    sites_path(a, &path);
    int r = cli_call(cli, "POST", str_c(&path), site, &doc, &err);
    if (r >= 0)
        print_site(doc);
    else if (strcmp(err.code, "exists") == 0)
        r = tick(cli, a, site, &err);
    return r < 0 ? cli_fail(&err) : EXIT_DONE;
}

int sites_remove_command(struct cli *cli, struct args *a)
{
    struct err err = {0};
    CLEANUP(str_done) struct str path = {0};
    CLEANUP(json_decrefp) json_t *site = site_json(a->args[0], &err), *items = NULL;
    if (site)
        items = collect(cli, a, &err);
    if (!items)
        return cli_fail(&err);
    const json_t *row = find_site(items, a->args[0], site);
    if (!row) {
        err_set(&err, -ENOENT, "not_found", "cordon sites list", "no site %s", a->args[0]);
        return cli_fail(&err);
    }
    /* A row of the catalogue stays, without its tick. */
    const json_t *removable = json_object_get(row, "removable");
    if (json_is_false(removable) && !args_has(a, "session"))
        return set_enabled(cli, row, false, &err) < 0 ? cli_fail(&err) : EXIT_DONE;
    sites_path(a, &path);
    (void)str_putc(&path, '/');
    (void)url_put(&path, json_text(row, "id"));
    return cli_call(cli, "DELETE", str_c(&path), NULL, NULL, &err) < 0 ? cli_fail(&err) : EXIT_DONE;
}

int sites_check_command(struct cli *cli, struct args *a)
{
    struct err err = {0};
    CLEANUP(json_decrefp) json_t *site = site_json(a->args[0], &err), *doc = NULL;
    const char *session = args_value(a, "session", 0);
    if (!site)
        return cli_fail(&err);
    if (!json_object_get(site, "port"))
        json_object_set_new(site, "port", json_integer(443));
    if (session)
        json_object_set_new(site, "session_id", json_string(session));
    if (cli_call(cli, "POST", "/v1/sites/check", site, &doc, &err) < 0)
        return cli_fail(&err);
    bool allowed = strcmp(json_text(doc, "verdict"), "allow") == 0;
    printf("%s ", allowed ? "allow" : "refuse");
    cli_print(json_text(site, "host"));
    printf(":%lld", (long long)json_int(site, "port"));
    if (!allowed && json_text(doc, "reason")[0]) {
        printf(" (");
        cli_print(json_text(doc, "reason"));
        printf(")");
    }
    putchar('\n');
    return allowed ? EXIT_DONE : EXIT_NO;
}
