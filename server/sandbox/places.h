/* The places of this machine that no grant may be in or around: Cordon's own folders, its programs,
 * and the credential places of the catalogue, each by its name and by where links lead today.
 * Private to this room. */
#pragma once
#include "policy/policy.h"
#include <sys/types.h>

struct place {
    char *path; /* canonical */
    char *name; /* what leads there, for a person; may be the same */
    bool is_there;
    dev_t dev;
    ino_t ino;
};
struct places {
    struct place *items;
    size_t n, cap;
};
int places_look(const struct machine *m, struct places *ret);
/* The place that PATH lies in or contains, or NULL. */
const struct place *places_match(const struct places *p, const char *path);
void places_done(struct places *p);
