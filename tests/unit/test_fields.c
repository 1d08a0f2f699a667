#include "unit.h"

#include "base/fields.h"
#include "base/str.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct in {
    char *name;
    int64_t wait_ms;
    bool quick;
    int tier;
    json_t *list, *map;
    struct strv argv;
};
static const char *const tiers[] = {"walled", "open", NULL};

static int check_even(const json_t *value, char *ret_why, size_t n)
{
    if (json_integer_value(value) % 2 == 0)
        return 0;
    strncpy(ret_why, "must be even", n - 1);
    return -EINVAL;
}
static const struct field table[] = {
    {"name", FIELD_STRING, offsetof(struct in, name), FIELD_MANDATORY, 1, 5, NULL, NULL},
    {"wait_ms", FIELD_INT, offsetof(struct in, wait_ms), FIELD_NULLABLE, 0, 60, NULL, check_even},
    {"quick", FIELD_BOOL, offsetof(struct in, quick), 0, 0, 0, NULL, NULL},
    {"tier", FIELD_ENUM, offsetof(struct in, tier), 0, 0, 0, tiers, NULL},
    {"list", FIELD_ARRAY, offsetof(struct in, list), 0, 0, 2, NULL, NULL},
    {"map", FIELD_OBJECT, offsetof(struct in, map), 0, 0, 0, NULL, NULL},
    {"argv", FIELD_STRINGS, offsetof(struct in, argv), 0, 1, 3, NULL, NULL},
    {NULL, FIELD_BOOL, 0, 0, 0, 0, NULL, NULL}};

static json_t *parsed(const char *text)
{
    struct err err = {0};
    json_t *v = json_strict_parse(text, strlen(text), &err);
    assert_non_null(v);
    return v;
}

static void fills_a_struct(void **state)
{
    (void)state;
    json_t *v = parsed("{\"name\":\"ab\",\"wait_ms\":null,\"quick\":true,\"tier\":\"open\","
                       "\"list\":[1],\"map\":{},\"argv\":[\"a\",\"\"]}");
    struct in in = {.wait_ms = 42};
    struct field_errors errors = {0};
    assert_int_equal(fields_parse(table, v, "", &in, &errors), 0);
    assert_false(field_errors_any(&errors));
    assert_string_equal(in.name, "ab");
    assert_int_equal(in.wait_ms, 42);
    assert_true(in.quick);
    assert_int_equal(in.tier, 1);
    assert_int_equal(json_array_size(in.list), 1);
    assert_int_equal(in.argv.n, 2);
    json_decref(v);
    assert_int_equal(json_array_size(in.list), 1); /* own reference */
    fields_done(table, &in);
    assert_null(in.name);
}

static void names_each_fault(void **state)
{
    (void)state;
    static const struct {
        const char *text, *pointer, *code, *part;
    } rows[] = {{"{}", "/name", "missing", "given"},
                {"[]", "", "type", "object"},
                {"{\"name\":\"x\",\"wait_mss\":1}", "/wait_mss", "unknown", "\"wait_ms\""},
                {"{\"name\":\"x\",\"a/b~\":1}", "/a~1b~0", "unknown", "no such"},
                {"{\"name\":\"toolong\"}", "/name", "range", "1 to 5 bytes"},
                {"{\"name\":\"\"}", "/name", "range", "1 to 5"},
                {"{\"name\":null}", "/name", "type", "string"},
                {"{\"name\":\"x\",\"wait_ms\":61}", "/wait_ms", "range", "0 to 60"},
                {"{\"name\":\"x\",\"wait_ms\":1.0}", "/wait_ms", "type", "whole"},
                {"{\"name\":\"x\",\"wait_ms\":3}", "/wait_ms", "format", "even"},
                {"{\"name\":\"x\",\"quick\":1}", "/quick", "type", "true"},
                {"{\"name\":\"x\",\"tier\":\"OPEN\"}", "/tier", "range", "walled, open"},
                {"{\"name\":\"x\",\"list\":[1,2,3]}", "/list", "range", "elements"},
                {"{\"name\":\"x\",\"map\":[]}", "/map", "type", "object"},
                {"{\"name\":\"x\",\"argv\":[\"a\",5]}", "/argv/1", "type", "string"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        json_t *v = parsed(rows[i].text);
        struct in in = {0};
        struct field_errors errors = {0};
        assert_int_equal(fields_parse(table, v, "", &in, &errors), -EINVAL);
        const json_t *row = json_array_get(errors.list, 0);
        assert_string_equal(json_string_value(json_object_get(row, "pointer")), rows[i].pointer);
        assert_string_equal(json_string_value(json_object_get(row, "code")), rows[i].code);
        assert_non_null(strstr(json_string_value(json_object_get(row, "detail")), rows[i].part));
        field_errors_done(&errors);
        fields_done(table, &in);
        json_decref(v);
    }
}

static void collects_and_bounds(void **state)
{
    (void)state;
    struct str text = {0};
    (void)str_puts(&text, "{");
    for (int i = 0; i < 100; i++)
        (void)str_printf(&text, "\"m%d\":1,", i);
    (void)str_puts(&text, "\"name\":\"x\"}");
    json_t *v = parsed(text.data);
    struct in in = {0};
    struct field_errors errors = {0};
    assert_int_equal(fields_parse(table, v, "/base", &in, &errors), -EINVAL);
    assert_int_equal(json_array_size(errors.list), 32);
    field_errors_done(&errors);
    fields_done(table, &in);
    json_decref(v);
    str_done(&text);
}

static void parses_strictly(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t n;
        const char *code;
    } rows[] = {
        {"", 0, "json_invalid"},
        {"{} x", 4, "json_invalid"},
        {"{\"a\":1,\"a\":2}", 13, "body_invalid"},
        {"{\"a\":1,\"\\u0061\":2}", 18, "body_invalid"},
        {"\"\xff\"", 3, "json_invalid"},
        {"\"\\ud800\"", 8, "json_invalid"},
        {"\"\\u0000\"", 8, "json_invalid"},
        {"{}\0", 3, "json_invalid"},
        {"99999999999999999999", 20, "json_invalid"},
        {"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]", 66, "json_invalid"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct err err = {0};
        assert_null(json_strict_parse(rows[i].text, rows[i].n, &err));
        assert_string_equal(err.code, rows[i].code);
    }
    json_decref(parsed("[\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[\"]"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fills_a_struct), cmocka_unit_test(names_each_fault),
        cmocka_unit_test(collects_and_bounds), cmocka_unit_test(parses_strictly)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
