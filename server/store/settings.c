/* Runs in: daemon. Reads: trusted. May block: no. */
#include "store/settings.h"
#include "base/mem.h"
#include "store/db_impl.h"
#include <errno.h>

static const char SQL_ALL[] = "SELECT key, value FROM settings";
static const char SQL_PUT[] = "INSERT INTO settings (key, value) VALUES (?1, ?2)"
                              " ON CONFLICT (key) DO UPDATE SET value = excluded.value";
static const char SQL_DELETE[] = "DELETE FROM settings WHERE key = ?1";

int settings_load(struct db *db, json_t **ret_values, int64_t *ret_rev)
{
    sqlite3_stmt *st;
    int r = db_prepare(db, ST_SETTING_ALL, SQL_ALL, &st);
    if (r < 0)
        return r;
    json_t *values = json_object();
    if (!values)
        return -ENOMEM;
    while ((r = db_step(st)) > 0) {
        const char *text = col_text(st, 1);
        json_t *value = text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
        r = !value                                                    ? -EUCLEAN
            : json_object_set_new(values, col_text(st, 0), value) < 0 ? -ENOMEM
                                                                      : 0;
        if (r < 0) {
            db_reset(st);
            break;
        }
    }
    if (r < 0) {
        json_decref(values);
        return r;
    }
    *ret_values = values;
    *ret_rev = db_meta(db, "settings_rev", 1);
    return 0;
}

static int store_one(struct db *db, const char *key, const json_t *value)
{
    sqlite3_stmt *st;
    CLEANUP(freep) char *text = NULL;
    if (json_is_null(value)) {
        int r = db_prepare_write(db, ST_SETTING_DELETE, SQL_DELETE, &st);
        if (r < 0)
            return r;
        bind_text(st, 1, key);
        return db_run(db, st);
    }
    text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    int r = text ? db_prepare_write(db, ST_SETTING_PUT, SQL_PUT, &st) : -ENOMEM;
    if (r < 0)
        return r;
    bind_text(st, 1, key);
    bind_text(st, 2, text);
    return db_run(db, st);
}

int settings_store(struct db *db, const json_t *changes, int64_t *ret_rev)
{
    const char *key;
    json_t *value;
    int r = db_write_begin(db);
    int64_t rev = db_meta(db, "settings_rev", 1) + 1;
    /* jansson's iteration takes a pointer that is not const, and changes nothing. */
    json_object_foreach((json_t *)(uintptr_t)changes, key, value)
    {
        if (r == 0)
            r = store_one(db, key, value);
    }
    if (r == 0)
        r = db_meta_set(db, "settings_rev", rev);
    if (r == 0)
        *ret_rev = rev;
    return r;
}
