/* Runs in: daemon. Reads: trusted names, hostile links. May block: on the file system. */
#include "sandbox/places.h"
#include "base/mem.h"
#include "base/path.h"
#include "policy/catalog.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static int add(struct places *p, const char *path, const char *name)
{
    if (p->n == p->cap) {
        size_t cap = p->cap ? 2 * p->cap : 64;
        struct place *grown = realloc(p->items, cap * sizeof *grown);
        if (!grown)
            return -ENOMEM;
        p->items = grown;
        p->cap = cap;
    }
    struct place *it = &p->items[p->n];
    struct stat st;
    *it = (struct place){.path = strdup(path), .name = strdup(name)};
    if (stat(path, &st) == 0) {
        it->is_there = true;
        it->dev = st.st_dev;
        it->ino = st.st_ino;
    }
    if (!it->path || !it->name) {
        free(it->path);
        free(it->name);
        return -ENOMEM;
    }
    p->n++;
    return 0;
}

/* NAME itself, and where it leads: all links resolved, and the link's own place when only its last
 * component is one that leads nowhere yet. */
static int add_with_target(struct places *p, const char *name)
{
    CLEANUP(freep) char *real = NULL;
    if (!name || name[0] != '/')
        return 0;
    int r = add(p, name, name);
    if (r >= 0 && p->items[p->n - 1].is_there && path_resolve(name, &real) >= 0 &&
        strcmp(real, name) != 0 && strcmp(real, "/") != 0)
        r = add(p, real, name);
    return r;
}

static int add_home(struct places *p, const char *home)
{
    static const char *const OWN[] = {".config/cordon", ".local/state/cordon", ".cache/cordon",
                                      ".local/share/cordon"};
    size_t n;
    const char *const *credentials = catalog_credential_places(&n);
    int r = 0;
    for (size_t i = 0; i < n + ARRAY_LEN(OWN) && r >= 0; i++) {
        CLEANUP(freep) char *path = NULL;
        r = path_join(home, i < n ? credentials[i] : OWN[i - n], &path);
        if (r >= 0)
            r = add_with_target(p, path);
    }
    return r;
}

int places_look(const struct machine *m, struct places *ret)
{
    struct places p = {0};
    const char *const own[] = {m->state_dir, m->config_dir, m->cache_dir, m->run_dir,
                               m->programs_dir};
    int r = 0;
    for (size_t i = 0; i < ARRAY_LEN(own) && r >= 0; i++)
        r = add_with_target(&p, own[i]);
    if (r >= 0 && m->home)
        r = add_home(&p, m->home);
    for (size_t i = 0; i < m->home_links.n && r >= 0; i++)
        r = add_home(&p, m->home_links.items[i]);
    if (r < 0) {
        places_done(&p);
        return r;
    }
    *ret = p;
    return 0;
}

const struct place *places_match(const struct places *p, const char *path)
{
    struct stat st;
    bool is_there = stat(path, &st) == 0;
    for (size_t i = 0; i < p->n; i++) {
        const struct place *place = &p->items[i];
        bool is_same = is_there && place->is_there && st.st_dev == place->dev &&
                       st.st_ino == place->ino; /* perhaps by another mount */
        if (path_is_under(path, place->path) || path_is_under(place->path, path) || is_same)
            return place;
    }
    return NULL;
}

void places_done(struct places *p)
{
    for (size_t i = 0; i < p->n; i++) {
        free(p->items[i].path);
        free(p->items[i].name);
    }
    free(p->items);
    *p = (struct places){0};
}
