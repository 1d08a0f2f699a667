/* Runs in: daemon. Reads: trusted (names and numbers of folders). May block: briefly (lstat). */
#include "session/nested.h"
#include "base/mem.h"
#include "base/path.h"
#include "sandbox/machine.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct nested_watch {
    struct nested_watch *next;
    uv_fs_event_t event;
    struct nested *owner;
    char *path; /* the folder that holds the nested one */
};

static bool is_nested(const struct policy_folder *folders, size_t n, size_t at)
{
    for (size_t i = 0; i < n; i++)
        if (i != at && path_is_under(folders[at].real, folders[i].real) &&
            strcmp(folders[at].real, folders[i].real) != 0)
            return true;
    return false;
}

/* 1 = as F says, 0 = another folder, -ENOENT = nothing, -ENOTDIR = no folder. */
static int compare(const struct policy_folder *f, struct stat *st)
{
    if (lstat(f->real, st) < 0)
        return -ENOENT;
    if (!S_ISDIR(st->st_mode))
        return -ENOTDIR;
    return !f->missing && st->st_dev == f->dev && st->st_ino == f->ino &&
           path_born_ns(f->real) == f->born_ns;
}

bool nested_is_replaced(const struct policy *p)
{
    struct stat st;
    for (size_t i = 0; i < p->n_folders; i++)
        if (is_nested(p->folders, p->n_folders, i) && compare(&p->folders[i], &st) != 1)
            return true;
    return false;
}

int nested_look(struct policy_folder *folders, size_t n)
{
    int worst = 0;
    for (size_t i = 0; i < n; i++) {
        struct stat st;
        if (!is_nested(folders, n, i))
            continue;
        int r = compare(&folders[i], &st);
        folders[i].missing = r == -ENOENT;
        if (r == -ENOENT)
            worst = r;
        if (r < 0)
            continue;
        folders[i].dev = st.st_dev;
        folders[i].ino = st.st_ino;
        folders[i].born_ns = path_born_ns(folders[i].real);
    }
    return worst;
}

/* ---- The watch --------------------------------------------------------------------------------
 */

static void on_event(uv_fs_event_t *event, const char *name, int events, int status);

static void rest_over(struct deadline *d)
{
    struct nested *n = container_of(d, struct nested, clock);
    for (struct nested_watch *w = n->watches; w; w = w->next)
        if (!uv_is_active((uv_handle_t *)&w->event))
            (void)uv_fs_event_start(&w->event, on_event, w->path, 0);
    n->touched(n); /* what happened meanwhile */
}

static void on_event(uv_fs_event_t *event, const char *name, int events, int status)
{
    struct nested_watch *w = container_of(event, struct nested_watch, event);
    (void)name;
    (void)events;
    (void)status;
    (void)uv_fs_event_stop(event);
    deadline_set(&w->owner->clock, NESTED_REST_MS);
    w->owner->touched(w->owner); /* may free W, later */
}

static void watch_closed(uv_handle_t *handle)
{
    struct nested_watch *w =
        container_of((uv_fs_event_t *)(void *)handle, struct nested_watch, event);
    free(w->path);
    free(w);
}

static bool has_watch(const struct nested *n, const char *path)
{
    for (const struct nested_watch *w = n->watches; w; w = w->next)
        if (strcmp(w->path, path) == 0)
            return true;
    return false;
}

/* One that cannot be had is done without: the look before each start is what counts. */
static void add_watch(struct nested *n, const char *real)
{
    CLEANUP(freep) char *parent = NULL;
    if (path_join(real, "..", &parent) < 0 || has_watch(n, parent))
        return;
    struct nested_watch *w = calloc(1, sizeof *w);
    if (!w)
        return;
    w->owner = n;
    w->path = TAKE(parent);
    (void)uv_fs_event_init(n->clock.timer.loop, &w->event);
    (void)uv_fs_event_start(&w->event, on_event, w->path, 0);
    w->next = n->watches;
    n->watches = w;
}

void nested_init(struct nested *n, uv_loop_t *loop, struct closing *owner,
                 void (*touched)(struct nested *n))
{
    *n = (struct nested){.touched = touched};
    deadline_init(loop, &n->clock, owner, rest_over);
}

void nested_stop(struct nested *n)
{
    deadline_clear(&n->clock);
    while (n->watches) {
        struct nested_watch *w = n->watches;
        n->watches = w->next;
        uv_close((uv_handle_t *)&w->event, watch_closed);
    }
}

void nested_watch(struct nested *n, const struct policy *p)
{
    nested_stop(n);
    for (size_t i = 0; i < p->n_folders; i++)
        if (is_nested(p->folders, p->n_folders, i))
            add_watch(n, p->folders[i].real);
}
