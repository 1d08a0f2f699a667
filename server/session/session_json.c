/* Runs in: daemon. Reads: trusted. May block: no. */
#include "base/fields.h"
#include "session/parts.h"
#include <string.h>

json_t *session_enforcement(const struct session *s)
{
    enum level level = policy_level(s->provider, s->tier, s->network);
    json_t *out = json_pack("{s:s, s:s, s:s}", "provider", PROVIDER_NAMES[s->provider], "tier",
                            TIER_NAMES[s->tier], "level", LEVEL_NAMES[level]);
    if (out && s->verified_at)
        (void)json_object_set_new(out, "verified_at", time_json(s->verified_at));
    return out;
}

static const char *access_name(enum access a)
{
    return a == ACCESS_RW ? "rw" : "ro";
}

static json_t *folder_json(const struct policy_folder *f)
{
    json_t *out = json_pack("{s:s, s:s, s:b}", "id", f->id, "mode", access_name(f->access),
                            "missing", f->missing ? 1 : 0);
    size_t n = strlen(f->path);
    if (utf8_is_valid(f->path, n)) {
        (void)json_object_set_new(out, "path", json_string(f->path));
        return out;
    }
    CLEANUP(str_done) struct str b64 = {0};
    (void)json_object_set_new(out, "path", json_null());
    if (str_put_base64(&b64, f->path, n) == 0)
        (void)json_object_set_new(out, "path_b64", json_string(str_c(&b64)));
    return out;
}

static json_t *folders_json(const struct session *s)
{
    json_t *out = json_array();
    for (size_t i = 0; i < s->n_folders; i++)
        (void)json_array_append_new(out, folder_json(&s->folders[i]));
    return out;
}

static json_t *sites_json(const struct session *s)
{
    json_t *out = json_array();
    for (const struct own_site *o = s->sites; o; o = o->next) {
        json_t *site = json_pack("{s:s}", "host", o->row.host);
        if (o->row.port)
            (void)json_object_set_new(site, "port", json_integer(o->row.port));
        (void)json_array_insert_new(out, 0, site);
    }
    return out;
}

static json_t *checks_failed(const struct session *s)
{
    json_t *proof = session_proof_json(s);
    json_t *all = json_object_get(proof, "checks"), *out = json_array(), *check;
    size_t i;
    json_array_foreach(all, i, check) if (json_is_false(json_object_get(check, "ok")))(void)
        json_array_append(out, check);
    json_decref(proof);
    return out;
}

static json_t *refused_json(const struct session *s)
{
    return json_pack("{s:s, s:s, s:s, s:o}", "code", s->failure.code, "detail", s->failure.detail,
                     "hint", s->failure.hint, "checks", checks_failed(s));
}

static json_t *text_or_null(const char *text)
{
    return text ? json_string(text) : json_null();
}

/* The names of the variables in order. Their values leave the daemon for the runner only: no record
 * and no answer has them. */
json_t *env_names(const json_t *env)
{
    json_t *out = json_array(), *value;
    const char *name;
    json_object_foreach((json_t *)(uintptr_t)env, name, value)
    {
        size_t i = 0;
        while (i < json_array_size(out) &&
               strcmp(json_string_value(json_array_get(out, i)), name) < 0)
            i++;
        (void)json_array_insert_new(out, i, json_string(name));
    }
    return out;
}

static void put_asked_for(const struct session *s, json_t *out)
{
    json_t *roots = json_array(), *publish = json_array();
    for (size_t i = 0; i < s->n_publish; i++)
        (void)json_array_append_new(publish, json_integer(s->publish[i].port));
    for (size_t i = 0; i < s->file_roots.n; i++)
        (void)json_array_append_new(roots, json_string(s->file_roots.items[i]));
    (void)json_object_set_new(out, "folders", folders_json(s));
    (void)json_object_set_new(out, "sites", sites_json(s));
    (void)json_object_set_new(out, "env", env_names(s->env));
    (void)json_object_set_new(out, "file_roots", roots);
    (void)json_object_set_new(out, "publish", publish);
    (void)json_object_set_new(out, "cwd", text_or_null(s->cwd));
    if (s->agent)
        (void)json_object_set(out, "agent", s->agent);
}

