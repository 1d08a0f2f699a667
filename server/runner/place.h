/* A path of a tool request, resolved once and opened without following a link again.
 *
 * The request's roots narrow where it may lead: the path is resolved first (links may lead from one
 * root into another), the result must lie in a root, and its folder is then opened with no link
 * anywhere, so that a name replaced meanwhile is ELOOP and never another place. What the wall does
 * not show cannot be opened whatever the roots say. */
#pragma once
#include "base/str.h"
#include "wire/tool.h"
#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

struct place {
    int dir;                 /* O_PATH, the folder that holds NAME */
    char name[NAME_MAX + 1]; /* one component, "." for "/" */
    char *path;              /* resolved, canonical */
    bool is_writable;        /* the root says so; the wall may still say no */
    bool is_root;            /* it is a root itself */
};
/* FOLLOW: the last component too, when it is a link. What does not exist is no error here.
 * -EACCES with *ret_layer TOOL_LAYER_ROOTS outside of all roots; -ELOOP, -ENOENT (no such folder),
 * -ENOTDIR, -ENAMETOOLONG. */
int place_open(const struct strv *roots, const char *path, bool follow, struct place *ret,
               uint8_t *ret_layer);
/* Is a root that may not be written at or below PLACE? */
bool place_holds_read_only(const struct strv *roots, const struct place *p);
void place_done(struct place *p);

/* fstatat without following; PLACE's own entry. */
int place_stat(const struct place *p, struct stat *ret);
/* What a client is told of NAME in DIR. */
void place_describe(int dir, const char *name, const struct stat *st, bool is_writable,
                    struct tool_stat *ret);
/* Opens the entry itself: -ELOOP for a link. */
int place_open_entry(const struct place *p, int flags);
