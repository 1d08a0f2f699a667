/* Runs in: daemon. Reads: trusted (checked by the router). May block: no.
 *
 * The body of POST /sessions and of POST /policy/preview as a struct session_spec. */
#include "api/handlers.h"
#include "api/session_parts.h"
#include "api/state.h"
#include "base/mem.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct session_body {
    json_t *folders, *sites, *env, *agent, *publish;
    char *name, *cwd, *preset, *config_file;
    int tier, network, approvals;
    bool require_wall, unattended;
    struct strv file_roots;
    int64_t wait_ms;
};
#define AT(member) offsetof(struct session_body, member)
static const struct field SESSION_FIELDS[] = {
    {"folders", FIELD_ARRAY, AT(folders), FIELD_MANDATORY, 1, SESSION_FOLDERS, NULL, NULL},
    {"name", FIELD_STRING, AT(name), FIELD_NULLABLE, 1, 100, NULL, NULL},
    {"tier", FIELD_ENUM, AT(tier), FIELD_NULLABLE, 0, 0, TIER_NAMES, NULL},
    {"network", FIELD_ENUM, AT(network), FIELD_NULLABLE, 0, 0, NET_NAMES, NULL},
    {"approvals", FIELD_ENUM, AT(approvals), FIELD_NULLABLE, 0, 0, APPROVALS_NAMES, NULL},
    {"preset", FIELD_STRING, AT(preset), FIELD_NULLABLE, 1, 40, NULL, not_in_this_version},
    {"require_wall", FIELD_BOOL, AT(require_wall), 0, 0, 0, NULL, NULL},
    {"unattended", FIELD_BOOL, AT(unattended), 0, 0, 0, NULL, NULL},
    {"cwd", FIELD_STRING, AT(cwd), FIELD_NULLABLE, 1, 4096, NULL, NULL},
    {"env", FIELD_OBJECT, AT(env), FIELD_NULLABLE, 0, 0, NULL, NULL},
    {"sites", FIELD_ARRAY, AT(sites), 0, 0, SESSION_SITES, NULL, NULL},
    {"publish", FIELD_ARRAY, AT(publish), 0, 0, 32, NULL, NULL},
    {"file_roots", FIELD_STRINGS, AT(file_roots), 0, 0, 32, NULL, NULL},
    {"config_file", FIELD_STRING, AT(config_file), FIELD_NULLABLE, 1, 4096, NULL,
     not_in_this_version},
    {"agent", FIELD_OBJECT, AT(agent), FIELD_NULLABLE, 0, 0, NULL, NULL},
    {"wait_ms", FIELD_INT, AT(wait_ms), 0, 0, API_WAIT_MAX, NULL, NULL},
    FIELDS_END};
static const struct session_body BODY_DEFAULTS = {.tier = -1, .network = -1, .wait_ms = 30000};
const struct shape SESSION_BODY = {SESSION_FIELDS, sizeof(struct session_body), &BODY_DEFAULTS};

static const char *const MODES[] = {"ro", "rw", NULL};
struct folder_body {
    char *path;
    int mode;
};
static const struct field FOLDER_FIELDS[] = {
    {"path", FIELD_STRING, offsetof(struct folder_body, path), FIELD_MANDATORY, 1, 4096, NULL,
     NULL},
    {"mode", FIELD_ENUM, offsetof(struct folder_body, mode), 0, 0, 0, MODES, NULL},
    FIELDS_END};

struct spec_site_body {
    char *host;
    int64_t port;
};
static const struct field SPEC_SITE_FIELDS[] = {
    {"host", FIELD_STRING, offsetof(struct spec_site_body, host), FIELD_MANDATORY, 1, 300, NULL,
     NULL},
    {"port", FIELD_INT, offsetof(struct spec_site_body, port), FIELD_NULLABLE, 1, 65535, NULL,
     NULL},
    FIELDS_END};

struct agent_body {
    char *name, *version;
};
static const struct field AGENT_FIELDS[] = {
    {"name", FIELD_STRING, offsetof(struct agent_body, name), FIELD_MANDATORY, 1, 100, NULL, NULL},
    {"version", FIELD_STRING, offsetof(struct agent_body, version), 0, 1, 100, NULL, NULL},
    FIELDS_END};

char *const *api_env(void)
{
    return environ;
}

static void errors_refuse(struct request *rq)
{
    const json_t *first = json_array_get(rq->errors.list, 0);
    const char *detail = json_string_value(json_object_get(first, "detail"));
    const char *pointer = json_string_value(json_object_get(first, "pointer"));

    (void)err_member(&rq->err, -EINVAL, "body_invalid", pointer ? pointer : "", "%s: %s",
                     pointer ? pointer : "", detail ? detail : "");
}

/* Each element of LIST by TABLE; TAKE gets the filled struct. */
static int each_item(struct request *rq, const json_t *list, const char *name,
                     const struct field *table, void *item, const void *defaults, size_t size,
                     int (*take)(struct session_spec *spec, void *item), struct session_spec *spec)
{
    char pointer[64];
    json_t *element;
    size_t i;
    int r, worst = 0;

    json_array_foreach(list, i, element)
    {
        memcpy(item, defaults, size);
        (void)snprintf(pointer, sizeof pointer, "/%s/%zu", name, i);
        if (json_is_object(element)) {
            r = fields_parse(table, element, pointer, item, &rq->errors);
            if (r >= 0)
                r = take(spec, item);
            fields_done(table, item);
        } else {
            field_errors_add(&rq->errors, pointer, "type", "must be an object");
            r = -EINVAL;
        }
        worst = r < 0 ? r : worst;
    }
    if (worst < 0 && field_errors_any(&rq->errors))
        errors_refuse(rq);
    return worst;
}

