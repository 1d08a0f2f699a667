/* Writing a whole file so that a reader sees the old bytes or the new ones and nothing between,
 * also when the writer is killed: temporary file in the same folder, fsync, rename.
 *
 * The temporary file is named ".cordon-<random>.tmp" and locked (flock(2)) while its writer lives;
 * one that nobody holds is the leftover of a kill and goes away with the next write in its folder.
 */
#pragma once
#include "runner/place.h"
#include <stdbool.h>

struct replacing {
    const struct place *place;
    int (*fill)(int fd, void *arg); /* writes the content at the descriptor's position */
    void *arg;
    bool must_be_new;         /* -EEXIST when there is something */
    const struct stat *known; /* the file as the caller read it, or NULL: -ESTALE when it changed */
    mode_t mode;              /* exactly */
};
/* A single file that was granted without its folder (place->is_root) is written in place, as no
 * name can be made beside it: the one case that is not atomic. */
int replace_file(const struct replacing *rp);
