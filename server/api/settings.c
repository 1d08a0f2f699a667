/* Runs in: daemon. Reads: trusted (checked by the router). May block: no. */
#include "api/handlers.h"
#include "api/session_parts.h"
#include "api/state.h"
#include "base/mem.h"
#include "store/records.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct settings_query {
    bool dry_run;
    char *confirm;
};
static const struct field SETTINGS_FIELDS[] = {
    {"dry_run", FIELD_BOOL, offsetof(struct settings_query, dry_run), 0, 0, 0, NULL, NULL},
    {"confirm", FIELD_STRING, offsetof(struct settings_query, confirm), 0, 1, 300, NULL, NULL},
    FIELDS_END};
const struct shape SETTINGS_QUERY = {SETTINGS_FIELDS, sizeof(struct settings_query), NULL};

/* Settings that may hold a password are named in records, not shown. */
static const char *const SECRET_KEYS[] = {"sandbox.proxy.upstream", NULL};

int settings_show(struct request *rq)
{
    const struct settings *s = rq->api->d.settings;

    return reply_rev(rq, 200, settings_to_json(s), settings_rev(s));
}

/* The sessions that a change reaches: those that live. */
json_t *sessions_alive_ids(struct request *rq)
{
    struct record_query q = {.kind = RECORD_SESSION, .limit = 500};
    json_t *docs = NULL, *ids = json_array(), *doc;
    bool more;
    size_t i;

    if (record_list(rq->api->d.db, &q, &docs, &more) < 0)
        return ids;
    json_array_foreach(docs, i, doc)
    {
        const char *id = json_string_value(json_object_get(doc, "id"));
        if (id && session_find(rq->api->d.sessions, id))
            (void)json_array_append_new(ids, json_string(id));
    }
    json_decref(docs);
    return ids;
}

static json_t *for_record(const json_t *changed)
{
    json_t *out = json_copy((json_t *)(uintptr_t)changed);

    for (size_t i = 0; SECRET_KEYS[i]; i++)
        if (json_object_get(out, SECRET_KEYS[i]))
            (void)json_object_set_new(out, SECRET_KEYS[i], json_string("(not shown)"));
    return out;
}

static int patch(struct request *rq, bool dry, json_t **ret_changed)
{
    const struct settings_query *q = rq->args;
    const char *confirm = NULL;
    int r = settings_patch(rq->api->d.settings, rq->json, dry, q->confirm, &confirm, ret_changed,
                           &rq->errors, &rq->err);

    if (r < 0 && confirm)
        request_extra(rq, "confirm", json_string(confirm));
    if (r < 0 && field_errors_any(&rq->errors))
        return err_set(&rq->err, r, "body_invalid", NULL, "the settings have faults");
    return r;
}

static int change_now(struct request *rq)
{
    struct api_state *st = rq->api;
    json_t *changed = NULL;
    int r;

    /* Again: the rev may have moved while the wall was tried. */
    if ((r = request_if_match(rq, settings_rev(st->d.settings))) < 0 ||
        (r = patch(rq, false, &changed)) < 0)
        return r;
    r = api_record(rq, "settings.changed", "settings", NULL, for_record(changed));
    json_decref(changed);
    return r < 0 ? r : settings_show(rq);
}

/* ---- Turning a wall on: it is put up and proved first -----------------------------------------
 */

struct trial {
    struct request *rq;
};

static void trial_drop(void *state)
{
    struct trial *t = state;

    t->rq = NULL;
}

static json_t *failed_checks(const json_t *status)
{
    json_t *failed = json_array(), *check;
    size_t i;

    json_array_foreach(json_object_get(status, "checks"), i, check)
    {
        if (json_is_true(json_object_get(check, "required")) &&
            !json_is_true(json_object_get(check, "ok")))
            (void)json_array_append(failed, check);
    }
    return failed;
}

static int trial_judge(struct request *rq, const json_t *status)
{
    json_t *failed = failed_checks(status);
    const json_t *fix = json_array_get(json_object_get(status, "fix"), 0);
    const char *cure = json_string_value(json_object_get(fix, "text"));

    if (json_array_size(failed) == 0 && json_array_size(json_object_get(status, "checks")) > 0) {
        json_decref(failed);
        return change_now(rq);
    }
    request_extra(rq, "checks", failed);
    return request_refuse(rq, "wall_unavailable", cure,
                          "the wall was not proved on this machine; nothing was changed");
}

static void on_tried(json_t *status, void *arg)
{
    struct trial *t = arg;
    struct request *rq = t->rq;

    free(t);
    if (rq) {
        rq->state = NULL;
        rq->state_done = NULL;
        request_answer(rq, trial_judge(rq, status));
    }
    json_decref(status);
}

static int try_first(struct request *rq)
{
    struct trial *t = calloc(1, sizeof *t);
    int r;

    if (!t)
        return -ENOMEM;
    t->rq = rq;
    r = sessions_status_check(rq->api->d.sessions, on_tried, t, &rq->err);
    if (r < 0) {
        free(t);
        err_clear(&rq->err);
        return request_refuse(rq, "wall_unavailable", NULL, "the wall cannot be tried here");
    }
    rq->state = t;
    rq->state_done = trial_drop;
    request_park(rq, NULL, UINT64_MAX, NULL);
    return 0;
}

static bool turns_wall_on(const struct request *rq, const json_t *changed)
{
    const char *to = json_string_value(json_object_get(changed, "sandbox_provider"));

    (void)rq;
    return to && strcmp(to, PROVIDER_NAMES[PROVIDER_DIRECT]) != 0;
}

int settings_change(struct request *rq)
{
    const struct settings_query *q = rq->args;
    json_t *changed = NULL;
    bool tries;
    int r;

    if ((r = request_if_match(rq, settings_rev(rq->api->d.settings))) < 0 ||
        (r = patch(rq, true, &changed)) < 0)
        return r;
    if (q->dry_run)
        return reply_json(rq, 200,
                          json_pack("{s:b, s:o, s:o}", "dry_run", 1, "changed", changed, "sessions",
                                    sessions_alive_ids(rq)));
    tries = turns_wall_on(rq, changed);
    json_decref(changed);
    return tries ? try_first(rq) : change_now(rq);
}
