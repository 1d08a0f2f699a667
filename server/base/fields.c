/* Runs in: daemon, cli. Reads: hostile. May block: no. */
#include "base/fields.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERRORS_MAX    32
#define POINTER_MAX   512
#define DEPTH_MAX     32
#define STRINGS_BYTES ((size_t)128 << 10)

void field_errors_add(struct field_errors *e, const char *pointer, const char *code,
                      const char *fmt, ...)
{
    if (!e->list)
        e->list = json_array();
    if (!e->list || json_array_size(e->list) >= ERRORS_MAX)
        return;
    CLEANUP(str_done) struct str detail = {.max = 2048};
    va_list ap;
    va_start(ap, fmt);
    (void)str_vprintf(&detail, fmt, ap);
    va_end(ap);
    json_t *row =
        json_pack("{s:s, s:s, s:s}", "pointer", pointer, "code", code, "detail", str_c(&detail));
    if (!row) /* a detail that is no UTF-8 must not lose the error */
        row = json_pack("{s:s, s:s, s:s}", "pointer", "", "code", code, "detail", "");
    (void)json_array_append_new(e->list, row);
}

bool field_errors_any(const struct field_errors *e)
{
    return e->list != NULL;
}

void field_errors_done(struct field_errors *e)
{
    json_decref(e->list);
    e->list = NULL;
}

void json_pointer_add(char *pointer, size_t size, const char *member)
{
    size_t n = strlen(pointer);
    if (n + 1 < size)
        pointer[n++] = '/';
    for (; *member && n + 2 < size; member++) {
        if (*member == '~' || *member == '/') {
            pointer[n++] = '~';
            pointer[n++] = *member == '~' ? '0' : '1';
        } else {
            pointer[n++] = *member;
        }
    }
    while (n > 0 && !utf8_is_valid(pointer, n)) /* cut in the middle of a character */
        n--;
    pointer[n] = '\0';
}

/* ---- One value ---------------------------------------------------------------------------------
 */
struct place {
    char pointer[POINTER_MAX];
    struct field_errors *errors;
};

static int refuse_type(struct place *at, const char *wanted)
{
    field_errors_add(at->errors, at->pointer, "type", "must be %s", wanted);
    return -EINVAL;
}

static int refuse_range(struct place *at, const struct field *f, const char *unit)
{
    if (f->max == INT64_MAX)
        field_errors_add(at->errors, at->pointer, "range", "must be at least %lld%s",
                         (long long)f->min, unit);
    else
        field_errors_add(at->errors, at->pointer, "range", "must be %lld to %lld%s",
                         (long long)f->min, (long long)f->max, unit);
    return -EINVAL;
}

static bool in_range(const struct field *f, int64_t v)
{
    return v >= f->min && v <= f->max;
}

static int parse_string(const struct field *f, const json_t *value, void *slot, struct place *at)
{
    if (!json_is_string(value))
        return refuse_type(at, "a string");
    size_t n = json_string_length(value);
    if (!in_range(f, (int64_t)n))
        return refuse_range(at, f, " bytes");
    if (strlen(json_string_value(value)) != n) {
        field_errors_add(at->errors, at->pointer, "format", "must not hold a NUL");
        return -EINVAL;
    }
    char *copy = strdup(json_string_value(value));
    if (!copy)
        return -ENOMEM;
    free(*(char **)slot);
    *(char **)slot = copy;
    return 0;
}

static int parse_int(const struct field *f, const json_t *value, void *slot, struct place *at)
{
    if (!json_is_integer(value))
        return refuse_type(at, "a whole number");
    if (!in_range(f, json_integer_value(value)))
        return refuse_range(at, f, "");
    *(int64_t *)slot = json_integer_value(value);
    return 0;
}

static int parse_bool(const struct field *f, const json_t *value, void *slot, struct place *at)
{
    (void)f;
    if (!json_is_boolean(value))
        return refuse_type(at, "true or false");
    *(bool *)slot = json_is_true(value);
    return 0;
}

static int parse_enum(const struct field *f, const json_t *value, void *slot, struct place *at)
{
    if (!json_is_string(value))
        return refuse_type(at, "a string");
    CLEANUP(str_done) struct str all = {0};
    for (int i = 0; f->names[i]; i++) {
        if (strcmp(f->names[i], json_string_value(value)) == 0 &&
            strlen(f->names[i]) == json_string_length(value)) {
            *(int *)slot = i;
            return 0;
        }
        (void)str_printf(&all, "%s%s", i ? ", " : "", f->names[i]);
    }
    field_errors_add(at->errors, at->pointer, "range", "must be one of: %s", str_c(&all));
    return -EINVAL;
}

static int keep_json(const json_t *value, void *slot)
{
    json_t **held = slot;
    json_decref(*held);
    /* jansson counts references in the value itself, const or not */
    *held = json_incref((json_t *)(uintptr_t)value);
    return 0;
}

