/* Runs in: daemon. Reads: trusted (the body of POST /sessions, its shape checked by the api).
 * May block: briefly (stat of the folders named). */
#include "base/path.h"
#include "session/parts.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define NAME_BYTES 200
#define ENV_BYTES  ((size_t)1 << 20)

void session_spec_done(struct session_spec *spec)
{
    for (size_t i = 0; i < spec->n_folders; i++)
        free(spec->folders[i].path);
    spec->n_folders = 0;
    free(spec->name);
    free(spec->cwd);
    json_decref(spec->env);
    for (size_t i = 0; i < spec->n_sites; i++)
        free(spec->sites[i].host);
    free(spec->sites);
    strv_done(&spec->file_roots);
    json_decref(spec->agent);
    memset(spec, 0, sizeof *spec);
}

static int no_memory(struct err *err)
{
    return err_set(err, -ENOMEM, "internal", NULL, "out of memory");
}

static void point_at(struct err *err, const char *list, size_t i, const char *member)
{
    if (err && err->pointer[0] == '\0')
        (void)snprintf(err->pointer, sizeof err->pointer, "/%s/%zu%s", list, i, member);
}

/* 1 = F is there already, as it is; one folder with two modes is a contradiction. */
static int check_twice(const struct session *s, const struct policy_folder *f, struct err *err)
{
    for (size_t i = 0; i < s->n_folders; i++) {
        if (strcmp(s->folders[i].real, f->real) != 0)
            continue;
        if (s->folders[i].access == f->access)
            return 1;
        return err_set(err, -EINVAL, "path_invalid", "name each folder once, with one mode",
                       "%s is given twice, with different modes", f->path);
    }
    return 0;
}

static int add_folder(struct session *s, const struct spec_folder *in, struct err *err)
{
    struct policy_folder f = {.access = in->access};
    char id[ID_MAX];
    id_new("fol", id);
    f.id = strdup(id);
    int r = f.id ? path_canonical(in->path, &f.path) : -ENOMEM;
    if (r == -ENOMEM)
        r = no_memory(err);
    else if (r < 0)
        r = err_set(err, r, "path_invalid", "give an absolute path", "not an absolute path");
    if (r == 0)
        r = machine_folder_check(s->ss->deps.machine, &f, err);
    if (r == 0)
        r = check_twice(s, &f, err);
    if (r != 0) {
        free(f.id);
        free(f.path);
        free(f.real);
        return r < 0 ? r : 0;
    }
    s->folders[s->n_folders++] = f;
    return 0;
}

static int apply_folders(struct session *s, const struct session_spec *spec, struct err *err)
{
    if (spec->n_folders == 0)
        return err_member(err, -EINVAL, "body_invalid", "/folders", "at least one folder");
    for (size_t i = 0; i < spec->n_folders; i++) {
        int r = add_folder(s, &spec->folders[i], err);
        if (r < 0) {
            point_at(err, "folders", i, "/path");
            return r;
        }
    }
    return 0;
}

static int setting_index(const struct session *s, const char *key, const char *const *names,
                         int fallback)
{
    const char *value = settings_text(s->ss->deps.settings, key);
    for (int i = 0; value && names[i]; i++)
        if (strcmp(names[i], value) == 0)
            return i;
    return fallback;
}

static int apply_tier(struct session *s, const struct session_spec *spec, struct err *err)
{
    int tier = spec->tier >= 0 ? spec->tier
                               : setting_index(s, "sandbox.default_tier", TIER_NAMES, TIER_WALLED);
    if (tier != TIER_WALLED && tier != TIER_OPEN)
        return err_member(err, -EINVAL, "body_invalid", "/tier", "%s: not in this version",
                          TIER_NAMES[tier]);
    s->tier = (enum tier)tier;
    if (s->tier == TIER_OPEN && spec->require_wall)
        return err_member(err, -EINVAL, "body_invalid", "/require_wall",
                          "tier open has no wall to require");
    int network = spec->network;
    if (network < 0)
        network = s->tier == TIER_OPEN
                      ? NET_OPEN
                      : setting_index(s, "sandbox_network_profile", NET_NAMES, NET_ALLOWLIST);
    if (s->tier == TIER_OPEN && network != NET_OPEN)
        return err_member(err, -EINVAL, "body_invalid", "/network",
                          "tier open has only network open");
    s->network = (enum net_mode)network;
    s->approvals = spec->approvals;
    s->require_wall = spec->require_wall;
    s->unattended = spec->unattended;
    s->provider = sessions_choose(s->ss, s->tier, s->require_wall);
    return 0;
}

