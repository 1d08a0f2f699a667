/* Path sets: lines "<access><kind>/path"; then each path must match as a plain search over all
 * entries says, and the order of adding must not matter. */
#include "policy/pathset.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LINES = 24 };
struct line {
    char *path;
    enum path_access access;
    enum path_kind kind;
};

static size_t lines_split(char *text, struct line *lines)
{
    size_t n = 0;
    for (char *save = NULL, *l = strtok_r(text, "\n", &save); l && n < LINES;
         l = strtok_r(NULL, "\n", &save)) {
        if (strlen(l) < 3)
            continue;
        lines[n++] = (struct line){.path = l + 2,
                                   .access = (enum path_access)((unsigned char)l[0] % 3),
                                   .kind = (enum path_kind)((unsigned char)l[1] % 6)};
    }
    return n;
}

static int is_above(const char *path, const char *entry)
{
    size_t n = strlen(entry), m = strlen(path);
    while (m > 1 && path[m - 1] == '/')
        m--;
    return n <= m && strncmp(path, entry, n) == 0 &&
           (n == m || path[n] == '/' || strcmp(entry, "/") == 0);
}

/* The same rule, without sorting or searching. */
static enum path_access plain_match(const struct pathset *s, const char *path)
{
    const struct path_entry *best = NULL;
    for (size_t i = 0; i < s->n; i++) {
        const struct path_entry *e = &s->items[i];
        if (!is_above(path, e->path))
            continue;
        if (e->kind == PATH_PROTECTED && (!best || best->kind != PATH_PROTECTED))
            best = e;
        else if (e->kind != PATH_PROTECTED && (!best || best->kind != PATH_PROTECTED) &&
                 (!best || strlen(e->path) > strlen(best->path)))
            best = e;
    }
    return best ? best->access : PATH_DENY;
}

/* Protected places deny, as every caller adds them. */
static int line_add(struct pathset *s, const struct line *l)
{
    enum path_access access = l->kind == PATH_PROTECTED ? PATH_DENY : l->access;
    return pathset_add(s, l->path, access, l->kind);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct line lines[LINES];
    struct pathset up = {0}, down = {0};
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    size_t n = lines_split(text, lines);
    for (size_t i = 0; i < n; i++) {
        int a = line_add(&up, &lines[i]);
        int b = line_add(&down, &lines[n - 1 - i]);
        if ((a < 0) != (lines[i].path[0] != '/') || (b < 0) != (lines[n - 1 - i].path[0] != '/'))
            abort();
    }
    if (up.n != down.n)
        abort();
    for (size_t i = 0; i < n; i++) {
        if (lines[i].path[0] != '/')
            continue;
        enum path_access access = pathset_match(&up, lines[i].path, NULL);
        if (access != pathset_match(&down, lines[i].path, NULL) ||
            access != plain_match(&up, lines[i].path))
            abort();
    }
    pathset_done(&up);
    pathset_done(&down);
    free(text);
    return 0;
}
