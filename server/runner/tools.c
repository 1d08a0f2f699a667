/* Runs in: runner (a worker of one call). Reads: hostile. May block: files. */
#include "runner/tools.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include "runner/answer.h"
#include "runner/pattern.h"
#include "runner/place.h"
#include "runner/replace.h"
#include "runner/search.h"
#include "runner/walk.h"
#include "wire/msg.h"
#include "wire/tool.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EDIT_FILE_MAX ((size_t)64 << 20)
#define ENTRIES_MAX   ((uint64_t)10000)
#define ENTRIES       ((uint64_t)1000)  /* when the request names no number */
#define ENTRIES_BYTES ((size_t)3 << 19) /* leaves room in a frame */
#define GLOB_MS       10000
#define COPY_STEP     ((size_t)256 << 10)
#define NEW_FILE_MODE 0644
#define NEW_DIR_MODE  0755

struct call {
    struct tool_request rq;
    int content;
    struct tool_answer answer;
    char detail[1024];
    struct pack fields;
    int fd; /* to be handed out */
};

/* ---- Refusals ---------------------------------------------------------------------------------
 */
__attribute__((format(printf, 4, 5))) static int refuse(struct call *c, int r, uint8_t layer,
                                                        const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(c->detail, sizeof(c->detail), fmt, ap);
    va_end(ap);
    c->answer.layer = layer;
    return r;
}

static int open_place(struct call *c, const char *path, bool follow, struct place *ret)
{
    uint8_t layer = TOOL_LAYER_NONE;
    int r = place_open(&c->rq.roots, path, follow, ret, &layer);
    if (layer == TOOL_LAYER_ROOTS)
        return refuse(c, r, layer, "outside of the session's folders");
    return r;
}

/* The same for something that is to be changed. */
static int open_writable(struct call *c, const char *path, bool follow, struct place *ret)
{
    int r = open_place(c, path, follow, ret);
    if (r == 0 && !ret->is_writable)
        return refuse(c, -EROFS, TOOL_LAYER_READ_ONLY, "in a folder that is read-only here");
    return r;
}

/* The entry itself goes away from its place (MOVE, REMOVE). */
static int open_movable(struct call *c, const char *path, struct place *ret)
{
    int r = open_writable(c, path, false, ret);
    if (r < 0)
        return r;
    if (ret->is_root || strcmp(ret->path, "/") == 0)
        return refuse(c, -EACCES, TOOL_LAYER_ROOTS, "is one of the session's own folders");
    if (place_holds_read_only(&c->rq.roots, ret))
        return refuse(c, -EROFS, TOOL_LAYER_READ_ONLY, "holds a folder that is read-only here");
    return 0;
}

/* ---- Answers ----------------------------------------------------------------------------------
 */
static int put_stat(struct call *c, const struct place *p)
{
    struct stat st;
    struct tool_stat out;
    int r = place_stat(p, &st);
    if (r < 0)
        return r;
    place_describe(p->dir, p->name, &st, p->is_writable, &out);
    tool_put_stat(&c->fields, &out);
    return 0;
}

/* A list that ends at a number of entries or bytes. */
struct entries {
    struct pack out;
    uint32_t n;
    uint64_t max;
    bool has_more;
};

/* 1 when it is full. */
static int put_entry(struct entries *e, int dir, const char *name, const char *path, bool writable)
{
    struct stat st;
    struct tool_stat out;
    if (e->n >= e->max || e->out.out.len >= ENTRIES_BYTES) {
        e->has_more = true;
        return 1;
    }
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0; /* gone */
    place_describe(dir, name, &st, writable, &out);
    pack_bytes(&e->out, path, strlen(path));
    tool_put_stat(&e->out, &out);
    e->n++;
    return e->out.r;
}

static int put_entries(struct call *c, struct entries *e)
{
    pack_u32(&c->fields, e->n);
    if (c->fields.r == 0)
        c->fields.r = str_add(&c->fields.out, str_c(&e->out.out), e->out.out.len);
    pack_u8(&c->fields, e->has_more);
    return e->out.r < 0 ? e->out.r : c->fields.r;
}