static bool in_folders(const struct session *s, const char *path)
{
    for (size_t i = 0; i < s->n_folders; i++)
        if (path_is_under(path, s->folders[i].path) || path_is_under(path, s->folders[i].real))
            return true;
    return false;
}

static int apply_cwd(struct session *s, const struct session_spec *spec, struct err *err)
{
    struct stat st;
    if (!spec->cwd) {
        s->cwd = strdup(s->folders[0].path);
        return s->cwd ? 0 : no_memory(err);
    }
    int r = path_canonical(spec->cwd, &s->cwd);
    if (r < 0)
        return err_member(err, r, "path_invalid", "/cwd", "give an absolute path");
    if (s->provider != PROVIDER_DIRECT && !in_folders(s, s->cwd))
        return err_member(err, -EINVAL, "path_invalid", "/cwd", "%s is in no folder of the session",
                          s->cwd);
    if (stat(s->cwd, &st) < 0)
        return err_member(err, -errno, "path_invalid", "/cwd", "%s: %s", s->cwd, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return err_member(err, -ENOTDIR, "path_invalid", "/cwd", "%s is no folder", s->cwd);
    return 0;
}

/* NAME of an environment variable: POSIX.1-2017, 8.1: no '=' and no NUL; and not empty. */
static bool is_env_name(const char *name)
{
    return name[0] != '\0' && !strchr(name, '=');
}

static int apply_env(struct session *s, const struct session_spec *spec, struct err *err)
{
    const char *name;
    json_t *value;
    size_t bytes = 0;
    if (!spec->env)
        return 0;
    json_object_foreach(spec->env, name, value)
    {
        if (!is_env_name(name))
            return err_member(err, -EINVAL, "body_invalid", "/env", "not a name of a variable");
        if (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value))
            return err_member(err, -EINVAL, "body_invalid", "/env", "%s: a text without NUL", name);
        bytes += strlen(name) + json_string_length(value) + 2;
    }
    if (bytes > ENV_BYTES)
        return err_member(err, -EINVAL, "body_invalid", "/env", "more than %zu bytes", ENV_BYTES);
    s->env = json_incref(spec->env);
    return 0;
}

static int apply_sites(struct session *s, const struct session_spec *spec, struct err *err)
{
    struct site row;
    for (size_t i = 0; i < spec->n_sites; i++) {
        int r = site_row_make(s, spec->sites[i].host, spec->sites[i].port, false, &s->creator, &row,
                              err);
        if (r < 0) {
            point_at(err, "sites", i, "/host");
            return r;
        }
    }
    return 0;
}

/* Without a wall a port that is opened is the host's own; without an egress nobody accepts. */
static int apply_publish(struct session *s, const struct session_spec *spec, struct err *err)
{
    char pointer[32];
    if (spec->n_publish > 0 && s->provider == PROVIDER_DIRECT)
        return err_member(err, -EINVAL, "body_invalid", "/publish",
                          "no wall stands, so a port that is opened is this machine's own");
    if (spec->n_publish > 0 && s->network == NET_NONE)
        return err_member(err, -EINVAL, "body_invalid", "/publish",
                          "network none has no egress: use allowlist, whose list may be empty");
    for (size_t i = 0; i < spec->n_publish; i++) {
        (void)snprintf(pointer, sizeof pointer, "/publish/%zu", i);
        if (session_publishes(s, spec->publish[i]))
            return err_member(err, -EINVAL, "body_invalid", pointer, "port %u is named twice",
                              spec->publish[i]);
        if (spec->publish[i] == SESSION_DOOR_PORT || session_has_local(s, spec->publish[i]))
            return err_member(err, -EINVAL, "body_invalid", pointer,
                              "port %u inside is %s: publish another", spec->publish[i],
                              spec->publish[i] == SESSION_DOOR_PORT ? "the session's way out"
                                                                    : "a site of the session");
        s->publish[s->n_publish++] = (struct published){spec->publish[i], -1};
    }
    return 0;
}