static int parse_array(const struct field *f, const json_t *value, void *slot, struct place *at)
{
    if (!json_is_array(value))
        return refuse_type(at, "an array");
    if (!in_range(f, (int64_t)json_array_size(value)))
        return refuse_range(at, f, " elements");
    return keep_json(value, slot);
}

static int parse_object(const struct field *f, const json_t *value, void *slot, struct place *at)
{
    (void)f;
    return json_is_object(value) ? keep_json(value, slot) : refuse_type(at, "an object");
}

static int parse_strings_item(const json_t *item, struct strv *out, struct place *at)
{
    if (!json_is_string(item))
        return refuse_type(at, "a string");
    const char *text = json_string_value(item);
    size_t n = json_string_length(item);
    if (n > STRINGS_BYTES) {
        field_errors_add(at->errors, at->pointer, "range", "must be at most %zu bytes",
                         STRINGS_BYTES);
        return -EINVAL;
    }
    if (strlen(text) != n) {
        field_errors_add(at->errors, at->pointer, "format", "must not hold a NUL");
        return -EINVAL;
    }
    return strv_add(out, text);
}

static int parse_strings(const struct field *f, const json_t *value, void *slot, struct place *at)
{
    if (!json_is_array(value))
        return refuse_type(at, "an array of strings");
    if (!in_range(f, (int64_t)json_array_size(value)))
        return refuse_range(at, f, " elements");
    struct strv *out = slot;
    strv_done(out);
    int r = 0;
    for (size_t i = 0; i < json_array_size(value); i++) {
        struct place item = *at;
        char number[24];
        (void)snprintf(number, sizeof(number), "%zu", i);
        json_pointer_add(item.pointer, sizeof(item.pointer), number);
        int failed = parse_strings_item(json_array_get(value, i), out, &item);
        r = r < 0 ? r : failed;
    }
    return r;
}

typedef int (*field_parser)(const struct field *f, const json_t *value, void *slot,
                            struct place *at);
static const field_parser parsers[] = {
    [FIELD_STRING] = parse_string,  [FIELD_INT] = parse_int,     [FIELD_BOOL] = parse_bool,
    [FIELD_ENUM] = parse_enum,      [FIELD_ARRAY] = parse_array, [FIELD_OBJECT] = parse_object,
    [FIELD_STRINGS] = parse_strings};

static int parse_value(const struct field *f, const json_t *value, char *out, struct place *at)
{
    if (json_is_null(value) && (f->flags & FIELD_NULLABLE))
        return 0;
    int r = parsers[f->type](f, value, out + f->offset, at);
    if (r < 0 || !f->check)
        return r;
    char why[256] = "";
    r = f->check(value, why, sizeof(why));
    if (r < 0)
        field_errors_add(at->errors, at->pointer, "format", "%s", why);
    return r;
}

/* ---- The object --------------------------------------------------------------------------------
 */
static void name_place(struct place *at, const char *base, const char *member)
{
    (void)snprintf(at->pointer, sizeof(at->pointer), "%s", base);
    json_pointer_add(at->pointer, sizeof(at->pointer), member);
}

static const char *nearest_name(const struct field *table, const char *name)
{
    const char *best = NULL;
    unsigned least = 4; /* farther is a guess */
    for (const struct field *f = table; f->name; f++) {
        unsigned d = str_distance(f->name, name);
        if (d < least && d < strlen(f->name)) {
            least = d;
            best = f->name;
        }
    }
    return best;
}

static int refuse_unknown(const struct field *table, const char *name, struct place *at)
{
    const char *near = nearest_name(table, name);
    if (near)
        field_errors_add(at->errors, at->pointer, "unknown",
                         "no such member; the nearest name is \"%s\"", near);
    else
        field_errors_add(at->errors, at->pointer, "unknown", "no such member");
    return -EINVAL;
}

static const struct field *find_field(const struct field *table, const char *name)
{
    for (; table->name; table++)
        if (strcmp(table->name, name) == 0)
            return table;
    return NULL;
}

static int parse_members(const struct field *table, const json_t *object, const char *base,
                         void *out, struct field_errors *errors)
{
    json_t *members = (json_t *)(uintptr_t)object; /* jansson's iterators take no const */
    const char *name;
    json_t *value;
    int r = 0;
    json_object_foreach(members, name, value)
    {
        struct place at = {.errors = errors};
        name_place(&at, base, name);
        const struct field *f = find_field(table, name);
        int failed = f ? parse_value(f, value, out, &at) : refuse_unknown(table, name, &at);
        r = r < 0 ? r : failed;
    }
    return r;
}

int fields_parse(const struct field *table, const json_t *object, const char *base, void *out,
                 struct field_errors *errors)
{
    struct place whole = {.errors = errors};
    (void)snprintf(whole.pointer, sizeof(whole.pointer), "%s", base);
    if (!json_is_object(object))
        return refuse_type(&whole, "an object");
    int r = parse_members(table, object, base, out, errors);
    for (const struct field *f = table; f->name; f++) {
        if (!(f->flags & FIELD_MANDATORY) || json_object_get(object, f->name))
            continue;
        struct place at = {.errors = errors};
        name_place(&at, base, f->name);
        field_errors_add(errors, at.pointer, "missing", "must be given");
        r = r < 0 ? r : -EINVAL;
    }
    return r < 0 ? r : 0;
}

