/* Runs in: any. Reads: trusted. May block: no. */
#include "policy/pathset.h"
#include "base/mem.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* '/' sorts before every other byte, so that a folder is followed by all that is below it. */
static int path_order(const char *a, size_t na, const char *b, size_t nb)
{
    for (size_t i = 0; i < na && i < nb; i++) {
        unsigned char x = (unsigned char)a[i], y = (unsigned char)b[i];
        if (x == y)
            continue;
        if (x == '/' || y == '/')
            return x == '/' ? -1 : 1;
        return x < y ? -1 : 1;
    }
    return na == nb ? 0 : na < nb ? -1 : 1;
}

static size_t trimmed_len(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    return n;
}

/* Index of the first entry that does not sort before PATH. */
static size_t lower_bound(const struct pathset *s, const char *path, size_t n, bool *ret_equal)
{
    size_t lo = 0, hi = s->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const char *item = s->items[mid].path;
        if (path_order(item, strlen(item), path, n) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    *ret_equal =
        lo < s->n && path_order(s->items[lo].path, strlen(s->items[lo].path), path, n) == 0;
    return lo;
}

static int kind_rank(enum path_kind kind)
{
    switch (kind) {
    case PATH_PROTECTED:
        return 3;
    case PATH_FOLDER:
        return 2;
    case PATH_PRIVATE:
        return 1;
    case PATH_SYSTEM:
    case PATH_TOOLCHAIN:
    case PATH_CONFIG:
        return 0;
    }
    return 3;
}

/* Whatever the order of adding: the stronger kind decides, among equals the narrower access. */
static void entry_merge(struct path_entry *e, enum path_access access, enum path_kind kind)
{
    if (kind_rank(kind) > kind_rank(e->kind)) {
        e->kind = kind;
        e->access = access;
    } else if (kind_rank(kind) == kind_rank(e->kind) && access < e->access) {
        e->kind = kind;
        e->access = access;
    }
}

int pathset_add(struct pathset *s, const char *path, enum path_access access, enum path_kind kind)
{
    if (!path || path[0] != '/')
        return -EINVAL;
    size_t n = trimmed_len(path);
    bool equal;
    size_t at = lower_bound(s, path, n, &equal);
    if (equal) {
        entry_merge(&s->items[at], access, kind);
        return 0;
    }
    if (s->n >= PATHSET_MAX)
        return -E2BIG;
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 16;
        struct path_entry *grown = realloc(s->items, cap * sizeof *grown);
        if (!grown)
            return -ENOMEM;
        s->items = grown;
        s->cap = cap;
    }
    char *copy = strndup(path, n);
    if (!copy)
        return -ENOMEM;
    memmove(&s->items[at + 1], &s->items[at], (s->n - at) * sizeof *s->items);
    s->items[at] = (struct path_entry){.path = copy, .access = access, .kind = kind};
    s->n++;
    return 0;
}

/* Length of the parent of the N bytes at PATH; 0 when PATH is "/". */
static size_t parent_len(const char *path, size_t n)
{
    if (n <= 1)
        return 0;
    while (n > 0 && path[n - 1] != '/')
        n--;
    return n > 1 ? n - 1 : 1;
}

enum path_access pathset_match(const struct pathset *s, const char *path,
                               const struct path_entry **why)
{
    const struct path_entry *found = NULL;
    if (path && path[0] == '/') {
        for (size_t n = trimmed_len(path); n > 0; n = parent_len(path, n)) {
            bool equal;
            size_t at = lower_bound(s, path, n, &equal);
            if (!equal)
                continue;
            const struct path_entry *e = &s->items[at];
            if (e->kind == PATH_PROTECTED || !found)
                found = e;
        }
    }
    if (why)
        *why = found;
    return found ? found->access : PATH_DENY;
}

void pathset_done(struct pathset *s)
{
    for (size_t i = 0; i < s->n; i++)
        free(s->items[i].path);
    free(s->items);
    *s = (struct pathset){0};
}
