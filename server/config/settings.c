/* Runs in: daemon. Reads: trusted; a patch was parsed strictly. May block: no. */
#include "config/settings.h"
#include "base/fields.h"
#include "base/mem.h"
#include "base/str.h"
#include "policy/upstream.h"
#include "store/sites.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define POINTER_MAX 160
#define SITES_SHOWN 10000

struct settings {
    struct db *db;
    struct watched watched;
    struct watch rollback_watch;
    json_t *stored; /* flat */
    json_t *values; /* flat, of every key */
    int64_t rev;
};

/* ---- Values
 * -------------------------------------------------------------------------------------- */

static json_t *default_of(const struct setting_key *key)
{
    return json_loads(key->default_json, JSON_DECODE_ANY, NULL);
}

/* Stored by an older or damaged state and no longer right: the default holds, which never widens.
 */
static json_t *value_of(const json_t *stored, const struct setting_key *key)
{
    json_t *value = json_object_get(stored, key->key);
    return value && setting_check(key, value, NULL, NULL) >= 0 ? json_incref(value)
                                                               : default_of(key);
}

static json_t *values_of(const json_t *stored)
{
    size_t n;
    const struct setting_key *keys = setting_keys(&n);
    json_t *values = json_object();
    for (size_t i = 0; values && i < n; i++)
        if (json_object_set_new(values, keys[i].key, value_of(stored, &keys[i])) < 0) {
            json_decref(values);
            return NULL;
        }
    return values;
}

/* What the store did not take is not in force. */
static void rolled_back(struct watch *w)
{
    struct settings *s = container_of(w, struct settings, rollback_watch);
    json_t *stored = NULL, *values;
    int64_t rev;
    if (settings_load(s->db, &stored, &rev) < 0)
        return;
    values = values_of(stored);
    if (!values || json_equal(stored, s->stored)) {
        json_decref(stored);
        json_decref(values);
        return;
    }
    json_decref(s->stored);
    json_decref(s->values);
    s->stored = stored;
    s->values = values;
    s->rev = rev;
    watched_notify(&s->watched);
}

int settings_new(struct db *db, struct settings **ret, struct err *err)
{
    struct settings *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(err, -ENOMEM, "internal", NULL, "out of memory");
    s->db = db;
    int r = settings_load(db, &s->stored, &s->rev);
    if (r == 0)
        s->values = values_of(s->stored);
    if (r == 0 && !s->values)
        r = -ENOMEM;
    if (r < 0) {
        settings_free(s);
        return err_set(err, r, "internal", "restore a backup, or move the database away",
                       "the stored settings cannot be read: %s", strerror(-r));
    }
    s->rollback_watch.changed = rolled_back;
    watch_add(db_rolled_back(db), &s->rollback_watch);
    *ret = s;
    return 0;
}

void settings_free(struct settings *s)
{
    if (!s)
        return;
    watch_remove(&s->rollback_watch);
    json_decref(s->stored);
    json_decref(s->values);
    free(s);
}

struct watched *settings_watched(struct settings *s)
{
    return &s->watched;
}

int64_t settings_rev(const struct settings *s)
{
    return s->rev;
}

const json_t *settings_get(const struct settings *s, const char *key)
{
    return json_object_get(s->values, key);
}

int64_t settings_int(const struct settings *s, const char *key)
{
    return json_integer_value(settings_get(s, key));
}

const char *settings_text(const struct settings *s, const char *key)
{
    return json_string_value(settings_get(s, key));
}

/* ---- GET
 * ----------------------------------------------------------------------------------------- */

/* "a.b.c" = VALUE in nested objects. */
static void put_nested(json_t *out, const char *key, json_t *take_value)
{
    char part[64];
    for (const char *dot; (dot = strchr(key, '.')) != NULL; key = dot + 1) {
        (void)snprintf(part, sizeof part, "%.*s", (int)(dot - key), key);
        if (!json_object_get(out, part))
            (void)json_object_set_new(out, part, json_object());
        out = json_object_get(out, part);
    }
    (void)json_object_set_new(out, key, take_value);
}

static int put_site(const struct site *s, void *arg)
{
    char text[280];
    if (!s->enabled)
        return 0;
    if (s->port)
        (void)snprintf(text, sizeof text, strchr(s->host, ':') ? "[%s]:%d" : "%s:%d", s->host,
                       s->port);
    else
        (void)snprintf(text, sizeof text, "%s", s->host);
    return json_array_append_new(arg, json_string(text)) < 0 ? -1 : 0;
}

