/* Runs in: runner (a worker of one call). Reads: hostile. May block: files. */
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include "runner/call.h"
#include "runner/pattern.h"
#include "runner/search.h"
#include "runner/walk.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define ENTRIES_MAX   ((uint64_t)10000)
#define ENTRIES       ((uint64_t)1000)  /* when the request names no number */
#define ENTRIES_BYTES ((size_t)3 << 19) /* leaves room in a frame */
#define GLOB_MS       10000

/* A list that ends at a number of entries or bytes. */
struct entries {
    struct pack out;
    uint32_t n;
    uint64_t max;
    bool has_more;
};

/* 1 when it is full. */
static int put_entry(struct entries *e, int dir, const char *name, const char *path, bool writable)
{
    struct stat st;
    struct tool_stat out;
    if (e->n >= e->max || e->out.out.len >= ENTRIES_BYTES) {
        e->has_more = true;
        return 1;
    }
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0; /* gone */
    place_describe(dir, name, &st, writable, &out);
    pack_bytes(&e->out, path, strlen(path));
    tool_put_stat(&e->out, &out);
    e->n++;
    return e->out.r;
}

static int put_entries(struct call *c, struct entries *e)
{
    pack_u32(&c->fields, e->n);
    if (c->fields.r == 0)
        c->fields.r = str_add(&c->fields.out, str_c(&e->out.out), e->out.out.len);
    pack_u8(&c->fields, e->has_more);
    return e->out.r < 0 ? e->out.r : c->fields.r;
}

static uint64_t entries_wanted(const struct call *c)
{
    return c->rq.n == 0 ? ENTRIES : c->rq.n > ENTRIES_MAX ? ENTRIES_MAX : c->rq.n;
}

int call_list(struct call *c)
{
    CLEANUP(place_done) struct place p = {.dir = -1};
    CLEANUP(strv_done) struct strv names = {0};
    struct entries e = {.max = entries_wanted(c)};
    int r = call_open(c, c->rq.path, true, &p);
    if (r < 0)
        return r;
    CLEANUP(fd_done) int dir = place_open_entry(&p, O_RDONLY | O_DIRECTORY);
    if (dir < 0)
        return dir;
    r = walk_names(dir, &names);
    for (uint64_t i = c->rq.m; r == 0 && i < names.n; i++) {
        CLEANUP(freep) char *path = NULL;
        r = path_join(c->rq.path, names.items[i], &path);
        if (r == 0)
            r = put_entry(&e, dir, names.items[i], path, p.is_writable);
    }
    if (r >= 0)
        r = put_entries(c, &e);
    pack_done(&e.out);
    return r;
}

/* ---- Patterns -------------------------------------------------------------------------------- */

struct globbing {
    struct call *c;
    struct strv patterns;
    struct entries entries;
    bool is_writable;
};

static bool glob_enter(struct walk *w, int fd, const char *path)
{
    struct globbing *g = w->arg;
    (void)fd;
    for (size_t i = 0; i < g->patterns.n; i++) {
        const char *pattern = g->patterns.items[i];
        /* git's own files only when they are meant */
        bool is_git = strcmp(path_last(path), ".git") == 0 && !strstr(pattern, ".git");
        if (!is_git && (path[0] == '\0' || pattern_may_lead(pattern, path)))
            return true;
    }
    return false;
}

static int glob_entry(struct walk *w, int dir, const char *name, const char *path, bool is_folder)
{
    struct globbing *g = w->arg;
    (void)is_folder;
    for (size_t i = 0; i < g->patterns.n; i++) {
        if (!pattern_match(g->patterns.items[i], path))
            continue;
        CLEANUP(freep) char *full = NULL;
        int r = path_join(g->c->rq.path, path, &full);
        return r < 0 ? r : put_entry(&g->entries, dir, name, full, g->is_writable);
    }
    return 0;
}

/* Absolute patterns lie below the folder or match nothing. */
static const char *relative_pattern(const char *pattern, const char *dir)
{
    size_t n = strlen(dir);
    if (pattern[0] != '/')
        return str_starts(pattern, "./") ? pattern + 2 : pattern;
    if (n == 1)
        return pattern + 1;
    return str_starts(pattern, dir) && pattern[n] == '/' ? pattern + n + 1 : NULL;
}

static int glob_walk(struct call *c, struct globbing *g, const char *pattern)
{
    CLEANUP(place_done) struct place p = {.dir = -1};
    int r = call_open(c, c->rq.path, true, &p);
    if (r < 0)
        return r;
    CLEANUP(fd_done) int dir = place_open_entry(&p, O_RDONLY | O_DIRECTORY);
    if (dir < 0)
        return dir;
    r = pattern_expand(pattern, &g->patterns);
    if (r < 0)
        return call_refuse(c, -EINVAL, TOOL_LAYER_NONE, "the pattern has more than %d alternatives",
                           PATTERN_ALTERNATIVES_MAX);
    g->is_writable = p.is_writable;
    struct walk w = {
        .deadline = clock_now_ms() + GLOB_MS, .arg = g, .enter = glob_enter, .entry = glob_entry};
    r = walk_tree(&w, dir, "");
    g->entries.has_more |= w.is_out_of_time;
    return r < 0 ? r : put_entries(c, &g->entries);
}

int call_glob(struct call *c)
{
    if (c->rq.text_len == 0 || strlen(c->rq.text) != c->rq.text_len)
        return call_refuse(c, -EINVAL, TOOL_LAYER_NONE, "the pattern is empty or holds a NUL");
    const char *pattern = relative_pattern(c->rq.text, c->rq.path);
    if (!pattern)
        return call_refuse(c, -EINVAL, TOOL_LAYER_NONE, "the pattern is not below the folder");
    struct globbing g = {.c = c, .entries.max = entries_wanted(c)};
    int r = glob_walk(c, &g, pattern);
    strv_done(&g.patterns);
    pack_done(&g.entries.out);
    return r;
}

int call_search(struct call *c)
{
    CLEANUP(place_done) struct place p = {.dir = -1};
    CLEANUP(str_done) struct str why = {0};
    struct search_result found = {0};
    int r = call_open(c, c->rq.path, true, &p);
    if (r < 0)
        return r;
    struct search s = {.dir = p.dir,
                       .name = p.name,
                       .resolved = p.path,
                       .spelled = c->rq.path,
                       .pattern = c->rq.text,
                       .pattern_len = c->rq.text_len,
                       .is_regex = (c->rq.flags & TOOL_REGEX) != 0,
                       .hits_max = c->rq.n,
                       .ms = c->rq.m};
    r = search_run(&s, &found, &why);
    if (r < 0 && why.len > 0)
        r = call_refuse(c, r, TOOL_LAYER_NONE, "%s", why.data);
    pack_u32(&c->fields, found.n);
    if (c->fields.r == 0)
        c->fields.r = str_add(&c->fields.out, str_c(&found.hits), found.hits.len);
    pack_u8(&c->fields, found.has_more);
    pack_u8(&c->fields, found.is_timed_out);
    str_done(&found.hits);
    return r;
}
