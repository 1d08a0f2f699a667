/* What the room's files share: one struct for the daemon's life, made by api_new. */
#pragma once
#include "api/auth.h"
#include "api/http.h"
#include "api/route.h"

struct api_state {
    struct api_deps d;
    struct http *http;
    struct auth *auth;
    uint16_t port;
    bool shutting_down;
    struct watch settings_watch;
    void (*closed)(void *arg);
    void *closed_arg;
};

/* Records what a caller did, or was refused; an error means that it must not be done. */
int api_record(struct request *rq, const char *action, const char *target, json_t *take_before,
               json_t *take_after);
/* One stream more, of this caller and in all? Else too_many. */
int api_stream_allowed(struct request *rq);
