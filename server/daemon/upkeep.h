/* What the daemon does by itself: a commit each turn of the loop, and the cutting of what is older
 * than the settings allow (retention.*). */
#pragma once
#include "config/settings.h"
#include "session/session.h"

struct upkeep;
int upkeep_new(uv_loop_t *loop, struct db *db, struct settings *settings, struct sessions *sessions,
               const char *spool_dir, struct upkeep **ret);
void upkeep_close(struct upkeep *u);
