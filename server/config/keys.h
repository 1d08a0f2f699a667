/* One row a setting; API, CLI, docs and the TOML reader (later) derive from it. */
#pragma once
#include "base/err.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum setting_type { SETTING_BOOL, SETTING_INT, SETTING_ENUM, SETTING_TEXT, SETTING_LIST };
enum setting_scope { SETTING_OF_MACHINE = 0, SETTING_OF_ANY };
enum setting_applies { APPLIES_NOW = 0, APPLIES_NEW_SESSIONS, APPLIES_RESTART };
extern const char *const APPLIES_NAMES[];
struct setting_key {
    const char *key; /* "sandbox.default_tier": dots are tables in TOML and objects in the API */
    enum setting_type type;
    enum setting_scope scope;
    enum setting_applies applies;
    const char *default_json;
    int64_t min, max;
    const char *const *names; /* SETTING_ENUM */
    bool nullable;
    bool is_later; /* has no effect in this version: only the default is taken */
    int (*check)(const json_t *value, struct err *err);
    const char *help;
};
const struct setting_key *setting_keys(size_t *ret_n);
const struct setting_key *setting_key_find(const char *key);
/* VALUE fits KEY? Else fills err: body_invalid, or list_setting for a list; *ret_kind (may be NULL)
 * is the kind of fault for errors[]: type, range, format. */
int setting_check(const struct setting_key *key, const json_t *value, const char **ret_kind,
                  struct err *err);