static json_t *without_password(json_t *value)
{
    CLEANUP(str_done) struct str shown = {0};
    struct upstream up;
    const char *text = json_string_value(value);
    if (strcmp(text, "env") == 0 || upstream_parse(text, &up) || !up.user[0])
        return json_incref(value);
    return upstream_put_shown(&shown, &up) < 0 ? json_string("(not shown)")
                                               : json_string(str_c(&shown));
}

/* The two site lists live in the store: what is shown is what is enforced. */
static json_t *shown_value(const struct settings *s, const struct setting_key *key)
{
    int list = strcmp(key->key, "sandbox_network_hosts") == 0    ? SITES_MACHINE
               : strcmp(key->key, "sandbox.allowedDomains") == 0 ? SITES_GUARDED
                                                                 : -1;
    if (strcmp(key->key, "sandbox.proxy.upstream") == 0)
        return without_password(json_object_get(s->values, key->key));
    if (list < 0)
        return json_incref(json_object_get(s->values, key->key));
    json_t *out = json_array();
    (void)sites_each(s->db, list, NULL, NULL, NULL, NULL, SITES_SHOWN, put_site, out);
    return out;
}

static json_t *meta_of(const struct settings *s, const struct setting_key *key, bool is_stored)
{
    (void)s;
    return json_pack("{s:o, s:s, s:s}", "default", default_of(key), "source",
                     is_stored ? "stored" : "default", "applies", APPLIES_NAMES[key->applies]);
}

json_t *settings_to_json(const struct settings *s)
{
    size_t n;
    const struct setting_key *keys = setting_keys(&n);
    json_t *values = json_object(), *meta = json_object();
    for (size_t i = 0; i < n; i++) {
        json_t *value = shown_value(s, &keys[i]);
        bool is_stored = json_object_get(s->stored, keys[i].key) ||
                         (keys[i].type == SETTING_LIST && json_array_size(value) > 0);
        put_nested(values, keys[i].key, value);
        (void)json_object_set_new(meta, keys[i].key, meta_of(s, &keys[i], is_stored));
    }
    return json_pack("{s:o, s:o, s:I}", "values", values, "meta", meta, "rev", (json_int_t)s->rev);
}

/* ---- PATCH
 * --------------------------------------------------------------------------------------- */

struct patching {
    json_t *changes; /* flat; null = the default again */
    struct field_errors *errors;
    struct err *err;
    int r;
};

static bool is_table(const char *prefix)
{
    size_t n, len = strlen(prefix);
    const struct setting_key *keys = setting_keys(&n);
    for (size_t i = 0; i < n; i++)
        if (strncmp(keys[i].key, prefix, len) == 0 && keys[i].key[len] == '.')
            return true;
    return false;
}

static void refuse_unknown(struct patching *p, const char *pointer, const char *key)
{
    size_t n;
    unsigned best = 4;
    const char *name = NULL;
    const struct setting_key *keys = setting_keys(&n);
    for (size_t i = 0; i < n; i++) {
        unsigned d = str_distance(keys[i].key, key);
        if (d < best) {
            best = d;
            name = keys[i].key;
        }
    }
    p->r = -EINVAL;
    field_errors_add(p->errors, pointer, "unknown",
                     name ? "no such setting; did you mean %s?" : "no such setting", name);
}

/* A table set to null: each of its keys is the default again. */
static void reset_table(struct patching *p, const char *prefix)
{
    size_t n, len = strlen(prefix);
    const struct setting_key *keys = setting_keys(&n);
    for (size_t i = 0; i < n; i++)
        if (strncmp(keys[i].key, prefix, len) == 0 && keys[i].key[len] == '.' &&
            keys[i].type != SETTING_LIST)
            (void)json_object_set_new(p->changes, keys[i].key, json_null());
}

static void patch_key(struct patching *p, const struct setting_key *key, json_t *value,
                      const char *pointer)
{
    struct err err = {0};
    const char *kind;
    if (json_is_null(value) && key->type != SETTING_LIST) {
        (void)json_object_set_new(p->changes, key->key, json_null());
        return;
    }
    int r = setting_check(key, value, &kind, &err);
    if (r >= 0) {
        (void)json_object_set(p->changes, key->key, value);
        return;
    }
    p->r = -EINVAL;
    if (strcmp(err.code, "list_setting") == 0)
        (void)err_set(p->err, r, err.code, err.hint, "%s", err.detail);
    else
        field_errors_add(p->errors, pointer, kind, "%s", err.detail);
}