static int take_folder(struct session_spec *spec, void *item)
{
    struct folder_body *f = item;
    struct spec_folder *to = &spec->folders[spec->n_folders++];

    to->path = TAKE(f->path);
    to->access = f->mode ? ACCESS_RW : ACCESS_RO;
    return 0;
}

static int take_site(struct session_spec *spec, void *item)
{
    struct spec_site_body *s = item;
    struct spec_site *to = &spec->sites[spec->n_sites++];

    to->host = TAKE(s->host);
    to->port = (int)s->port;
    return 0;
}

static int take_folders(struct request *rq, const struct session_body *in, struct session_spec *ret)
{
    static const struct folder_body DEFAULTS = {NULL, 1};
    struct folder_body item;

    return each_item(rq, in->folders, "folders", FOLDER_FIELDS, &item, &DEFAULTS, sizeof item,
                     take_folder, ret);
}

static int take_sites(struct request *rq, const struct session_body *in, struct session_spec *ret)
{
    static const struct spec_site_body DEFAULTS = {NULL, 0};
    struct spec_site_body item;

    ret->sites = calloc(json_array_size(in->sites) + 1, sizeof *ret->sites);
    if (!ret->sites)
        return -ENOMEM;
    return each_item(rq, in->sites, "sites", SPEC_SITE_FIELDS, &item, &DEFAULTS, sizeof item,
                     take_site, ret);
}

static int take_publish(struct request *rq, const struct session_body *in, struct session_spec *ret)
{
    char pointer[32];
    json_t *port;
    size_t i;

    json_array_foreach(in->publish, i, port)
    {
        json_int_t n = json_integer_value(port);
        (void)snprintf(pointer, sizeof pointer, "/publish/%zu", i);
        if (!json_is_integer(port))
            return request_bad_member(rq, pointer, "type", "must be an integer");
        if (n < 1 || n > 65535)
            return request_bad_member(rq, pointer, "range", "must be 1 to 65535");
        ret->publish[ret->n_publish++] = (uint16_t)n;
    }
    return 0;
}

static int check_agent(struct request *rq, const json_t *agent)
{
    struct agent_body item = {0};
    int r = agent ? fields_parse(AGENT_FIELDS, agent, "/agent", &item, &rq->errors) : 0;

    fields_done(AGENT_FIELDS, &item);
    if (r < 0)
        errors_refuse(rq);
    return r;
}

/* An object of strings without NUL, names as environ(7) has them. */
int env_check(struct request *rq, const json_t *env, bool nulls)
{
    char pointer[160];
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)env, name, value)
    {
        (void)snprintf(pointer, sizeof pointer, "/env");
        json_pointer_add(pointer, sizeof pointer, name);
        if (*name == '\0' || strchr(name, '='))
            return request_bad_member(rq, pointer, "format", "no name of a variable");
        if (!json_is_string(value) && !(nulls && json_is_null(value)))
            return request_bad_member(rq, pointer, "type", "must be a string%s",
                                      nulls ? " or null" : "");
    }
    return 0;
}

static int check_tier(struct request *rq, const struct session_body *in)
{
    if (in->tier == TIER_GUARDED || in->tier == TIER_AIRLOCK)
        return request_bad_member(rq, "/tier", "format", "not in this version");
    if (in->tier == TIER_OPEN && in->network >= 0 && in->network != NET_OPEN)
        return request_bad_member(rq, "/network", "conflict", "tier open has network open");
    return 0;
}

int session_spec_take(struct request *rq, struct session_spec *ret)
{
    struct session_body *in = rq->in;
    int r;

    if ((r = check_tier(rq, in)) < 0 || (r = check_agent(rq, in->agent)) < 0 ||
        (r = env_check(rq, in->env, false)) < 0 || (r = take_folders(rq, in, ret)) < 0 ||
        (r = take_sites(rq, in, ret)) < 0 || (r = take_publish(rq, in, ret)) < 0)
        return r;
    ret->name = TAKE(in->name);
    ret->cwd = TAKE(in->cwd);
    ret->env = json_incref(in->env);
    ret->agent = json_incref(in->agent);
    ret->tier = in->tier;
    ret->network = in->network;
    ret->approvals = in->approvals;
    ret->require_wall = in->require_wall;
    ret->unattended = in->unattended;
    ret->caller_env = api_env();
    return strv_copy(&ret->file_roots, &in->file_roots);
}

int64_t session_spec_wait(const struct request *rq)
{
    return ((const struct session_body *)rq->in)->wait_ms;
}

/* What widens is asked for twice: tier open, network open, wide sites. */
int session_spec_confirm(struct request *rq, const struct session_spec *spec)
{
    CLEANUP(strv_done) struct strv wide = {0};
    struct site_typed typed;
    char pointer[48];
    int r;

    if (spec->tier == TIER_OPEN)
        return request_confirm(rq, "open", "tier open runs without a wall");
    if (spec->network == NET_OPEN)
        return request_confirm(rq, "open", "network open lets every connection through");
    for (size_t i = 0; i < spec->n_sites; i++) {
        (void)snprintf(pointer, sizeof pointer, "/sites/%zu/host", i);
        r = site_typed_take(rq, pointer, spec->sites[i].host, spec->sites[i].port, SITES_SESSION,
                            false, &typed);
        if (r == 0 && typed.is_wide && !strv_has(&wide, typed.host)) /* its ports are one */
            r = strv_add(&wide, typed.host);
        if (r < 0)
            return r;
    }
    return sites_confirm(rq, &wide);
}
