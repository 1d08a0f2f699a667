/* Runs in: daemon. Reads: trusted. May block: no.
 * policy_to_json of policy/policy.h. */
#include "base/mem.h"
#include "policy/policy.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static int text_add(json_t *array, const char *text)
{
    struct str escaped = {0};
    int r = 0;
    json_t *s = json_string(text);
    if (!s) { /* not UTF-8 */
        r = str_put_escaped(&escaped, text, strlen(text));
        s = r < 0 ? NULL : json_string(str_c(&escaped));
    }
    str_done(&escaped);
    return s && json_array_append_new(array, s) == 0 ? 0 : -ENOMEM;
}

static int paths_add(json_t *array, const struct pathset *s, enum path_access at_least)
{
    int r = 0;
    for (size_t i = 0; i < s->n && r >= 0; i++)
        if (s->items[i].access >= at_least && s->items[i].access != PATH_DENY)
            r = text_add(array, s->items[i].path);
    return r;
}

static int protected_add(json_t *array, const struct policy *p, const struct machine *m)
{
    int r = 0;
    for (size_t i = 0; i < m->protected_dirs.n && r >= 0; i++)
        r = text_add(array, m->protected_dirs.items[i]);
    for (size_t i = 0; i < p->paths.n && r >= 0; i++)
        if (p->paths.items[i].kind == PATH_PROTECTED)
            r = text_add(array, p->paths.items[i].path);
    return r;
}

static int sites_add(json_t *array, const struct hostset *hosts)
{
    int r = 0;
    for (size_t i = 0; i < hostset_count(hosts) && r >= 0; i++)
        if (hostset_at(hosts, i)->rule.source != SITE_PROOF)
            r = text_add(array, hostset_at(hosts, i)->text);
    return r;
}

static json_t *enforced_by(const struct policy *p, const struct machine *m, enum provider provider)
{
    if (policy_level(provider, p->tier, p->network) == LEVEL_NONE)
        return json_string("nothing: commands run with your full permissions");
    if (provider == PROVIDER_SEATBELT)
        return json_string("seatbelt");
    if (m->landlock_abi > 0)
        return json_sprintf("bubblewrap (namespaces, mounts), seccomp, Landlock ABI %d",
                            m->landlock_abi);
    return json_string("bubblewrap (namespaces, mounts), seccomp; this kernel has no Landlock");
}

json_t *policy_to_json(const struct policy *p, const struct machine *m, enum provider provider,
                       const struct hostset *hosts)
{
    bool is_open = p->tier == TIER_OPEN;
    json_t *readable = json_array(), *writable = json_array();
    json_t *protected_places = json_array(), *sites = json_array();
    bool ok = readable && writable && protected_places && sites &&
              paths_add(readable, &p->paths, PATH_READ) >= 0 &&
              paths_add(writable, &p->paths, PATH_WRITE) >= 0 &&
              (is_open || protected_add(protected_places, p, m) >= 0) &&
              sites_add(sites, hosts) >= 0;
    if (ok && is_open) {
        json_decref(writable);
        writable = json_string("unrestricted");
    }
    if (ok)
        return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o}", "mode", TIER_NAMES[p->tier], "readable",
                         readable, "writable", writable, "protected", protected_places, "sites",
                         sites, "enforced_by", enforced_by(p, m, provider));
    json_decref(readable);
    json_decref(writable);
    json_decref(protected_places);
    json_decref(sites);
    return NULL;
}
