/* Reading a folder and all below it: in the order of names, no link followed, bounded in depth and
 * time, never into /proc and its kind. */
#pragma once
#include "base/str.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#define WALK_DEPTH_MAX 128
#define WALK_NAMES_MAX ((size_t)1 << 20) /* in one folder */

/* The names in the folder FD (borrowed, any position), sorted as bytes. -E2BIG. */
int walk_names(int fd, struct strv *ret);

struct walk {
    uint64_t deadline;   /* clock_now_ms; 0 = none */
    bool is_out_of_time; /* set when the deadline stopped it */
    void *arg;
    /* The folder PATH was opened: false passes over it. NULL = every one. */
    bool (*enter)(struct walk *w, int fd, const char *path);
    void (*leave)(struct walk *w, const char *path); /* for each that was entered; or NULL */
    /* An entry that is no folder, or (with IS_FOLDER) one before it is entered. 1 stops the walk,
     * negative fails it. */
    int (*entry)(struct walk *w, int dir, const char *name, const char *path, bool is_folder);
};
/* FD is borrowed. PATH is what paths in callbacks begin with ("" = they are relative). What cannot
 * be read is passed over. */
int walk_tree(struct walk *w, int fd, const char *path);