void fields_done(const struct field *table, void *out)
{
    for (const struct field *f = table; f->name; f++) {
        void *slot = (char *)out + f->offset;
        if (f->type == FIELD_STRING) {
            free(*(char **)slot);
            *(char **)slot = NULL;
        } else if (f->type == FIELD_ARRAY || f->type == FIELD_OBJECT) {
            json_decref(*(json_t **)slot);
            *(json_t **)slot = NULL;
        } else if (f->type == FIELD_STRINGS) {
            strv_done(slot);
        }
    }
}

/* ---- Text -> json ------------------------------------------------------------------------------
 */
/* Before the parser, whose own limit (2,048) is deeper than our stacks and readers want. */
static bool is_too_deep(const char *bytes, size_t n)
{
    unsigned depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        char c = bytes[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            if (++depth > DEPTH_MAX)
                return true;
        } else if ((c == ']' || c == '}') && depth > 0) {
            depth--;
        }
    }
    return false;
}

/* One open bracket of a text that is read up to some byte. */
struct open_bracket {
    bool is_object, wants_name;
    size_t name, name_len; /* of an object: the member's name, with its quotes */
    unsigned index;        /* of an array */
};

static size_t string_end(const char *bytes, size_t n, size_t i)
{
    for (i++; i < n && bytes[i] != '"'; i++)
        i += bytes[i] == '\\';
    return i < n ? i : n - 1;
}

/* The brackets that are open at byte N of a text that is well formed so far; their number. */
static unsigned open_brackets(const char *bytes, size_t n, struct open_bracket stack[DEPTH_MAX])
{
    unsigned depth = 0;
    for (size_t i = 0; i < n; i++) {
        struct open_bracket *top = depth ? &stack[depth - 1] : NULL;
        char c = bytes[i];
        if (c == '"') {
            size_t end = string_end(bytes, n, i);
            if (top && top->wants_name) {
                top->name = i;
                top->name_len = end + 1 - i;
                top->wants_name = false;
            }
            i = end;
        } else if ((c == '{' || c == '[') && depth < DEPTH_MAX) {
            stack[depth++] = (struct open_bracket){.is_object = c == '{', .wants_name = c == '{'};
        } else if ((c == '}' || c == ']') && depth > 0) {
            depth--;
        } else if (c == ',' && top) {
            top->wants_name = top->is_object;
            top->index++;
        }
    }
    return depth;
}

static void pointer_at(const char *bytes, size_t n, char *ret, size_t size)
{
    struct open_bracket stack[DEPTH_MAX];
    unsigned depth = open_brackets(bytes, n, stack);
    for (unsigned i = 0; i < depth; i++) {
        char number[16];
        snprintf(number, sizeof(number), "%u", stack[i].index);
        json_t *name = stack[i].is_object ? json_loadb(bytes + stack[i].name, stack[i].name_len,
                                                       JSON_DECODE_ANY, NULL)
                                          : json_string(number);
        if (name)
            json_pointer_add(ret, size, json_string_value(name));
        json_decref(name);
    }
}

static json_t *refuse_text(const char *bytes, size_t n, json_error_t *why, struct err *err)
{
    if (json_error_code(why) == json_error_duplicate_key) {
        char pointer[POINTER_MAX] = "";
        size_t at = why->position > 0 && (size_t)why->position < n ? (size_t)why->position : n;
        pointer_at(bytes, at, pointer, sizeof(pointer));
        (void)err_member(err, -EINVAL, "body_invalid", pointer, "this member is there twice");
        return NULL;
    }
    /* "… near 'what stood there'": that may be a secret. */
    char *near = strstr(why->text, " near '"), *flag = strstr(why->text, " without JSON_");
    if (near)
        *near = '\0';
    if (flag)
        *flag = '\0';
    CLEANUP(str_done) struct str text = {.max = 400};
    (void)str_put_escaped(&text, why->text, strlen(why->text));
    (void)err_set(err, -EINVAL, "json_invalid", NULL, "line %d, column %d: %s", why->line,
                  why->column, str_c(&text));
    return NULL;
}

json_t *json_strict_parse(const char *bytes, size_t n, struct err *err)
{
    if (is_too_deep(bytes, n)) {
        (void)err_set(err, -EINVAL, "json_invalid", NULL, "nested deeper than %d", DEPTH_MAX);
        return NULL;
    }
    json_error_t why;
    json_t *value = json_loadb(bytes, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);
    return value ? value : refuse_text(bytes, n, &why, err);
}

json_t *time_json(int64_t wall_ms)
{
    char text[CLOCK_TEXT_MAX];
    if (wall_ms == 0)
        return json_null();
    clock_text(wall_ms, text);
    return json_string(text);
}
