/* The values in force, each with the layer it came from: built in < stored (files come later). */
#pragma once
#include "base/watch.h"
#include "config/keys.h"
#include "store/settings.h"

struct settings;
int settings_new(struct db *db, struct settings **ret, struct err *err);
void settings_free(struct settings *s);
struct watched *settings_watched(struct settings *s);
int64_t settings_rev(const struct settings *s);
const json_t *settings_get(const struct settings *s,
                           const char *key); /* never NULL for a known key */
int64_t settings_int(const struct settings *s, const char *key);
const char *settings_text(const struct settings *s, const char *key); /* NULL for null */
/* {values, meta, rev} of GET /settings. */
json_t *settings_to_json(const struct settings *s);
/* A merge patch (RFC 7396) of `values`, nested as in the API; null = the default again. All or
 * nothing; ERRORS gets each fault. *ret_confirm: the value ?confirm= must have, or NULL. DRY:
 * nothing is stored. *ret_changed: flat object {key: value} of what differs, a new reference. */
struct field_errors;
int settings_patch(struct settings *s, const json_t *patch, bool dry, const char *confirm,
                   const char **ret_confirm, json_t **ret_changed, struct field_errors *errors,
                   struct err *err);