static void put_end(const struct session *s, json_t *out)
{
    if (s->is_refused)
        (void)json_object_set_new(out, "refused", refused_json(s));
    if (s->ended_at)
        (void)json_object_set_new(out, "ended_at", time_json(s->ended_at));
    if (s->ended_at && s->end_reason)
        (void)json_object_set_new(out, "end_reason", json_string(s->end_reason));
}

json_t *session_to_json(const struct session *s)
{
    json_t *out = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:b, s:s, s:b, s:o, s:{s:i, s:I, s:i}, s:O, s:[], "
        "s:o, "
        "s:I}",
        "id", s->id, "name", s->name, "state", SESSION_STATE_NAMES[s->state], "tier",
        TIER_NAMES[s->tier], "network", NET_NAMES[s->network], "approvals",
        APPROVALS_NAMES[s->approvals], "require_wall", s->require_wall ? 1 : 0, "unattended",
        s->unattended ? 1 : 0, "provider", PROVIDER_NAMES[s->provider], "fixed", 0, "enforcement",
        session_enforcement(s), "counts", "running", (int)s->n_running, "blocked",
        (json_int_t)s->n_blocked, "asks", (int)s->asks.n_open, "warnings", s->warnings, "pending",
        "created_at", time_json(s->created_at), "rev", (json_int_t)s->rev);
    if (!out)
        return NULL;
    put_asked_for(s, out);
    put_end(s, out);
    return out;
}

json_t *session_proof_json(const struct session *s)
{
    return json_incref(s->receipt);
}

/* ---- GET S/access: each thing inside, and where it comes from ----------------------------------
 */

static json_t *access_folder(const struct session *s, const struct policy_folder *f)
{
    json_t *out = folder_json(f);
    (void)json_object_set_new(out, "source", json_string("session"));
    (void)json_object_set_new(out, "since", time_json(s->created_at));
    (void)json_object_set_new(out, "by", json_string(ACTOR_NAMES[s->creator.kind]));
    (void)json_object_set_new(out, "removable", json_false());
    return out;
}

static int access_site(const struct site *row, void *arg)
{
    json_t *out = arg;
    if (!row->enabled)
        return 0;
    json_t *site = json_pack("{s:s, s:s, s:s, s:s, s:o, s:s, s:b}", "id", row->id, "host",
                             row->host, "list", SITE_LIST_NAMES[row->list], "source", row->source,
                             "since", time_json(row->created_at), "by", row->created_by,
                             "removable", row->list == SITES_SESSION);
    if (row->port)
        (void)json_object_set_new(site, "port", json_integer(row->port));
    if (row->last_used_at)
        (void)json_object_set_new(site, "last_used_at", time_json(row->last_used_at));
    return json_array_append_new(out, site) < 0 ? 1 : 0;
}

json_t *session_access_json(struct session *s)
{
    json_t *folders = json_array(), *sites = json_array();
    for (size_t i = 0; i < s->n_folders; i++)
        (void)json_array_append_new(folders, access_folder(s, &s->folders[i]));
    (void)sites_each(s->ss->deps.db, SITES_SESSION, s->id, NULL, NULL, NULL, SESSION_SITES,
                     access_site, sites);
    if (s->network == NET_ALLOWLIST)
        (void)sites_each(s->ss->deps.db, SITES_MACHINE, NULL, NULL, NULL, NULL, HOSTSET_MAX,
                         access_site, sites);
    return json_pack("{s:o, s:o, s:[], s:[], s:[]}", "folders", folders, "sites", sites,
                     "credentials", "toolchains", "ports");
}
