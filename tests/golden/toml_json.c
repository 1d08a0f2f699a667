/* Standard input as TOML; the tree on standard output as the tagged JSON of toml-test. Exit 1 with
 * the error on standard error. */
#include "config/toml.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static json_t *tagged(const char *type, json_t *take_value)
{
    return json_pack("{s:s, s:o}", "type", type, "value", take_value);
}

static json_t *number(double n)
{
    char text[64];
    if (isnan(n) || isinf(n))
        snprintf(text, sizeof text, "%s%s", n < 0 ? "-" : "", isnan(n) ? "nan" : "inf");
    else
        snprintf(text, sizeof text, "%.17g", n);
    return json_string(text);
}

static json_t *to_json(const struct toml *t)
{
    static const char *const DATES[] = {[TOML_DATETIME] = "datetime",
                                        [TOML_DATETIME_LOCAL] = "datetime-local",
                                        [TOML_DATE_LOCAL] = "date-local",
                                        [TOML_TIME_LOCAL] = "time-local"};
    char text[32];
    json_t *ret;
    switch (t->kind) {
    case TOML_TABLE:
        ret = json_object();
        for (const struct toml *m = t->first; m; m = m->next)
            (void)json_object_setn_new(ret, m->key, m->key_len, to_json(m));
        return ret;
    case TOML_ARRAY:
        ret = json_array();
        for (const struct toml *m = t->first; m; m = m->next)
            (void)json_array_append_new(ret, to_json(m));
        return ret;
    case TOML_STRING:
        return tagged("string", json_stringn(t->text, t->len));
    case TOML_INTEGER:
        snprintf(text, sizeof text, "%lld", (long long)t->integer);
        return tagged("integer", json_string(text));
    case TOML_FLOAT:
        return tagged("float", number(t->number));
    case TOML_BOOLEAN:
        return tagged("bool", json_string(t->truth ? "true" : "false"));
    case TOML_DATETIME:
    case TOML_DATETIME_LOCAL:
    case TOML_DATE_LOCAL:
    case TOML_TIME_LOCAL:
        return tagged(DATES[t->kind], json_string(t->text));
    }
    abort();
}

int main(void)
{
    static char bytes[TOML_BYTES_MAX + 2];
    size_t n = fread(bytes, 1, sizeof bytes, stdin);
    struct err err = {0};
    struct toml *doc;
    if (toml_parse(bytes, n, &doc, &err) < 0) {
        fprintf(stderr, "%s: %s\n", err.code, err.detail);
        return 1;
    }
    json_t *json = to_json(doc);
    int r = json_dumpf(json, stdout, JSON_COMPACT);
    json_decref(json);
    toml_free(doc);
    return r < 0 ? 2 : 0;
}
