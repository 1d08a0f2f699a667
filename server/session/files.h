/* The file tools, through the session's runner: the wall decides. Asynchronous. */
#pragma once
#include "session/session.h"
#include "wire/tool.h"

struct file_call {
    enum tool_op op;
    unsigned flags; /* TOOL_* */
    const char *path, *path2, *text, *text2;
    uint64_t n, m;
    int take_fd; /* content of a write, or -1 */
};
struct file_answer {
    int r;          /* 0 or negative errno of the tool */
    struct err err; /* outside_session, folder_read_only, access_denied, edit_mismatch, not_found,
                     * exists, rev_mismatch, path_invalid … when r < 0 */
    json_t *json;   /* what the answer holds: entry, items …; borrowed by the callback */
    struct tool_stat stat;
    int fd; /* READ: the file, taken by the callback when it sets this to -1 */
    bool created;
};
typedef void file_done_fn(struct file_answer *a, void *arg);
/* DONE is called exactly once, later, unless this returns negative. Audited. Relative paths are
 * joined to the session's cwd. */
int session_file_call(struct session *s, const struct file_call *call, const struct actor *actor,
                      file_done_fn *done, void *arg, struct err *err);
