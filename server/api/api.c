/* Runs in: daemon. Reads: hostile (through its parts). May block: no, but at start. */
#include "api/api.h"
#include "api/state.h"
#include "base/log.h"
#include "base/mem.h"
#include "store/events.h"
#include <errno.h>
#include <stdlib.h>

struct api {
    struct api_state state;
};

int api_record(struct request *rq, const char *action, const char *target, json_t *take_before,
               json_t *take_after)
{
    struct audit_entry e = {.actor = &rq->caller.actor,
                            .action = action,
                            .target = target,
                            .take_before = take_before,
                            .take_after = take_after,
                            .outcome = OUTCOME_OK};
    int r = audit_add(rq->api->d.db, &e);

    return r < 0 ? err_set(&rq->err, r, "disk_full", NULL, "this could not be recorded") : 0;
}

int api_stream_allowed(struct request *rq)
{
    if (http_streams(rq->api->http, NULL) >= API_STREAMS_MAX)
        return request_refuse(rq, "too_many", NULL, "more than %d streams", API_STREAMS_MAX);
    if (rq->caller.has_token && http_streams(rq->api->http, &rq->caller) >= API_STREAMS_TOKEN_MAX)
        return request_refuse(rq, "too_many", NULL, "more than %d streams of one token",
                              API_STREAMS_TOKEN_MAX);
    return 0;
}

static void settings_changed(struct watch *w)
{
    struct api_state *st = container_of(w, struct api_state, settings_watch);

    events_emit(st->d.db, &(struct event){EVENT_SETTINGS, EVENT_UPDATED, "settings", NULL,
                                          settings_rev(st->d.settings), NULL, NULL});
}

static int listen_all(struct api_state *st, struct err *err)
{
    int r = http_listen_tcp(st->http, st->d.port, st->d.port_fixed, &st->port, err);

    if (r < 0)
        return r;
    auth_port(st->auth, st->port);
    return http_listen_unix(st->http, st->d.socket_path, err);
}

static void free_failed(void *arg)
{
    free(arg);
}

int api_new(const struct api_deps *deps, struct api **ret, struct err *err)
{
    static const struct http_callbacks CALLBACKS = {route_head, route_run, route_leaving,
                                                    auth_is_valid};
    struct api *a = calloc(1, sizeof *a);
    struct api_state *st;
    int r;

    if (!a)
        return -ENOMEM;
    st = &a->state;
    st->d = *deps;
    r = auth_new(deps->db, deps->token_path, &st->auth, err);
    if (r >= 0)
        r = http_new(deps->loop, st, &CALLBACKS, deps->spool_dir, &st->http);
    if (r >= 0)
        r = listen_all(st, err);
    if (r < 0) {
        auth_free(st->auth);
        if (st->http)
            http_close(st->http, free_failed, a);
        else
            free(a);
        return r;
    }
    st->settings_watch.changed = settings_changed;
    watch_add(settings_watched(deps->settings), &st->settings_watch);
    *ret = a;
    return 0;
}

uint16_t api_port(const struct api *a)
{
    return a->state.port;
}

static void on_closed(void *arg)
{
    struct api *a = arg;
    void (*closed)(void *arg) = a->state.closed;
    void *closed_arg = a->state.closed_arg;

    auth_free(a->state.auth);
    free(a);
    if (closed)
        closed(closed_arg);
}

void api_close(struct api *a, void (*closed)(void *arg), void *arg)
{
    a->state.closed = closed;
    a->state.closed_arg = arg;
    a->state.shutting_down = true;
    watch_remove(&a->state.settings_watch);
    http_close(a->state.http, on_closed, a);
}
