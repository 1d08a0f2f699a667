#include "store_unit.h"

#include "base/fields.h"
#include "config/settings.h"

struct lab {
    struct place place;
    struct settings *s;
};

static void lab_make(struct lab *l)
{
    struct err err = {0};
    place_make(&l->place);
    place_open(&l->place);
    assert_int_equal(settings_new(l->place.db, &l->s, &err), 0);
}

static void lab_done(struct lab *l)
{
    settings_free(l->s);
    place_done(&l->place);
}

/* Sends TEXT as a patch; the first fault comes back as "pointer code". */
static int patch(struct lab *l, const char *text, const char *confirm, bool dry, char fault[200],
                 const char **confirm_wanted, struct err *err)
{
    struct field_errors errors = {0};
    json_t *body = json_loads(text, JSON_DECODE_ANY, NULL), *changed = NULL;
    assert_non_null(body);
    fault[0] = '\0';
    *confirm_wanted = NULL;
    int r = settings_patch(l->s, body, dry, confirm, confirm_wanted, &changed, &errors, err);
    json_t *first = json_array_get(errors.list, 0);
    if (first)
        (void)snprintf(fault, 200, "%s %s", json_string_value(json_object_get(first, "pointer")),
                       json_string_value(json_object_get(first, "code")));
    assert_int_equal(r < 0, !changed);
    json_decref(changed);
    json_decref(body);
    field_errors_done(&errors);
    return r;
}

static void every_default_is_right(void **state)
{
    size_t n;
    const struct setting_key *keys = setting_keys(&n);
    (void)state;
    for (size_t i = 0; i < n; i++) {
        json_t *value = json_loads(keys[i].default_json, JSON_DECODE_ANY, NULL);
        assert_non_null(value);
        if (keys[i].type != SETTING_LIST)
            assert_int_equal(setting_check(&keys[i], value, NULL, NULL), 0);
        assert_true(keys[i].help[0] != '\0');
        assert_ptr_equal(setting_key_find(keys[i].key), &keys[i]);
        json_decref(value);
    }
    assert_int_equal(n, 29);
}

static void values_and_their_source(void **state)
{
    struct lab l;
    struct err err = {0};
    char fault[200];
    const char *confirm;
    (void)state;
    lab_make(&l);
    int64_t rev = settings_rev(l.s);
    assert_string_equal(settings_text(l.s, "sandbox_provider"), "direct");
    assert_int_equal(patch(&l,
                           "{\"sandbox_provider\":\"bubblewrap\",\"limits\":{\"processes\":64}}",
                           NULL, false, fault, &confirm, &err),
                     0);
    assert_int_equal(settings_rev(l.s), rev + 1);
    /* The same after the daemon was started again. */
    settings_free(l.s);
    assert_int_equal(settings_new(l.place.db, &l.s, &err), 0);
    assert_string_equal(settings_text(l.s, "sandbox_provider"), "bubblewrap");
    assert_int_equal(settings_int(l.s, "limits.processes"), 64);
    json_t *all = settings_to_json(l.s), *meta = json_object_get(all, "meta");
    json_t *limits = json_object_get(json_object_get(all, "values"), "limits");
    assert_int_equal(json_integer_value(json_object_get(limits, "processes")), 64);
    json_t *row = json_object_get(meta, "limits.processes");
    assert_string_equal(json_string_value(json_object_get(row, "source")), "stored");
    assert_int_equal(json_integer_value(json_object_get(row, "default")), 1024);
    row = json_object_get(meta, "server.port");
    assert_string_equal(json_string_value(json_object_get(row, "source")), "default");
    assert_string_equal(json_string_value(json_object_get(row, "applies")), "restart");
    json_decref(all);
    /* null: the default again, for one key and for a table. */
    assert_int_equal(patch(&l, "{\"limits\":null}", NULL, false, fault, &confirm, &err), 0);
    assert_int_equal(settings_int(l.s, "limits.processes"), 1024);
    lab_done(&l);
}

