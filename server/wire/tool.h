/* The ten file tools as messages (M_TOOL, M_TOOLED). Paths are absolute, as seen inside. The runner
 * does the work, so the wall decides; ROOTS narrows further (the session's folders and file_roots).
 *
 * Request: u32 id, u8 op, u8 flags (TOOL_*), strv roots (path with a "rw:" or "ro:" prefix; empty =
 *   no narrowing), str path, str path2, str text, str text2, u64 n, u64 m; 0 or 1 fd.
 * Answer: u32 id, u32 errno (0 = done), u8 layer (enum tool_layer, why refused), u8 fds (0 or
 *   1: descriptors with this frame), str detail, then, when errno is 0, the fields below.
 *
 * op      path  path2    text     text2  n, m                 fd       answer fields
 * READ    file                                                         tool_stat; fd: the file,
 *                                                                      O_RDONLY
 * WRITE   file           if_match        m: mode for a new    content  tool_stat, u8 created
 * EDIT    file           old      new    flag TOOL_ALL                 tool_stat, u32 replaced
 * LIST    dir                            n: limit, m: offset           u32 count, entries, u8 more
 * GLOB    dir            pattern         n: limit                      u32 count, entries, u8 more
 * SEARCH  dir            pattern         n: limit, m: ms               u32 count, hits, u8 more,
 *                                                                      u8 timed_out
 * STAT    any                                                          tool_stat
 * MOVE    from  to                                                     tool_stat
 * MKDIR   dir                                                          tool_stat
 * REMOVE  any                            flag TOOL_RECURSIVE           -
 *
 * entry: bytes path, tool_stat. hit: bytes path, u64 line, u64 column, bytes text.
 * tool_stat: u8 type ('f' 'd' 'l' 'o'), u64 size, u32 mode, u64 mtime_ns, u64 ino, u8 access ('w'
 * 'r'). READ's descriptor is data from a hostile program: the daemon takes it only when fstat says
 * a regular file, and reads it with pread. */
#pragma once
#include "wire/pack.h"
#include <stdbool.h>

enum tool_op {
    TOOL_NONE = 0,
    TOOL_READ,
    TOOL_WRITE,
    TOOL_EDIT,
    TOOL_LIST,
    TOOL_GLOB,
    TOOL_SEARCH,
    TOOL_STAT,
    TOOL_MOVE,
    TOOL_MKDIR,
    TOOL_REMOVE
};
enum { TOOL_ALL = 1, TOOL_REGEX = 2, TOOL_RECURSIVE = 4, TOOL_IF_NONE_MATCH = 8 };
enum tool_layer { TOOL_LAYER_NONE = 0, TOOL_LAYER_ROOTS, TOOL_LAYER_READ_ONLY, TOOL_LAYER_WALL };

struct tool_stat {
    uint8_t type;
    uint64_t size;
    uint32_t mode;
    uint64_t mtime_ns, ino;
    uint8_t access;
};
void tool_put_stat(struct pack *p, const struct tool_stat *s);
void tool_get_stat(struct unpack *u, struct tool_stat *ret);
/* The entity tag of a file (RFC 9110, 8.8.3), quotes included: ino, size and mtime. */
#define TOOL_ETAG_MAX 64
void tool_etag(const struct tool_stat *s, char ret[static TOOL_ETAG_MAX]);

#define TOOL_ROOTS_MAX 256
#define TOOL_TEXT_MAX  ((size_t)1 << 20) /* each of text and text2 */
struct tool_request {
    uint32_t id;
    uint8_t op, flags;
    struct strv roots;
    char *path, *path2; /* path: canonical; path2: canonical or empty */
    char *text, *text2; /* TEXT_LEN, TEXT2_LEN bytes and a NUL behind them; may hold NULs */
    size_t text_len, text2_len;
    uint64_t n, m;
};
void tool_request_put(struct pack *p, const struct tool_request *rq);
int tool_request_get(struct unpack *u, struct tool_request *ret); /* -EBADMSG; done in any case */
void tool_request_done(struct tool_request *rq);

/* What stands before the fields of an answer. */
struct tool_answer {
    uint32_t id, error; /* errno, 0 = done */
    uint8_t layer, n_fds;
    char *detail;
};
void tool_answer_put(struct pack *p, const struct tool_answer *a);
int tool_answer_get(struct unpack *u, struct tool_answer *ret); /* the fields come next */
void tool_answer_done(struct tool_answer *a);
