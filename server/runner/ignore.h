/* What .gitignore and .ignore files leave out (gitignore(5)): rules of a folder hold for all below
 * it, later ones and deeper ones win, "!" takes back. */
#pragma once
#include "base/str.h"
#include <stdbool.h>

#define IGNORE_RULES_MAX 20000 /* in force at a time; further ones are not read */

struct ignore_rule {
    char *pattern;
    size_t n_base; /* bytes of the path of the folder whose file it stood in, with its slash */
    bool is_taken_back, is_for_folders, is_anchored;
};
struct ignore {
    struct ignore_rule *rules;
    size_t n, cap;
};
/* Reads the ignore files in the folder FD whose path is PATH. Returns how many rules there were
 * before: hand that to ignore_forget when the folder is left. */
size_t ignore_read(struct ignore *ig, int fd, const char *path);
void ignore_forget(struct ignore *ig, size_t n_before);
/* PATH begins as those given to ignore_read did. Folders above it are not looked at: the walker
 * does not enter what is left out. */
bool ignore_has(const struct ignore *ig, const char *path, bool is_folder);
void ignore_done(struct ignore *ig);

/* The rules in one file's text; exposed for tests. */
void ignore_parse(struct ignore *ig, const char *path, const char *text, size_t n);
