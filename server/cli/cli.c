/* Runs in: cli. Reads: trusted and, to print it, hostile text (escaped). May block: yes. */
#include "cli/cli.h"
#include "cli/start.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

int cli_connect(struct cli *cli, struct err *err)
{
    if (cli->client)
        return 0;
    return start_or_open(&cli->places, &cli->client, err);
}

void cli_done(struct cli *cli)
{
    client_close(cli->client);
    places_done(&cli->places);
}

/* The answer of the last call: JSON in *RET, or the problem in ERR. */
static int take_answer(struct cli *cli, json_t **ret, struct err *err)
{
    const struct httpc *h = &cli->client->main;
    if (h->status < 200 || h->status > 299)
        return client_problem(h->status, &h->body, err);
    if (!ret)
        return 0;
    *ret =
        h->body.len ? json_loadb(h->body.data, h->body.len, JSON_ALLOW_NUL, NULL) : json_object();
    return *ret ? 0 : err_set(err, -EBADMSG, "internal", NULL, "the daemon's answer is not JSON");
}

/* What a 409 confirm_required wants as ?confirm=; empty for any other answer. */
static void wanted_confirmation(const struct httpc *h, struct str *ret)
{
    if (h->status != 409)
        return;
    json_t *doc = json_loadb(str_c(&h->body), h->body.len, 0, NULL);
    if (strcmp(json_text(doc, "code"), "confirm_required") == 0)
        (void)str_puts(ret, json_text(doc, "confirm"));
    json_decref(doc);
}

static bool cli_is_terminal(void)
{
    return isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
}

/* A question on the terminal; false where standard in or error is none, or for any answer but yes.
 */
static bool cli_confirm(const char *question)
{
    CLEANUP(str_done) struct str line = {0};
    char answer[16];
    if (!cli_is_terminal())
        return false;
    (void)str_put_escaped(&line, question, strlen(question));
    fprintf(stderr, "%s [y/N] ", str_c(&line));
    if (!fgets(answer, sizeof answer, stdin))
        return false;
    answer[strcspn(answer, "\n")] = '\0';
    return strcasecmp(answer, "y") == 0 || strcasecmp(answer, "yes") == 0;
}

static int call_confirmed(struct cli *cli, struct httpc_request *rq, json_t **ret, struct err *err)
{
    CLEANUP(str_done) struct str confirm = {0}, path = {0}, question = {0};
    int r = client_call(cli->client, rq, err);
    if (r < 0)
        return r;
    wanted_confirmation(&cli->client->main, &confirm);
    if (!confirm.len)
        return take_answer(cli, ret, err);
    if (cli_is_terminal()) {
        (void)client_problem(409, &cli->client->main.body, err);
        (void)str_printf(&question, "%s Go on with '%s'?", err ? err->detail : "", confirm.data);
        if (!cli_confirm(str_c(&question)))
            return -ECANCELED;
        if (err)
            err_clear(err);
    }
    if (str_printf(&path, "%s%cconfirm=", rq->target, strchr(rq->target, '?') ? '&' : '?') < 0 ||
        url_put(&path, confirm.data) < 0)
        return err_set(err, -ENOMEM, "internal", NULL, "out of memory");
    rq->target = path.data;
    r = client_call(cli->client, rq, err);
    return r < 0 ? r : take_answer(cli, ret, err);
}

static int call(struct cli *cli, struct httpc_request *rq, const json_t *body, json_t **ret,
                struct err *err)
{
    int r = cli_connect(cli, err);
    if (r < 0)
        return r;
    CLEANUP(freep) char *text = NULL;
    if (body) {
        text = json_dumps(body, JSON_COMPACT);
        if (!text)
            return err_set(err, -EINVAL, "usage", NULL, "an argument is not UTF-8 text");
        rq->body = text;
        rq->len = strlen(text);
    }
    return call_confirmed(cli, rq, ret, err);
}

