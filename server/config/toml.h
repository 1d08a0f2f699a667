/* A TOML 1.0.0 document (toml.io/en/v1.0.0) as a tree. Pure: bytes in, tree or one error out.
 *
 *     struct toml *doc;
 *     if (toml_parse(bytes, n, &doc, &err) < 0) … err.detail begins with "line 7: "
 *     const struct toml *tier = toml_get(toml_get(doc, "sandbox"), "default_tier");
 *     toml_free(doc);
 *
 * Members of tables stand in the order of the file, elements of arrays too. Nothing of a document
 * that has an error is given: a broken file is no half file. */
#pragma once
#include "base/err.h"
#include <stddef.h>
#include <stdint.h>

#define TOML_BYTES_MAX ((size_t)1 << 20) /* of a document */
#define TOML_DEPTH_MAX 64                /* tables and arrays within each other */
#define TOML_ITEMS_MAX 4096              /* members of one table */

enum toml_kind {
    TOML_TABLE = 0,
    TOML_ARRAY,
    TOML_STRING,
    TOML_INTEGER,
    TOML_FLOAT,
    TOML_BOOLEAN,
    TOML_DATETIME,       /* RFC 3339 with its offset */
    TOML_DATETIME_LOCAL, /* without */
    TOML_DATE_LOCAL,
    TOML_TIME_LOCAL
};

struct toml {
    enum toml_kind kind;
    unsigned line; /* where it begins, from 1 */
    char *key;     /* of a table's member, NUL-terminated for reading; NULL else */
    size_t key_len;
    char *text; /* of strings and dates: UTF-8, LEN bytes and a NUL behind them */
    size_t len; /* a string may hold NULs itself. Dates: 'T' between, 'Z' for +00:00 */
    int64_t integer;
    double number; /* of TOML_FLOAT: infinity and NaN too */
    bool truth;
    struct toml *first, *next; /* members or elements; the next one beside this */
    /* internal: how the tables came to be, which decides what may still be added */
    struct toml *last;
    size_t n;
    bool is_defined, is_dotted, is_closed, is_tables;
};

/* BYTES need no NUL. -EBADMSG with ERR (code toml_invalid) for what is not TOML or crosses a bound
 * above, -ENOMEM. */
int toml_parse(const char *bytes, size_t n, struct toml **ret, struct err *err);
void toml_free(struct toml *t);
/* The member of TABLE, or NULL: also when TABLE is NULL or no table. */
const struct toml *toml_get(const struct toml *table, const char *key);