static uint64_t entries_wanted(const struct call *c)
{
    return c->rq.n == 0 ? ENTRIES : c->rq.n > ENTRIES_MAX ? ENTRIES_MAX : c->rq.n;
}

/* ---- Reading ----------------------------------------------------------------------------------
 */
static int open_regular(struct call *c, const struct place *p, int flags, struct stat *ret)
{
    int fd = place_open_entry(p, flags | O_NONBLOCK);
    if (fd < 0)
        return fd;
    if (fstat(fd, ret) == 0 && S_ISREG(ret->st_mode))
        return fd;
    bool is_folder = S_ISDIR(ret->st_mode);
    fd_close(fd);
    return is_folder ? -EISDIR : refuse(c, -EINVAL, TOOL_LAYER_NONE, "not a regular file");
}

static int tool_read(struct call *c)
{
    CLEANUP(place_done) struct place p;
    struct stat st;
    int r = open_place(c, c->rq.path, true, &p);
    if (r < 0)
        return r;
    c->fd = open_regular(c, &p, O_RDONLY, &st);
    return c->fd < 0 ? c->fd : put_stat(c, &p);
}

static int tool_stat_call(struct call *c)
{
    CLEANUP(place_done) struct place p;
    int r = open_place(c, c->rq.path, false, &p);
    return r < 0 ? r : put_stat(c, &p);
}

static int tool_list(struct call *c)
{
    CLEANUP(place_done) struct place p;
    CLEANUP(strv_done) struct strv names = {0};
    struct entries e = {.max = entries_wanted(c)};
    int r = open_place(c, c->rq.path, true, &p);
    if (r < 0)
        return r;
    CLEANUP(fd_done) int dir = place_open_entry(&p, O_RDONLY | O_DIRECTORY);
    if (dir < 0)
        return dir;
    r = walk_names(dir, &names);
    for (uint64_t i = c->rq.m; r == 0 && i < names.n; i++) {
        CLEANUP(freep) char *path = NULL;
        r = path_join(c->rq.path, names.items[i], &path);
        if (r == 0)
            r = put_entry(&e, dir, names.items[i], path, p.is_writable);
    }
    if (r >= 0)
        r = put_entries(c, &e);
    pack_done(&e.out);
    return r;
}

/* ---- Finding ----------------------------------------------------------------------------------
 */
struct globbing {
    struct call *c;
    struct strv patterns;
    struct entries entries;
    bool is_writable;
};

static bool glob_enter(struct walk *w, int fd, const char *path)
{
    struct globbing *g = w->arg;
    (void)fd;
    for (size_t i = 0; i < g->patterns.n; i++) {
        const char *pattern = g->patterns.items[i];
        /* git's own files only when they are meant */
        bool is_git = strcmp(path_last(path), ".git") == 0 && !strstr(pattern, ".git");
        if (!is_git && (path[0] == '\0' || pattern_may_lead(pattern, path)))
            return true;
    }
    return false;
}

static int glob_entry(struct walk *w, int dir, const char *name, const char *path, bool is_folder)
{
    struct globbing *g = w->arg;
    (void)is_folder;
    for (size_t i = 0; i < g->patterns.n; i++) {
        if (!pattern_match(g->patterns.items[i], path))
            continue;
        CLEANUP(freep) char *full = NULL;
        int r = path_join(g->c->rq.path, path, &full);
        return r < 0 ? r : put_entry(&g->entries, dir, name, full, g->is_writable);
    }
    return 0;
}

/* Absolute patterns lie below the folder or match nothing. */
static const char *relative_pattern(const char *pattern, const char *dir)
{
    size_t n = strlen(dir);
    if (pattern[0] != '/')
        return str_starts(pattern, "./") ? pattern + 2 : pattern;
    if (n == 1)
        return pattern + 1;
    return str_starts(pattern, dir) && pattern[n] == '/' ? pattern + n + 1 : NULL;
}

