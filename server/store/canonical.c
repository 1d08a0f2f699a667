/* Runs in: daemon. Reads: trusted. May block: no. */
#include "store/canonical.h"
#include "base/mem.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *escape_of(unsigned char c, char room[8])
{
    switch (c) {
    case '"':
        return "\\\"";
    case '\\':
        return "\\\\";
    case '\b':
        return "\\b";
    case '\f':
        return "\\f";
    case '\n':
        return "\\n";
    case '\r':
        return "\\r";
    case '\t':
        return "\\t";
    default:
        (void)snprintf(room, 8, "\\u%04x", c);
        return room;
    }
}

static int add_string(struct str *out, const char *text, size_t n)
{
    char room[8];
    int r = str_putc(out, '"');
    size_t from = 0;
    for (size_t i = 0; r == 0 && i <= n; i++) {
        unsigned char c = i < n ? (unsigned char)text[i] : '"';
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        r = str_add(out, text + from, i - from);
        if (r == 0 && i < n)
            r = str_puts(out, escape_of(c, room));
        from = i + 1;
    }
    return r < 0 ? r : str_putc(out, '"');
}

int canonical_add_string(struct str *out, const char *text)
{
    return add_string(out, text, strlen(text));
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int add_object(struct str *out, const json_t *object)
{
    size_t n = json_object_size(object), i = 0;
    CLEANUP(freep) const char **names = calloc(n + 1, sizeof *names);
    if (!names)
        return -ENOMEM;
    const char *name;
    json_t *value;
    /* jansson's iteration takes a pointer that is not const, and changes nothing. */
    json_object_foreach((json_t *)(uintptr_t)object, name, value) names[i++] = name;
    qsort(names, n, sizeof *names, by_bytes);
    int r = str_putc(out, '{');
    for (i = 0; r == 0 && i < n; i++) {
        if (i > 0)
            r = str_putc(out, ',');
        if (r == 0)
            r = canonical_add_string(out, names[i]);
        if (r == 0)
            r = str_putc(out, ':');
        if (r == 0)
            r = canonical_add(out, json_object_get(object, names[i]));
    }
    return r < 0 ? r : str_putc(out, '}');
}

static int add_array(struct str *out, const json_t *array)
{
    int r = str_putc(out, '[');
    for (size_t i = 0; r == 0 && i < json_array_size(array); i++) {
        if (i > 0)
            r = str_putc(out, ',');
        if (r == 0)
            r = canonical_add(out, json_array_get(array, i));
    }
    return r < 0 ? r : str_putc(out, ']');
}

int canonical_add(struct str *out, const json_t *value)
{
    if (!value)
        return str_puts(out, "null");
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return add_object(out, value);
    case JSON_ARRAY:
        return add_array(out, value);
    case JSON_STRING:
        return add_string(out, json_string_value(value), json_string_length(value));
    case JSON_INTEGER:
        return str_printf(out, "%lld", (long long)json_integer_value(value));
    case JSON_REAL:
        return str_printf(out, "%.17g", json_real_value(value));
    case JSON_TRUE:
        return str_puts(out, "true");
    case JSON_FALSE:
        return str_puts(out, "false");
    case JSON_NULL:
        return str_puts(out, "null");
    }
    return -EINVAL;
}