static void patch_members(struct patching *p, json_t *object, const char *prefix, const char *base,
                          unsigned depth)
{
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        char key[128], pointer[POINTER_MAX];
        (void)snprintf(key, sizeof key, "%s%s%s", prefix, *prefix ? "." : "", name);
        (void)snprintf(pointer, sizeof pointer, "%s", base);
        json_pointer_add(pointer, sizeof pointer, name);
        const struct setting_key *row = strchr(name, '.') ? NULL : setting_key_find(key);
        if (row)
            patch_key(p, row, value, pointer);
        else if (strchr(name, '.') || !is_table(key) || depth > 3)
            refuse_unknown(p, pointer, key);
        else if (json_is_null(value))
            reset_table(p, key);
        else if (json_is_object(value))
            patch_members(p, value, key, pointer, depth + 1);
        else {
            p->r = -EINVAL;
            field_errors_add(p->errors, pointer, "type", "wants an object");
        }
    }
}

static json_t *stored_after(const struct settings *s, const json_t *changes)
{
    const char *key;
    json_t *value, *out = json_copy(s->stored);
    json_object_foreach((json_t *)(uintptr_t)changes, key, value)
    {
        if (json_is_null(value))
            (void)json_object_del(out, key);
        else
            (void)json_object_set(out, key, value);
    }
    return out;
}

static json_t *difference(const struct settings *s, json_t *after)
{
    const char *key;
    json_t *value, *out = json_object();
    json_object_foreach(after, key, value)
    {
        if (!json_equal(value, json_object_get(s->values, key)))
            (void)json_object_set(out, key, value);
    }
    return out;
}

/* What widens wants to be said twice: the value that ?confirm= must have. */
static const char *widens(const json_t *changed, const char *confirm)
{
    static const struct {
        const char *key, *value;
    } ROWS[] = {{"sandbox_provider", "direct"},
                {"sandbox_network_profile", "open"},
                {"sandbox.default_tier", "open"}};
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        const char *value = json_string_value(json_object_get(changed, ROWS[i].key));
        if (value && strcmp(value, ROWS[i].value) == 0 &&
            (!confirm || strcmp(confirm, ROWS[i].value) != 0))
            return ROWS[i].value;
    }
    return NULL;
}

static int settings_commit(struct settings *s, const json_t *changes, json_t *take_stored,
                           json_t *take_values, struct err *err)
{
    int64_t rev;
    int r = settings_store(s->db, changes, &rev);
    if (r < 0) {
        json_decref(take_stored);
        json_decref(take_values);
        return err_set(err, r, r == -ENOSPC ? "disk_full" : "internal", NULL,
                       "the settings could not be stored: %s", strerror(-r));
    }
    json_decref(s->stored);
    json_decref(s->values);
    s->stored = take_stored;
    s->values = take_values;
    s->rev = rev;
    watched_notify(&s->watched);
    return 0;
}

int settings_patch(struct settings *s, const json_t *patch, bool dry, const char *confirm,
                   const char **ret_confirm, json_t **ret_changed, struct field_errors *errors,
                   struct err *err)
{
    struct patching p = {.changes = json_object(), .errors = errors, .err = err};
    if (!json_is_object(patch)) {
        field_errors_add(errors, "", "type", "wants an object");
        p.r = -EINVAL;
    } else {
        patch_members(&p, (json_t *)(uintptr_t)patch, "", "", 0);
    }
    if (p.r < 0) {
        json_decref(p.changes);
        return p.r;
    }
    json_t *stored = stored_after(s, p.changes), *values = values_of(stored);
    json_t *changed = difference(s, values);
    const char *wanted = widens(changed, confirm);
    int r = 0;
    if (wanted && !dry) {
        *ret_confirm = wanted;
        r = err_set(err, -EPERM, "confirm_required", "send it again with ?confirm= and that value",
                    "this widens: %s", wanted);
    }
    if (r < 0 || dry) {
        json_decref(stored);
        json_decref(values);
    } else {
        r = settings_commit(s, p.changes, stored, values, err);
    }
    json_decref(p.changes);
    if (r < 0)
        json_decref(changed);
    else
        *ret_changed = changed;
    return r;
}