static int glob_walk(struct call *c, struct globbing *g, const char *pattern)
{
    CLEANUP(place_done) struct place p;
    int r = open_place(c, c->rq.path, true, &p);
    if (r < 0)
        return r;
    CLEANUP(fd_done) int dir = place_open_entry(&p, O_RDONLY | O_DIRECTORY);
    if (dir < 0)
        return dir;
    r = pattern_expand(pattern, &g->patterns);
    if (r < 0)
        return refuse(c, -EINVAL, TOOL_LAYER_NONE, "the pattern has more than %d alternatives",
                      PATTERN_ALTERNATIVES_MAX);
    g->is_writable = p.is_writable;
    struct walk w = {
        .deadline = clock_now_ms() + GLOB_MS, .arg = g, .enter = glob_enter, .entry = glob_entry};
    r = walk_tree(&w, dir, "");
    g->entries.has_more |= w.is_out_of_time;
    return r < 0 ? r : put_entries(c, &g->entries);
}

static int tool_glob(struct call *c)
{
    if (c->rq.text_len == 0 || strlen(c->rq.text) != c->rq.text_len)
        return refuse(c, -EINVAL, TOOL_LAYER_NONE, "the pattern is empty or holds a NUL");
    const char *pattern = relative_pattern(c->rq.text, c->rq.path);
    if (!pattern)
        return refuse(c, -EINVAL, TOOL_LAYER_NONE, "the pattern is not below the folder");
    struct globbing g = {.c = c, .entries.max = entries_wanted(c)};
    int r = glob_walk(c, &g, pattern);
    strv_done(&g.patterns);
    pack_done(&g.entries.out);
    return r;
}

static int tool_search(struct call *c)
{
    CLEANUP(place_done) struct place p;
    CLEANUP(str_done) struct str why = {0};
    struct search_result found = {0};
    int r = open_place(c, c->rq.path, true, &p);
    if (r < 0)
        return r;
    struct search s = {.dir = p.dir,
                       .name = p.name,
                       .resolved = p.path,
                       .spelled = c->rq.path,
                       .pattern = c->rq.text,
                       .pattern_len = c->rq.text_len,
                       .is_regex = (c->rq.flags & TOOL_REGEX) != 0,
                       .hits_max = c->rq.n,
                       .ms = c->rq.m};
    r = search_run(&s, &found, &why);
    if (r < 0 && why.len > 0)
        r = refuse(c, r, TOOL_LAYER_NONE, "%s", why.data);
    pack_u32(&c->fields, found.n);
    if (c->fields.r == 0)
        c->fields.r = str_add(&c->fields.out, str_c(&found.hits), found.hits.len);
    pack_u8(&c->fields, found.has_more);
    pack_u8(&c->fields, found.is_timed_out);
    str_done(&found.hits);
    return r;
}

/* ---- Writing ----------------------------------------------------------------------------------
 */
/* What is at PLACE may be replaced: nothing, or a regular file that may be written. Its mode stays.
 */