static void faults_change_nothing(void **state)
{
    static const struct {
        const char *patch, *fault;
    } ROWS[] = {
        {"{\"sandbox_provder\":\"direct\"}", "/sandbox_provder unknown"},
        {"{\"limits\":{\"procesess\":1}}", "/limits/procesess unknown"},
        {"{\"limits.processes\":1}", "/limits.processes unknown"},
        {"{\"limits\":7}", "/limits type"},
        {"{\"limits\":{\"processes\":\"7\"}}", "/limits/processes type"},
        {"{\"limits\":{\"processes\":-1}}", "/limits/processes range"},
        {"{\"limits\":{\"output_bytes\":1}}", "/limits/output_bytes format"},
        {"{\"sandbox_network_profile\":\"all\"}", "/sandbox_network_profile range"},
        {"{\"sandbox\":{\"default_tier\":\"guarded\"}}", "/sandbox/default_tier format"},
        {"{\"ui\":{\"theme\":\"dark\"}}", "/ui/theme format"},
        {"{\"server\":{\"port\":80}}", "/server/port range"},
        {"{\"limits\":{\"processes\":5},\"server\":{\"port\":true}}", "/server/port type"},
        {"[]", " type"},
    };
    struct lab l;
    char fault[200];
    const char *confirm;
    (void)state;
    lab_make(&l);
    int64_t rev = settings_rev(l.s);
    json_t *before = settings_to_json(l.s);
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        struct err err = {0};
        assert_true(patch(&l, ROWS[i].patch, NULL, false, fault, &confirm, &err) < 0);
        assert_string_equal(fault, ROWS[i].fault);
    }
    struct err err = {0};
    assert_true(patch(&l, "{\"sandbox_network_hosts\":[\"a.test:443\"]}", NULL, false, fault,
                      &confirm, &err) < 0);
    assert_string_equal(err.code, "list_setting");
    json_t *after = settings_to_json(l.s);
    assert_true(json_equal(before, after));
    assert_int_equal(settings_rev(l.s), rev);
    json_decref(before);
    json_decref(after);
    lab_done(&l);
}

static void what_widens_is_confirmed(void **state)
{
    struct lab l;
    struct err err = {0};
    char fault[200];
    const char *confirm;
    (void)state;
    lab_make(&l);
    const char *open = "{\"sandbox_network_profile\":\"open\"}";
    assert_true(patch(&l, open, NULL, false, fault, &confirm, &err) < 0);
    assert_string_equal(err.code, "confirm_required");
    assert_string_equal(confirm, "open");
    assert_string_equal(settings_text(l.s, "sandbox_network_profile"), "allowlist");
    err_clear(&err);
    assert_true(patch(&l, open, "direct", false, fault, &confirm, &err) < 0);
    err_clear(&err);
    assert_int_equal(patch(&l, open, NULL, true, fault, &confirm, &err), 0); /* a dry run */
    assert_string_equal(settings_text(l.s, "sandbox_network_profile"), "allowlist");
    assert_int_equal(patch(&l, open, "open", false, fault, &confirm, &err), 0);
    assert_string_equal(settings_text(l.s, "sandbox_network_profile"), "open");
    /* Said again it changes nothing, so nothing is asked; back to the default provider is asked. */
    assert_int_equal(patch(&l, open, NULL, false, fault, &confirm, &err), 0);
    assert_int_equal(
        patch(&l, "{\"sandbox_provider\":\"bubblewrap\"}", NULL, false, fault, &confirm, &err), 0);
    assert_true(patch(&l, "{\"sandbox_provider\":null}", NULL, false, fault, &confirm, &err) < 0);
    assert_string_equal(confirm, "direct");
    lab_done(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_default_is_right),
        cmocka_unit_test(values_and_their_source),
        cmocka_unit_test(faults_change_nothing),
        cmocka_unit_test(what_widens_is_confirmed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
