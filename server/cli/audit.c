/* Runs in: cli. Reads: hostile text inside rows (escaped). May block: yes. */
#include "cli/audit.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

const struct option AUDIT_OPTIONS[] = {
    {"follow", 'f', NULL, "go on as rows are added, until interrupted", 0},
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

static void print_rows(const struct args *a, const json_t *newest_first)
{
    for (size_t i = json_array_size(newest_first); i-- > 0;)
        (args_has(a, "json") ? print_json_line : print_row)(json_array_get(newest_first, i));
}

/* ---- Following --------------------------------------------------------------------------------
 */

/* Rows of these filters behind number LAST, newest first. A cursor is the number of a row. */
static json_t *newer(struct cli *cli, const struct args *a, int64_t last, struct err *err)
{
    CLEANUP(json_decrefp) json_t *items = json_array();
    CLEANUP(str_done) struct str cursor = {0};
    uint64_t at = 0;
    do {
        CLEANUP(str_done) struct str path = {0};
        CLEANUP(json_decrefp) json_t *page = NULL;
        size_t i;
        json_t *row;
        page_path(a, 500, str_c(&cursor), &path);
        if (cli_call(cli, "GET", str_c(&path), NULL, &page, err) < 0)
            return NULL;
        str_clear(&cursor);
        (void)str_puts(&cursor, json_text(page, "next_cursor"));
        json_array_foreach(json_object_get(page, "items"), i, row) if (json_int(row, "seq") > last)
            json_array_append(items, row);
    } while (cursor.len && parse_u64(cursor.data, 0, INT64_MAX, &at) == 0 && (int64_t)at > last);
    return TAKE(items);
}

/* Waits for a row behind AFTER; "" = tells the place where things stand now. *RET_SEQ, when there
 * was one, is the number of the newest. */
static int wait_row(struct cli *cli, struct str *after, int64_t *ret_seq, struct err *err)
{
    CLEANUP(str_done) struct str path = {0};
    CLEANUP(json_decrefp) json_t *doc = NULL;
    const json_t *events;
    (void)str_puts(&path, "/v1/events?types=audit");
    if (after->len) {
        (void)str_puts(&path, "&wait_ms=60000&after=");
        (void)url_put(&path, after->data);
    }
    int r = cli_call(cli, "GET", str_c(&path), NULL, &doc, err);
    if (r < 0)
        return r;
    events = json_object_get(doc, "events");
    for (size_t i = 0; i < json_array_size(events); i++)
        if (json_int(json_array_get(events, i), "rev") > *ret_seq)
            *ret_seq = json_int(json_array_get(events, i), "rev");
    str_clear(after);
    return str_puts(after, json_text(doc, "next"));
}

/* The number of the newest row of all. */
static int newest_seq(struct cli *cli, int64_t *ret, struct err *err)
{
    CLEANUP(json_decrefp) json_t *page = NULL;
    int r = cli_call(cli, "GET", "/v1/audit?limit=1", NULL, &page, err);
    if (r >= 0)
        *ret = json_int(json_array_get(json_object_get(page, "items"), 0), "seq");
    return r;
}

/* LAST: all rows up to this number were looked at. */
static int follow(struct cli *cli, const struct args *a, struct str *after, int64_t last,
                  struct err *err)
{
    for (;;) {
        int64_t seq = last;
        if (fflush(stdout) == EOF)
            return EXIT_DONE; /* nobody reads any more */
        if (wait_row(cli, after, &seq, err) < 0)
            return cli_fail(err);
        CLEANUP(json_decrefp) json_t *items = newer(cli, a, last, err);
        if (!items)
            return cli_fail(err);
        print_rows(a, items);
        if (json_array_size(items) > 0 && json_int(json_array_get(items, 0), "seq") > seq)
            seq = json_int(json_array_get(items, 0), "seq");
        last = seq;
    }
}

int audit_command(struct cli *cli, struct args *a)
{
    struct err err = {0};
    CLEANUP(str_done) struct str after = {0};
    uint64_t limit = 50;
    const char *n = args_value(a, "limit", 0);
    if (n && parse_u64(n, 1, 1000000, &limit) < 0) {
        err_set(&err, -EINVAL, "usage", "1 to 1000000", "bad --limit '%s'", n);
        return cli_fail(&err);
    }
    int64_t last = 0;
    /* Before the first rows are read, so that none falls between. */
    if (args_has(a, "follow") &&
        (wait_row(cli, &after, &last, &err) < 0 || newest_seq(cli, &last, &err) < 0))
        return cli_fail(&err);
    CLEANUP(json_decrefp) json_t *items = collect(cli, a, limit, &err);
    if (!items)
        return cli_fail(&err);
    print_rows(a, items);
    if (!args_has(a, "follow"))
        return EXIT_DONE;
    if (json_int(json_array_get(items, 0), "seq") > last)
        last = json_int(json_array_get(items, 0), "seq");
    return follow(cli, a, &after, last, &err);
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
