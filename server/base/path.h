/* Absolute paths as text, and opening below a folder without following links.
 * Canonical: absolute, no empty, "." or ".." component, no trailing slash but for "/" itself. Only
 * whole components count ("a..b" and "..." are names). PATH_MAX bytes at most, no NUL. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Text only: folds "//", "." and ".." of an absolute PATH; -EINVAL when relative or empty,
 * -ENAMETOOLONG. *ret is malloc'ed. */
int path_canonical(const char *path, char **ret);
bool path_is_canonical(const char *path);
int path_join(const char *dir, const char *name, char **ret); /* canonical; NAME may be absolute */
bool path_is_under(const char *path, const char *dir);        /* equal counts; both canonical */
const char *path_last(const char *path);                      /* last component, "/" for "/" */
/* realpath(3): every link resolved; must exist. */
int path_resolve(const char *path, char **ret);
/* openat2(2) below AT: RESOLVE_BENEATH, and no link anywhere when !FOLLOW. With AT_FDCWD the path
 * is absolute and not confined. Returns a descriptor; -ELOOP for a link, -EXDEV for leaving. */
int path_open_beneath(int at, const char *path, int flags, mode_t mode, bool follow);
/* Removes PATH below AT with everything in it: never follows a link, never crosses a mount. */
int path_remove_tree(int at, const char *path);
/* mkdir -p below AT, MODE for each made; no link is followed. */
int path_make_dirs(int at, const char *path, mode_t mode);