static int apply_roots(struct session *s, const struct session_spec *spec, struct err *err)
{
    for (size_t i = 0; i < spec->file_roots.n; i++) {
        struct policy_folder f = {.access = ACCESS_RW};
        int r = path_canonical(spec->file_roots.items[i], &f.path);
        if (r < 0)
            err_set(err, r, "path_invalid", "give an absolute path", "not an absolute path");
        else
            r = machine_folder_check(s->ss->deps.machine, &f, err);
        if (r == 0)
            r = strv_add(&s->file_roots, f.path);
        free(f.path);
        free(f.real);
        if (r < 0) {
            err_set(err, r, "internal", NULL, "out of memory");
            point_at(err, "file_roots", i, "");
            return r;
        }
    }
    return 0;
}

static int apply_name(struct session *s, const struct session_spec *spec, struct err *err)
{
    const char *name = spec->name ? spec->name : path_last(s->folders[0].path);
    if (strlen(name) > NAME_BYTES)
        return err_member(err, -EINVAL, "body_invalid", "/name", "at most %d bytes", NAME_BYTES);
    /* A folder's name may be any bytes; a label is text. */
    s->name = utf8_is_valid(name, strlen(name)) ? strdup(name) : strdup("session");
    return s->name ? 0 : no_memory(err);
}

int spec_apply_machine(struct session *s, const struct session_spec *spec, struct err *err)
{
    return apply_tier(s, spec, err);
}

int spec_apply(struct session *s, const struct session_spec *spec, struct err *err)
{
    int r = apply_tier(s, spec, err);
    if (r == 0)
        r = apply_folders(s, spec, err);
    if (r == 0)
        r = apply_cwd(s, spec, err);
    if (r == 0)
        r = apply_env(s, spec, err);
    if (r == 0)
        r = apply_sites(s, spec, err);
    if (r == 0)
        r = apply_publish(s, spec, err);
    if (r == 0)
        r = apply_roots(s, spec, err);
    if (r == 0)
        r = apply_name(s, spec, err);
    if (r == 0 && spec->agent)
        s->agent = json_incref(spec->agent);
    return r;
}

static uint64_t limit(const struct session *s, const char *key)
{
    int64_t v = settings_int(s->ss->deps.settings, key);
    return v > 0 ? (uint64_t)v : 0;
}

/* Provider direct keeps the tier it was asked for in its record, but what holds is `open`: the
 * caller's environment, no view, no lock-down. */
int session_policy_make(const struct session *s, const struct shape *shape, struct policy *ret,
                        struct err *err)
{
    bool direct = s->provider == PROVIDER_DIRECT;
    struct policy_input in = {
        .tier = direct ? TIER_OPEN : shape->tier,
        .network = direct ? NET_OPEN : shape->network,
        .folders = shape->folders,
        .n_folders = shape->n_folders,
        .cwd = s->cwd,
        .private_dir = s->private_dir,
        .caller_env = s->caller_env,
        .session_env = s->env,
        .limits = {.processes = limit(s, "limits.processes"),
                   .open_files = limit(s, "limits.open_files"),
                   .memory_bytes = limit(s, "limits.memory_bytes"),
                   .output_bytes = limit(s, "limits.output_bytes"),
                   .cpu_percent = limit(s, "limits.cpu_percent")},
        .door_port = SESSION_DOOR_PORT,
    };
    int r = machine_look_etc(s->ss->deps.machine);
    if (r < 0)
        return err_set(err, r, "session_refused",
                       "make what is in it readable for all, or run Cordon as an ordinary user",
                       "what is to be hidden of /etc: %s", strerror(-r));
    return policy_compile(&in, s->ss->deps.machine, ret, err);
}
