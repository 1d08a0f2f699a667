/* Runs in: daemon. Reads: trusted. May block: no. */
#include "store/web_keys.h"
#include "base/clock.h"
#include "store/db_impl.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char SQL_GET[] = "SELECT key FROM web_keys WHERE provider = ?1";
static const char SQL_PUT[] = "INSERT INTO web_keys (provider, key, set_at) VALUES (?1, ?2, ?3)"
                              " ON CONFLICT (provider) DO UPDATE SET key = excluded.key,"
                              " set_at = excluded.set_at";
static const char SQL_DELETE[] = "DELETE FROM web_keys WHERE provider = ?1";

int web_key_get(struct db *db, const char *provider, char **ret)
{
    sqlite3_stmt *st;
    int r = db_prepare(db, ST_WEB_KEY_GET, SQL_GET, &st);
    if (r < 0)
        return r;
    bind_text(st, 1, provider);
    r = db_step(st);
    if (r <= 0)
        return r;
    if (ret) {
        const char *text = col_text(st, 0);
        *ret = strdup(text ? text : "");
        r = *ret ? 1 : -ENOMEM;
    }
    db_reset(st);
    return r;
}

/* What was there before is to leave the file too (rewrite: db_open). */
int web_key_put(struct db *db, const char *provider, const char *key)
{
    sqlite3_stmt *st;
    int r = web_key_get(db, provider, NULL);
    if (r > 0)
        r = db_meta_set(db, "rewrite", 1);
    if (r >= 0)
        r = db_prepare_write(db, ST_WEB_KEY_PUT, SQL_PUT, &st);
    if (r < 0)
        return r;
    bind_text(st, 1, provider);
    bind_text(st, 2, key);
    bind_int(st, 3, clock_wall_ms());
    return db_run(db, st);
}

int web_key_delete(struct db *db, const char *provider)
{
    int r = db_run_by_id(db, ST_WEB_KEY_DELETE, SQL_DELETE, provider);
    if (r <= 0)
        return r < 0 ? r : -ENOENT;
    return db_meta_set(db, "rewrite", 1);
}

void web_key_wipe(char *take_key)
{
    if (take_key)
        explicit_bzero(take_key, strlen(take_key));
    free(take_key);
}
