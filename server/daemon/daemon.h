/* The daemon as a whole: its parts, made in order and taken down in the reverse one. */
#pragma once
#include "api/api.h"
#include "base/clock.h"
#include "base/loop.h"
#include "daemon/options.h"
#include "daemon/places.h"
#include "daemon/upkeep.h"

struct daemon {
    struct options options;
    uv_loop_t *loop;
    struct places places;
    struct machine machine;
    struct db *db;
    struct settings *settings;
    struct sessions *sessions;
    struct upkeep *upkeep;
    struct api *api;
    struct closing closing;
    uv_signal_t term, intr;
    struct deadline shutdown; /* a request to go down is taken up on the loop */
    uint64_t drain_ms;
    bool is_going_down;
    char instance_id[ID_MAX];
    char start_time[CLOCK_TEXT_MAX];
};
/* Each fills ERR and leaves what it made to daemon_done. */
int daemon_open_store(struct daemon *d, struct err *err);
int daemon_open_sessions(struct daemon *d, struct err *err);
int daemon_open_api(struct daemon *d, struct err *err);
int daemon_announce(struct daemon *d, struct err *err);
void daemon_watch_signals(struct daemon *d);
/* The line that whoever started it waits for: NULL = ready. */
void daemon_tell(struct daemon *d, int r, const struct err *err);
void daemon_done(struct daemon *d);
