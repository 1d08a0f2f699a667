/* Keys of search providers. They leave this file for one reader only: the search that sends them
 * (session/web_search). No list, answer, record or log has one. */
#pragma once
#include "store/db.h"

#define WEB_KEY_MAX 512 /* bytes; printable ASCII without spaces: the API checks */

/* 1 and the key (malloc'ed; wipe it: web_key_wipe), 0 when there is none. RET may be NULL: only
 * asked whether. */
int web_key_get(struct db *db, const char *provider, char **ret);
int web_key_put(struct db *db, const char *provider, const char *key);
/* -ENOENT when there is none. No page of the database has it after the next start. */
int web_key_delete(struct db *db, const char *provider);
void web_key_wipe(char *take_key); /* NULL is fine */
