/* JSON text through the strict parser into a struct by a table with every type. */
#include "base/fields.h"
#include "base/str.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct in {
    char *name;
    int64_t n;
    bool flag;
    int kind;
    json_t *list, *map;
    struct strv argv;
};
static const char *const kinds[] = {"a", "bb", NULL};
static const struct field table[] = {
    {"name", FIELD_STRING, offsetof(struct in, name), FIELD_MANDATORY, 1, 20, NULL, NULL},
    {"n", FIELD_INT, offsetof(struct in, n), FIELD_NULLABLE, -5, 5, NULL, NULL},
    {"flag", FIELD_BOOL, offsetof(struct in, flag), 0, 0, 0, NULL, NULL},
    {"kind", FIELD_ENUM, offsetof(struct in, kind), 0, 0, 0, kinds, NULL},
    {"list", FIELD_ARRAY, offsetof(struct in, list), 0, 0, 3, NULL, NULL},
    {"map", FIELD_OBJECT, offsetof(struct in, map), 0, 0, 0, NULL, NULL},
    {"argv", FIELD_STRINGS, offsetof(struct in, argv), 0, 1, 3, NULL, NULL},
    {NULL, FIELD_BOOL, 0, 0, 0, 0, NULL, NULL}};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = {0};
    json_t *value = json_strict_parse((const char *)data, size, &err);
    if (!value) {
        if (!err_is_set(&err) || !utf8_is_valid(err.detail, strlen(err.detail)))
            abort();
        return 0;
    }
    struct in in = {0};
    struct field_errors errors = {0};
    int r = fields_parse(table, value, "", &in, &errors);
    if (r < 0 && !field_errors_any(&errors))
        abort();
    if (r == 0 &&
        (!in.name || strlen(in.name) < 1 || strlen(in.name) > 20 || in.n < -5 || in.n > 5))
        abort();
    fields_done(table, &in);
    field_errors_done(&errors);
    json_decref(value);
    return 0;
}
