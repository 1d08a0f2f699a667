/* The view of a session: a tmpfs to which the order's joins are mounted, by descriptors (openat2,
 * open_tree, mount_setattr, move_mount). No path is looked up twice and no link is followed: a
 * planted link is -ELOOP, a folder that was replaced since it was granted is -ESTALE.
 *
 * Nothing is ever made in a folder of the host: a target that is missing is made only in the view's
 * own tmpfs or in a folder of the session's private folder, else -EROFS.
 *
 *     ROOT (the mount point, in the private folder)
 *       root/   the view; bubblewrap binds it to /
 *       mask/   the layers above /etc, and what covers a name where no layer can be made */
#pragma once
#include "base/err.h"
#include "wire/order.h"
#include <stdbool.h>

struct joins {
    int root, mask;          /* descriptors of the two folders */
    const char *private_dir; /* the folder ROOT lies in; borrowed */
    size_t private_len;      /* of its path */
    const char **sealed;     /* targets of binds from outside the private folder; borrowed paths */
    size_t n_sealed, cap_sealed;
    unsigned n_masks;
};

/* Mounts the tmpfs at ROOT, an empty folder, in the calling process's mount namespace. */
int joins_begin(struct joins *j, const char *root, struct err *err);
/* The joins in their order. Negative errno with ERR: "step: path". */
int joins_run(struct joins *j, const struct join *rows, size_t n, struct err *err);
void joins_done(struct joins *j);

/* Of runner/joins for runner/etc: */
/* Folder that TARGET goes into (a descriptor) and its last name; folders on the way are made. */
int joins_parent(struct joins *j, const char *target, const char **ret_name, struct err *err);
int joins_source(const struct join *row, struct err *err);
/* Is R, of joins_source, an absence that ROW allows? ERR is cleared then. */
bool joins_pass_over(const struct join *row, int r, struct err *err);
/* Clones the mount SOURCE names, recursively, with ATTRIBUTES and nosuid, nodev set. */
int joins_clone(int source, uint64_t attributes);
int joins_attach(int tree, int target);
