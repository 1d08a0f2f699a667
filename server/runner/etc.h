/* /etc in the view: the host's, with names hidden and files of ours in place of some.
 *
 * By an overlay with a layer of our own above the host's folder: whiteouts (device 0:0) and our
 * files stay whatever the host does to the names, and nothing is made on the
 * host. Where the kernel refuses one (something is mounted below the folder; no overlayfs): a
 * read-only bind, with mounts that mask the names that exist. */
#pragma once
#include "base/err.h"
#include "runner/joins.h"

/* ETC is a JOIN_ETC; NAMES are the JOIN_HIDE and JOIN_COVER rows that belong to it. */
int etc_join(struct joins *j, const struct join *etc, const struct join *names, size_t n,
             struct err *err);
