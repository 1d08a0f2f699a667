/* Read, write and deny by path; the most specific entry wins, whatever the order of adding, and
 * protected places always win over grants, also over grants below them. Paths canonical and
 * resolved, with or without a trailing slash. The same path twice: a protected place wins over a
 * folder, a folder over the private places, these over system, toolchain and settings; of equals
 * the narrower access stays.
 *
 *     struct pathset s = {0};
 *     pathset_add(&s, "/w", PATH_WRITE, PATH_FOLDER);
 *     pathset_add(&s, "/w/keep/", PATH_READ, PATH_FOLDER);
 *     pathset_match(&s, "/w/keep/file", NULL) == PATH_READ
 *     pathset_done(&s); */
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum path_access { PATH_DENY = 0, PATH_READ, PATH_WRITE };
enum path_kind {
    PATH_SYSTEM = 0,
    PATH_FOLDER,
    PATH_PRIVATE,
    PATH_TOOLCHAIN,
    PATH_PROTECTED,
    PATH_CONFIG
};
struct path_entry {
    char *path;
    enum path_access access;
    enum path_kind kind;
};
struct pathset {
    struct path_entry *items; /* sorted by path, parents before children */
    size_t n, cap;
};
#define PATHSET_MAX 1024
/* -EINVAL when PATH is not absolute, -E2BIG, -ENOMEM. */
int pathset_add(struct pathset *s, const char *path, enum path_access access, enum path_kind kind);
/* The access of PATH; *why (may be NULL) is the entry that decided, NULL for none: PATH_DENY. */
enum path_access pathset_match(const struct pathset *s, const char *path,
                               const struct path_entry **why);
void pathset_done(struct pathset *s);