int cli_call(struct cli *cli, const char *method, const char *path, const json_t *body,
             json_t **ret, struct err *err)
{
    struct httpc_request rq = {.method = method, .target = path, .if_match = -1};
    rq.accept = "application/json"; /* where a stream is offered too */
    rq.type = body ? "application/json" : NULL;
    return call(cli, &rq, body, ret, err);
}

int cli_patch(struct cli *cli, const char *path, int64_t rev, const json_t *body, json_t **ret,
              struct err *err)
{
    struct httpc_request rq = {.method = "PATCH", .target = path, .if_match = rev};
    rq.type = "application/merge-patch+json";
    return call(cli, &rq, body, ret, err);
}

int cli_fail(const struct err *err)
{
    CLEANUP(str_done) struct str line = {0};
    const char *detail = err->detail[0] ? err->detail : "failed";
    (void)str_put_escaped(&line, detail, strlen(detail));
    if (err->hint[0]) {
        (void)str_puts(&line, "; ");
        (void)str_put_escaped(&line, err->hint, strlen(err->hint));
    }
    if (err->code[0])
        (void)str_printf(&line, " [%s]", err->code);
    fprintf(stderr, "cordon: %s\n", str_c(&line));
    return EXIT_CORDON;
}

void cli_note(const char *fmt, ...)
{
    CLEANUP(str_done) struct str text = {0}, line = {0};
    va_list ap;
    va_start(ap, fmt);
    (void)str_vprintf(&text, fmt, ap);
    va_end(ap);
    (void)str_put_escaped(&line, str_c(&text), text.len);
    fprintf(stderr, "cordon: %s\n", str_c(&line));
}

void cli_print(const char *text)
{
    CLEANUP(str_done) struct str line = {0};
    (void)str_put_escaped(&line, text, strlen(text));
    fputs(str_c(&line), stdout);
}

void cli_print_json(const json_t *doc)
{
    /* ASCII only: no control or format character reaches a terminal unescaped. */
    (void)json_dumpf(doc, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII);
    fputc('\n', stdout);
}

void cli_column(const char *text, int width)
{
    CLEANUP(str_done) struct str line = {0};
    const char *shown = text && text[0] ? text : "-";
    (void)str_put_escaped(&line, shown, strlen(shown));
    printf("%-*s ", width, str_c(&line));
}

json_t *cli_collect(struct cli *cli, const char *path, struct err *err)
{
    CLEANUP(json_decrefp) json_t *items = json_array();
    CLEANUP(str_done) struct str cursor = {0};
    do {
        CLEANUP(str_done) struct str page_path = {0};
        CLEANUP(json_decrefp) json_t *page = NULL;
        (void)str_printf(&page_path, "%s%climit=500", path, strchr(path, '?') ? '&' : '?');
        if (cursor.len) {
            (void)str_puts(&page_path, "&cursor=");
            (void)url_put(&page_path, cursor.data);
        }
        if (cli_call(cli, "GET", str_c(&page_path), NULL, &page, err) < 0)
            return NULL;
        json_array_extend(items, json_object_get(page, "items"));
        str_clear(&cursor);
        (void)str_puts(&cursor, json_text(page, "next_cursor"));
    } while (cursor.len);
    return TAKE(items);
}

void cli_target(const json_t *object, char ret[static CLI_TARGET])
{
    char host[HOST_MAX];
    (void)snprintf(host, sizeof host, "%s", json_text(object, "host"));
    host_port_text(host, (uint16_t)json_int(object, "port"), ret);
}

const char *json_text(const json_t *object, const char *member)
{
    const char *s = json_string_value(json_object_get(object, member));
    return s ? s : "";
}

int64_t json_int(const json_t *object, const char *member)
{
    return json_integer_value(json_object_get(object, member));
}

bool json_bool(const json_t *object, const char *member)
{
    return json_is_true(json_object_get(object, member));
}

int url_put(struct str *s, const char *text)
{
    static const char PLAIN[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    int r = 0;
    for (const unsigned char *p = (const unsigned char *)text; *p && r >= 0; p++)
        r = strchr(PLAIN, *p) ? str_putc(s, (char)*p) : str_printf(s, "%%%02X", *p);
    return r;
}
