/* Stored choices: key -> JSON value, with one revision for all. */
#pragma once
#include "store/db.h"
#include <jansson.h>

/* Flat, {"asks.expiry_ms": 1}; both are written only on success. */
int settings_load(struct db *db, json_t **ret_values, int64_t *ret_rev);
/* Sets (or, for null, removes) each member of CHANGES; the revision grows by one. */
int settings_store(struct db *db, const json_t *changes, int64_t *ret_rev);
