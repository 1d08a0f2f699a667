/* JSON object -> struct by a table. Strict: unknown, duplicate, missing, mistyped, out-of-range and
 * over-long members are refused, each with its JSON pointer, an unknown one with the nearest known
 * name. Documents come through json_strict_parse, which refuses duplicate members itself.
 *
 *     struct in { char *name; int64_t wait_ms; json_t *env; bool has_wait; };
 *     static const struct field FIELDS[] = {
 *         {"name", FIELD_STRING, offsetof(struct in, name), FIELD_MANDATORY, 1, 200, NULL, NULL},
 *         {"wait_ms", FIELD_INT, offsetof(struct in, wait_ms), 0, 0, 60000, NULL, NULL},
 *         {NULL}};
 *     r = fields_parse(FIELDS, object, "", &in, &errors);   // in holds the defaults before
 *     fields_done(FIELDS, &in); */
#pragma once
#include "base/err.h"
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum field_type {
    FIELD_STRING, /* char *, malloc'ed; min/max in bytes; NUL inside refused */
    FIELD_INT,    /* int64_t; min..max */
    FIELD_BOOL,   /* bool */
    FIELD_ENUM,   /* int; names in `names`, NULL-terminated, index is the value */
    FIELD_ARRAY,  /* json_t *, a new reference; min/max elements; `item` checks each */
    FIELD_OBJECT, /* json_t *, a new reference; any members (checked by the caller) */
    FIELD_STRINGS /* struct strv; min/max elements; each a string without NUL, <= 128 KiB */
};
enum { FIELD_MANDATORY = 1, FIELD_NULLABLE = 2 /* null = the default stays */ };

struct field {
    const char *name;
    enum field_type type;
    size_t offset;
    unsigned flags;
    int64_t min, max;
    const char *const *names;                                   /* FIELD_ENUM */
    int (*check)(const json_t *value, char *ret_why, size_t n); /* or NULL; < 0 = format error */
};

/* errors[] of a problem document: {pointer, code, detail}; at most 32 are kept. */
struct field_errors {
    json_t *list; /* array, NULL when none */
};
void field_errors_add(struct field_errors *e, const char *pointer, const char *code,
                      const char *fmt, ...) __attribute__((format(printf, 4, 5)));
bool field_errors_any(const struct field_errors *e);
void field_errors_done(struct field_errors *e);

/* All errors are collected; -EINVAL when there is any. OUT is filled as far as it went: call
 * fields_done in every case. BASE is the pointer of OBJECT itself ("" for the document). */
int fields_parse(const struct field *table, const json_t *object, const char *base, void *out,
                 struct field_errors *errors);
void fields_done(const struct field *table, void *out);

/* Bytes -> json: UTF-8, no NUL, no lone surrogate, no duplicate member, depth <= 32, nothing
 * behind. NULL on failure with code json_invalid or body_invalid (duplicates) and the place. */
json_t *json_strict_parse(const char *bytes, size_t n, struct err *err);
/* RFC 3339 text of a time, null for 0. */
json_t *time_json(int64_t wall_ms);
/* RFC 6901 escaping of one member name appended to a pointer. */
void json_pointer_add(char *pointer, size_t size, const char *member);
