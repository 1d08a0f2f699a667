/* What the commands of `cordon` share: where things are, the connection to the daemon, how errors
 * are told. The program holds no policy: it speaks REST (schema/openapi.json) and prints.
 *
 *     int sites_list_command(struct cli *cli, struct args *a)
 *     {
 *         CLEANUP(json_decrefp) json_t *doc = NULL;
 *         struct err err = {0};
 *         if (cli_call(cli, "GET", "/v1/sites", NULL, &doc, &err) < 0)
 *             return cli_fail(&err);
 *         …
 *         return EXIT_DONE;
 *     } */
#pragma once
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/args.h"
#include "cli/client.h"
#include "cli/places.h"
#include "wire/host.h"
#include <jansson.h>

/* Exit codes, as README and man cordon have them. */
enum {
    EXIT_DONE = 0,
    EXIT_NO = 1, /* the answer is no: sites check, audit verify, status */
    EXIT_TIMED_OUT = 124,
    EXIT_CORDON = 125, /* Cordon itself failed or refused; one line names reason and cure */
    EXIT_CANNOT_RUN = 126,
    EXIT_NOT_FOUND = 127,
    EXIT_SIGNAL = 128 /* + the signal's number */
};

struct cli {
    struct places places;
    struct client *client; /* NULL until cli_connect */
};

/* Connects to the daemon of this user; starts one when none runs. Idempotent. */
int cli_connect(struct cli *cli, struct err *err);
void cli_done(struct cli *cli);

/* One request with the answer as JSON. Fails (-EPROTO with the problem's code, detail and hint) on
 * any status but 2xx. What the daemon wants confirmed is asked on a terminal; without one the
 * command line is the confirmation. BODY is borrowed, may be NULL; RET may be NULL. */
int cli_call(struct cli *cli, const char *method, const char *path, const json_t *body,
             json_t **ret, struct err *err);
/* PATCH with If-Match: REV. */
int cli_patch(struct cli *cli, const char *path, int64_t rev, const json_t *body, json_t **ret,
              struct err *err);

/* "cordon: DETAIL; HINT [CODE]" on standard error, escaped, one line. Returns EXIT_CORDON. */
int cli_fail(const struct err *err);
void cli_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Printing to standard out: text that came from elsewhere is escaped. */
void cli_print(const char *text);
void cli_print_json(const json_t *doc);
/* A column of WIDTH and a space behind; NULL prints "-". */
void cli_column(const char *text, int width);

/* All pages of the list at PATH, which may have a query; a new array, NULL with ERR. */
json_t *cli_collect(struct cli *cli, const char *path, struct err *err);

/* "host:port" of an object with these members; an IPv6 address stands in brackets. */
#define CLI_TARGET (HOST_MAX + 10)
void cli_target(const json_t *object, char ret[static CLI_TARGET]);

const char *json_text(const json_t *object, const char *member); /* "" when no string */
int64_t json_int(const json_t *object, const char *member);
bool json_bool(const json_t *object, const char *member);
/* Percent-encoded for a path segment or a query value (RFC 3986, 2.1), appended. */
int url_put(struct str *s, const char *text);
