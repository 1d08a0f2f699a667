/* Searching the content of files below a folder (tool SEARCH): a literal text or a POSIX extended
 * regular expression (no back references, a repetition counts to 255), line by line. Honours ignore
 * files, skips .git and binary files, follows no link. Bounded: a child of the worker searches, and
 * is killed when a regular expression or a file system does not come back in time; what was found
 * until then is the answer. */
#pragma once
#include "wire/pack.h"
#include <stdbool.h>

#define SEARCH_HITS_MAX  10000
#define SEARCH_HITS      200 /* when the request names no number */
#define SEARCH_MS_MAX    60000
#define SEARCH_MS        10000
#define SEARCH_TEXT_MAX  512                /* bytes of a line in a hit, around the place */
#define SEARCH_BYTES_MAX ((size_t)1 << 20)  /* of all hits together */
#define SEARCH_FILE_MAX  ((size_t)32 << 20) /* the rest of a larger file is not searched */

struct search {
    int dir;              /* folder that holds the entry NAME: a folder or a file */
    const char *name;     /* one component or "." */
    const char *resolved; /* its path without links: where ignore files above are looked for */
    const char *spelled;  /* its path as the client wrote it: what paths of hits begin with */
    const char *pattern;
    size_t pattern_len;
    bool is_regex;
    uint64_t hits_max, ms; /* 0 = the defaults above */
};
struct search_result {
    struct str hits; /* packed as wire/tool says */
    uint32_t n;
    bool has_more, is_timed_out;
};
/* -EINVAL for a pattern that is empty or no regular expression (*ret_why says what is wrong). */
int search_run(const struct search *s, struct search_result *ret, struct str *ret_why);
