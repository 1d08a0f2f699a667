/* Runs in: cli. Reads: hostile text inside rows (escaped). May block: yes. */
#include "cli/audit.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

const struct option AUDIT_OPTIONS[] = {
    {"follow", 0, NULL, "go on as rows are added", OPTION_LATER},
    {"json", 0, NULL, "one row a line, as JSON", 0},
    {"limit", 'n', "N", "the newest N rows (50)", 0},
    {"session", 's', "SESSION", "only of this session", 0},
    {"action", 0, "ACTION", "only this action, e.g. command.started", 0},
    {"outcome", 0, "OUTCOME", "only ok, refused or error", 0},
    {NULL, 0, NULL, NULL, 0}};

static void print_row(const json_t *row)
{
    const json_t *actor = json_object_get(row, "actor");
    cli_column(json_text(row, "at"), 24);
    cli_column(json_text(actor, "kind"), 7);
    cli_column(json_text(row, "action"), 20);
    cli_column(json_text(row, "outcome"), 7);
    cli_column(json_text(json_object_get(row, "enforcement"), "level"), 13);
    cli_print(json_text(row, "target"));
    putchar('\n');
}

static void print_json_line(const json_t *row)
{
    (void)json_dumpf(row, stdout, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_SORT_KEYS);
    putchar('\n');
}

static void page_path(const struct args *a, uint64_t limit, const char *cursor, struct str *ret)
{
    static const char *const FILTERS[] = {"session", "action", "outcome"};
    (void)str_printf(ret, "/v1/audit?limit=%llu", (unsigned long long)(limit < 500 ? limit : 500));
    for (size_t i = 0; i < ARRAY_LEN(FILTERS); i++) {
        const char *value = args_value(a, FILTERS[i], 0);
        if (!value)
            continue;
        (void)str_printf(ret, "&%s=", FILTERS[i]);
        (void)url_put(ret, value);
    }
    if (cursor[0]) {
        (void)str_puts(ret, "&cursor=");
        (void)url_put(ret, cursor);
    }
}

static json_t *collect(struct cli *cli, const struct args *a, uint64_t limit, struct err *err)
{
    CLEANUP(json_decrefp) json_t *items = json_array();
    CLEANUP(str_done) struct str cursor = {0};
    do {
        CLEANUP(str_done) struct str path = {0};
        CLEANUP(json_decrefp) json_t *page = NULL;
        page_path(a, limit - json_array_size(items), str_c(&cursor), &path);
        if (cli_call(cli, "GET", str_c(&path), NULL, &page, err) < 0)
            return NULL;
        json_array_extend(items, json_object_get(page, "items"));
        str_clear(&cursor);
        (void)str_puts(&cursor, json_text(page, "next_cursor"));
    } while (cursor.len && json_array_size(items) < limit);
    return TAKE(items);
}

int audit_command(struct cli *cli, struct args *a)
{
    struct err err = {0};
    uint64_t limit = 50;
    const char *n = args_value(a, "limit", 0);
    if (n && parse_u64(n, 1, 1000000, &limit) < 0) {
        err_set(&err, -EINVAL, "usage", "1 to 1000000", "bad --limit '%s'", n);
        return cli_fail(&err);
    }
    CLEANUP(json_decrefp) json_t *items = collect(cli, a, limit, &err);
    if (!items)
        return cli_fail(&err);
    for (size_t i = json_array_size(items); i-- > 0;)
        (args_has(a, "json") ? print_json_line : print_row)(json_array_get(items, i));
    return EXIT_DONE;
}

int audit_verify_command(struct cli *cli, struct args *a)
{
    struct err err = {0};
    CLEANUP(json_decrefp) json_t *doc = NULL;
    (void)a;
    if (cli_call(cli, "GET", "/v1/audit/verify", NULL, &doc, &err) < 0)
        return cli_fail(&err);
    if (json_bool(doc, "ok"))
        printf("whole: %lld rows\n", (long long)json_int(doc, "rows"));
    else
        printf("BROKEN at row %lld (of %lld looked at)\n", (long long)json_int(doc, "broken_at"),
               (long long)json_int(doc, "rows"));
    return json_bool(doc, "ok") ? EXIT_DONE : EXIT_NO;
}