static int check_target(struct call *c, const struct place *p, struct stat *ret, bool *ret_exists)
{
    int r = place_stat(p, ret);
    *ret_exists = r == 0;
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    if (S_ISDIR(ret->st_mode))
        return -EISDIR;
    if (S_ISLNK(ret->st_mode))
        return -ELOOP;
    if (!S_ISREG(ret->st_mode))
        return refuse(c, -EINVAL, TOOL_LAYER_NONE, "not a regular file");
    return faccessat(p->dir, p->name, W_OK, AT_EACCESS | AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

/* If-Match and If-None-Match (RFC 9110, 13.1). */
static int check_match(struct call *c, const struct place *p, const struct stat *st, bool exists)
{
    struct tool_stat now;
    char tag[TOOL_ETAG_MAX];
    if ((c->rq.flags & TOOL_IF_NONE_MATCH) && exists)
        return -EEXIST;
    if (c->rq.text_len == 0)
        return 0;
    if (!exists)
        return refuse(c, -ESTALE, TOOL_LAYER_NONE, "the file does not exist");
    place_describe(p->dir, p->name, st, p->is_writable, &now);
    tool_etag(&now, tag);
    if (strcmp(c->rq.text, "*") == 0 || strcmp(c->rq.text, tag) == 0)
        return 0;
    return refuse(c, -ESTALE, TOOL_LAYER_NONE, "the file is now %s", tag);
}

static int copy_content(int to, void *arg)
{
    int from = *(const int *)arg;
    CLEANUP(freep) char *buf = malloc(COPY_STEP);
    if (!buf)
        return -ENOMEM;
    for (off_t at = 0;;) {
        ssize_t n = pread(from, buf, COPY_STEP, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : 0;
        int r = fd_write_all(to, buf, (size_t)n);
        if (r < 0)
            return r;
        at += n;
    }
}

static int tool_write(struct call *c)
{
    CLEANUP(place_done) struct place p;
    struct stat st;
    bool exists;
    if (c->content < 0)
        return refuse(c, -EINVAL, TOOL_LAYER_NONE, "no content came with the request");
    int r = open_writable(c, c->rq.path, true, &p);
    if (r == 0)
        r = check_target(c, &p, &st, &exists);
    if (r == 0)
        r = check_match(c, &p, &st, exists);
    if (r < 0)
        return r;
    mode_t new_mode = c->rq.m ? (mode_t)c->rq.m & 0777 : NEW_FILE_MODE;
    struct replacing rp = {.place = &p,
                           .fill = copy_content,
                           .arg = &c->content,
                           .must_be_new = (c->rq.flags & TOOL_IF_NONE_MATCH) != 0,
                           .known = c->rq.text_len > 0 ? &st : NULL,
                           .mode = exists ? st.st_mode & 0777 : new_mode};
    r = replace_file(&rp);
    if (r == 0)
        r = put_stat(c, &p);
    pack_u8(&c->fields, !exists);
    return r;
}

static int read_whole(struct call *c, const struct place *p, struct str *ret, struct stat *st)
{
    CLEANUP(fd_done) int fd = open_regular(c, p, O_RDONLY, st);
    if (fd < 0)
        return fd;
    if (st->st_size < 0 || (uint64_t)st->st_size > EDIT_FILE_MAX)
        return refuse(c, -EFBIG, TOOL_LAYER_NONE, "larger than %zu bytes", EDIT_FILE_MAX);
    char *room = str_room(ret, (size_t)st->st_size);
    if (!room)
        return -ENOMEM;
    ssize_t n = fd_read_all(fd, room, (size_t)st->st_size);
    if (n < 0)
        return (int)n;
    ret->len += (size_t)n;
    return 0;
}

/* TEXT with each OLD replaced. What stands between is copied whole; returns how many there were. */
static int replace_text(const struct str *text, const struct tool_request *rq, struct str *ret,
                        uint32_t *ret_n)
{
    const char *at = str_c(text), *end = at + text->len, *found;
    int r = 0;
    *ret_n = 0;
    while (r == 0 && (found = memmem(at, (size_t)(end - at), rq->text, rq->text_len))) {
        r = str_add(ret, at, (size_t)(found - at));
        if (r == 0)
            r = str_add(ret, rq->text2, rq->text2_len);
        at = found + rq->text_len;
        ++*ret_n;
    }
    return r < 0 ? r : str_add(ret, at, (size_t)(end - at));
}

static int write_str(int fd, void *arg)
{
    const struct str *s = arg;
    return fd_write_all(fd, str_c(s), s->len);
}

static int edit_place(struct call *c, const struct place *p)
{
    CLEANUP(str_done) struct str before = {.max = 2 * EDIT_FILE_MAX};
    CLEANUP(str_done) struct str after = {.max = 2 * EDIT_FILE_MAX};
    struct stat st;
    uint32_t n = 0;
    bool exists;
    int r = check_target(c, p, &st, &exists);
    if (r == 0)
        r = exists ? read_whole(c, p, &before, &st) : -ENOENT;
    if (r == 0)
        r = replace_text(&before, &c->rq, &after, &n);
    if (r == -E2BIG)
        return refuse(c, -EFBIG, TOOL_LAYER_NONE, "would become larger than %zu bytes", after.max);
    if (r < 0)
        return r;
    if (n == 0)
        return refuse(c, -ENOMSG, TOOL_LAYER_NONE, "the old text does not occur in the file");
    if (n > 1 && !(c->rq.flags & TOOL_ALL))
        return refuse(c, -ENOMSG, TOOL_LAYER_NONE, "the old text occurs %u times", n);
    struct replacing rp = {
        .place = p, .fill = write_str, .arg = &after, .known = &st, .mode = st.st_mode & 0777};
    r = replace_file(&rp);
    if (r == -ESTALE)
        return refuse(c, r, TOOL_LAYER_NONE, "the file changed meanwhile");
    if (r == 0)
        r = put_stat(c, p);
    pack_u32(&c->fields, n);
    return r;
}

static int tool_edit(struct call *c)
{
    CLEANUP(place_done) struct place p;
    if (c->rq.text_len == 0)
        return refuse(c, -EINVAL, TOOL_LAYER_NONE, "the old text is empty");
    int r = open_writable(c, c->rq.path, true, &p);
    return r < 0 ? r : edit_place(c, &p);
}

/* ---- Names ------------------------------------------------------------------------------------
 */
/* A rename that replaces nothing, also where the file system does not know how to promise that. */
static int rename_to_new(const struct place *from, const struct place *to)
{
    struct stat st;
    if (renameat2(from->dir, from->name, to->dir, to->name, RENAME_NOREPLACE) == 0)
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
        return refuse(c, -EXDEV, TOOL_LAYER_NONE,
                      "only a file can be moved from one of the session's folders to another");
    struct replacing rp = {.place = to,
                           .fill = copy_content,
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
        return refuse(c, -EINVAL, TOOL_LAYER_NONE, "no new path came with the request");
    int r = open_movable(c, c->rq.path, &from);
    if (r == 0)
        r = open_writable(c, c->rq.path2, false, &to);
    if (r == 0)
        r = rename_to_new(&from, &to);
    if (r == -EXDEV)
        r = move_by_copy(c, &from, &to);
    return r < 0 ? r : put_stat(c, &to);
}

/* The folders above are made too, but each only where its parent may be written. */
static int make_parents(struct call *c, const char *path)
{
    CLEANUP(place_done) struct place p = {.dir = -1};
    struct stat st;
    int r = open_writable(c, path, true, &p);
    if (r == -ENOENT && strcmp(path, "/") != 0) {
        CLEANUP(freep) char *parent = NULL;
        place_done(&p);
        r = path_join(path, "..", &parent);
        if (r == 0)
            r = make_parents(c, parent);
        if (r == 0)
            r = open_writable(c, path, true, &p);
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
    int r = open_writable(c, c->rq.path, false, &p);
    if (r == -ENOENT) {
        place_done(&p);
        r = path_join(c->rq.path, "..", &parent);
        if (r == 0)
            r = make_parents(c, parent);
        if (r == 0)
            r = open_writable(c, c->rq.path, false, &p);
    }
    if (r == 0 && mkdirat(p.dir, p.name, NEW_DIR_MODE) < 0)
        r = -errno;
    return r < 0 ? r : put_stat(c, &p);
}

static int tool_remove(struct call *c)
{
    CLEANUP(place_done) struct place p;
    struct stat st;
    int r = open_movable(c, c->rq.path, &p);
    if (r == 0)
        r = place_stat(&p, &st);
    if (r < 0)
        return r;
    if (S_ISDIR(st.st_mode) && (c->rq.flags & TOOL_RECURSIVE))
        return path_remove_tree(p.dir, p.name);
    return unlinkat(p.dir, p.name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) < 0 ? -errno : 0;
}

/* ---- The table --------------------------------------------------------------------------------
 */
static int (*const tools[])(struct call *c) = {
    [TOOL_READ] = tool_read,      [TOOL_WRITE] = tool_write, [TOOL_EDIT] = tool_edit,
    [TOOL_LIST] = tool_list,      [TOOL_GLOB] = tool_glob,   [TOOL_SEARCH] = tool_search,
    [TOOL_STAT] = tool_stat_call, [TOOL_MOVE] = tool_move,   [TOOL_MKDIR] = tool_mkdir,
    [TOOL_REMOVE] = tool_remove};

static int run(struct call *c)
{
    if (c->rq.op >= ARRAY_LEN(tools) || !tools[c->rq.op])
        return refuse(c, -ENOSYS, TOOL_LAYER_NONE, "no such tool");
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
