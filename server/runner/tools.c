/* Runs in: runner (a worker of one call). Reads: hostile. May block: files. */
#include "runner/tools.h"
#include "base/fd.h"
#include "base/kernel.h"
#include "base/mem.h"
#include "base/path.h"
#include "runner/answer.h"
#include "runner/call.h"
#include "runner/replace.h"
#include "wire/msg.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NEW_DIR_MODE 0755

static int tool_read(struct call *c)
{
    CLEANUP(place_done) struct place p = {.dir = -1};
    struct stat st;
    int r = call_open(c, c->rq.path, true, &p);
    if (r < 0)
        return r;
    c->fd = call_open_regular(c, &p, O_RDONLY, &st);
    return c->fd < 0 ? c->fd : call_put_stat(c, &p);
}

static int tool_stat_call(struct call *c)
{
    CLEANUP(place_done) struct place p = {.dir = -1};
    int r = call_open(c, c->rq.path, false, &p);
    return r < 0 ? r : call_put_stat(c, &p);
}

/* ---- Names ----------------------------------------------------------------------------------- */

/* A rename that replaces nothing, also where the file system does not know how to promise that. */
static int rename_to_new(const struct place *from, const struct place *to)
{
    struct stat st;
    if (kernel_rename_new(from->dir, from->name, to->dir, to->name) == 0)
        return 0;
    if (errno != EINVAL)
        return -errno;
    int r = place_stat(to, &st);
    if (r != -ENOENT)
        return r < 0 ? r : -EEXIST;
    return renameat(from->dir, from->name, to->dir, to->name) < 0 ? -errno : 0;
}

/* Between two mounts (two granted folders): a regular file is written there and removed here. */
static int move_by_copy(struct call *c, const struct place *from, const struct place *to)
{
    struct stat st;
    CLEANUP(fd_done) int fd = place_open_entry(from, O_RDONLY | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return call_refuse(c, -EXDEV, TOOL_LAYER_NONE,
                           "only a file can be moved from one of the session's folders to another");
    struct replacing rp = {.place = to,
                           .fill = call_copy_content,
                           .arg = &fd,
                           .must_be_new = true,
                           .mode = st.st_mode & 0777};
    int r = replace_file(&rp);
    if (r == 0 && unlinkat(from->dir, from->name, 0) < 0)
        r = -errno;
    return r;
}

static int tool_move(struct call *c)
{
    CLEANUP(place_done) struct place from = {.dir = -1}, to = {.dir = -1};
    if (c->rq.path2[0] == '\0')
        return call_refuse(c, -EINVAL, TOOL_LAYER_NONE, "no new path came with the request");
    int r = call_open_movable(c, c->rq.path, &from);
    if (r == 0)
        r = call_open_writable(c, c->rq.path2, false, &to);
    if (r == 0)
        r = rename_to_new(&from, &to);
    if (r == -EXDEV)
        r = move_by_copy(c, &from, &to);
    return r < 0 ? r : call_put_stat(c, &to);
}

/* The folders above are made too, but each only where its parent may be written. */
static int make_parents(struct call *c, const char *path)
{
    CLEANUP(place_done) struct place p = {.dir = -1};
    struct stat st;
    int r = call_open_writable(c, path, true, &p);
    if (r == -ENOENT && strcmp(path, "/") != 0) {
        CLEANUP(freep) char *parent = NULL;
        place_done(&p);
        r = path_join(path, "..", &parent);
        if (r == 0)
            r = make_parents(c, parent);
        if (r == 0)
            r = call_open_writable(c, path, true, &p);
    }
    if (r < 0)
        return r;
    if (place_stat(&p, &st) == 0)
        return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
    return mkdirat(p.dir, p.name, NEW_DIR_MODE) < 0 && errno != EEXIST ? -errno : 0;
}

static int tool_mkdir(struct call *c)
{
    CLEANUP(place_done) struct place p = {.dir = -1};
    CLEANUP(freep) char *parent = NULL;
    int r = call_open_writable(c, c->rq.path, false, &p);
    if (r == -ENOENT) {
        place_done(&p);
        r = path_join(c->rq.path, "..", &parent);
        if (r == 0)
            r = make_parents(c, parent);
        if (r == 0)
            r = call_open_writable(c, c->rq.path, false, &p);
    }
    if (r == 0 && mkdirat(p.dir, p.name, NEW_DIR_MODE) < 0)
        r = -errno;
    return r < 0 ? r : call_put_stat(c, &p);
}

static int tool_remove(struct call *c)
{
    CLEANUP(place_done) struct place p = {.dir = -1};
    struct stat st;
    int r = call_open_movable(c, c->rq.path, &p);
    if (r == 0)
        r = place_stat(&p, &st);
    if (r < 0)
        return r;
    if (S_ISDIR(st.st_mode) && (c->rq.flags & TOOL_RECURSIVE))
        return path_remove_tree(p.dir, p.name);
    return unlinkat(p.dir, p.name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) < 0 ? -errno : 0;
}

/* ---- The table ------------------------------------------------------------------------------- */

static int (*const tools[])(struct call *c) = {
    [TOOL_READ] = tool_read,      [TOOL_WRITE] = call_write, [TOOL_EDIT] = call_edit,
    [TOOL_LIST] = call_list,      [TOOL_GLOB] = call_glob,   [TOOL_SEARCH] = call_search,
    [TOOL_STAT] = tool_stat_call, [TOOL_MOVE] = tool_move,   [TOOL_MKDIR] = tool_mkdir,
    [TOOL_REMOVE] = tool_remove};

static int run(struct call *c)
{
    if (c->rq.op >= ARRAY_LEN(tools) || !tools[c->rq.op])
        return call_refuse(c, -ENOSYS, TOOL_LAYER_NONE, "no such tool");
    return tools[c->rq.op](c);
}

/* Which layer said no, when the kernel did. */
static uint8_t layer_of(int r)
{
    if (r == -EROFS)
        return TOOL_LAYER_READ_ONLY;
    return r == -EACCES || r == -EPERM ? TOOL_LAYER_WALL : TOOL_LAYER_NONE;
}

static void answer(struct call *c, int r, int sock)
{
    struct pack out = {0};
    if (r == 0 && c->fields.r < 0)
        r = c->fields.r;
    c->answer.error = r < 0 ? (uint32_t)-r : 0;
    c->answer.n_fds = r == 0 && c->fd >= 0;
    c->answer.detail = c->detail;
    if (r < 0 && c->detail[0] == '\0') {
        (void)snprintf(c->detail, sizeof(c->detail), "%s", strerror(-r));
        c->answer.layer = layer_of(r);
    }
    tool_answer_put(&out, &c->answer);
    if (r == 0 && out.r == 0)
        out.r = str_add(&out.out, str_c(&c->fields.out), c->fields.out.len);
    (void)runner_answer(sock, M_TOOLED, &out, c->answer.n_fds ? c->fd : -1);
    pack_done(&out);
}

void tool_call(struct unpack *u, uint32_t id, int take_fd, int sock)
{
    struct call c = {.content = take_fd, .fd = -1, .answer.id = id};
    int r = tool_request_get(u, &c.rq);
    if (r == 0) {
        c.answer.id = c.rq.id;
        r = run(&c);
    }
    answer(&c, r, sock);
    fd_close(c.fd);
    fd_close(c.content);
    pack_done(&c.fields);
    tool_request_done(&c.rq);
}
