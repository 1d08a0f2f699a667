#include "unit.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/path.h"
#include "runner/tools.h"
#include "runner/walk.h"
#include "wire/frame.h"
#include "wire/msg.h"
#include "wire/tool.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* A folder with w (writable root), r (read-only root) and out (no root). */
struct world {
    char top[64];
    struct strv roots;
};

struct reply {
    struct tool_answer a;
    struct str bytes;
    struct unpack u; /* at the fields */
    int fd;
};

static int world_make(void **state)
{
    static struct world w;
    memset(&w, 0, sizeof(w));
    strcpy(w.top, "/tmp/cordon-test-XXXXXX");
    if (!mkdtemp(w.top))
        return -1;
    char path[128];
    static const char *const dirs[] = {"w", "r", "out"};
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/%s", w.top, dirs[i]);
        if (mkdir(path, 0755) < 0)
            return -1;
    }
    strv_addf(&w.roots, "rw:%s/w", w.top);
    strv_addf(&w.roots, "ro:%s/r", w.top);
    *state = &w;
    return 0;
}

static int world_drop(void **state)
{
    struct world *w = *state;
    strv_done(&w->roots);
    return path_remove_tree(AT_FDCWD, w->top);
}

static char *at(const struct world *w, const char *below)
{
    static char paths[8][4096];
    static int i;
    char *path = paths[i++ % 8];
    snprintf(path, 4096, "%s/%s", w->top, below);
    return path;
}

static void put(const struct world *w, const char *below, const void *bytes, size_t n)
{
    assert_int_equal(fd_write_file(AT_FDCWD, at(w, below), bytes, n, 0644), 0);
}

static void puts_(const struct world *w, const char *below, const char *text)
{
    put(w, below, text, strlen(text));
}

static void expect_file(const struct world *w, const char *below, const char *text)
{
    char *got = NULL;
    assert_int_equal(fd_read_file(AT_FDCWD, at(w, below), 1 << 20, &got, NULL), 0);
    assert_string_equal(got, text);
    free(got);
}

static unsigned count_entries(const struct world *w, const char *below)
{
    struct strv names = {0};

    int fd = open(at(w, below), O_RDONLY | O_DIRECTORY);
    assert_int_equal(walk_names(fd, &names), 0);
    close(fd);
    unsigned n = (unsigned)names.n;
    strv_done(&names);
    return n;
}

static struct reply call(const struct tool_request *rq, int content)
{
    int pair[2];
    struct pack p = {0};
    struct reply re = {.fd = -1};
    assert_int_equal(fd_pair(pair), 0);
    tool_request_put(&p, rq);
    struct unpack u = unpack_from(p.out.data, p.out.len);
    tool_call(&u, 1, content, pair[0]);
    close(pair[0]);
    pack_done(&p);
    struct frame_reader fr = {0};
    struct frame f;
    char buf[65536];
    int fds[FDS_PER_MESSAGE];
    size_t n_fds = 0, n_all = 0;
    ssize_t n;
    while ((n = fd_recv(pair[1], buf, sizeof(buf), fds + n_all, &n_fds)) > 0) {
        n_all += n_fds;
        assert_int_equal(frame_feed(&fr, buf, (size_t)n), 0);
    }
    close(pair[1]);
    assert_int_equal(frame_next(&fr, &f), 1);
    assert_int_equal(f.kind, M_TOOLED);
    assert_int_equal(msg_fds(&f, n_all), n_all);
    if (n_all > 0)
        re.fd = fds[0];
    str_add(&re.bytes, f.payload, f.len);
    frame_reader_done(&fr);
    re.u = unpack_from(re.bytes.data, re.bytes.len);
    assert_int_equal(tool_answer_get(&re.u, &re.a), 0);
    return re;
}

static void reply_done(struct reply *re)
{
    tool_answer_done(&re->a);
    str_done(&re->bytes);
    fd_close(re->fd);
}

/* For calls of which only the outcome counts. */
static uint32_t outcome(struct reply re, uint8_t *ret_layer)
{
    uint32_t error = re.a.error;
    if (ret_layer)
        *ret_layer = re.a.layer;
    reply_done(&re);
    return error;
}

static struct tool_request request(const struct world *w, int op, const char *path)
{
    struct tool_request rq = {.id = 7, .op = (uint8_t)op, .roots = w->roots, .path = path};
    return rq;
}

static struct reply write_file(const struct world *w, const char *path, const void *bytes, size_t n,
                               int flags, const char *match)
{
    struct tool_request rq = request(w, TOOL_WRITE, path);
    rq.flags = (uint8_t)flags;
    rq.text = match;
    rq.text_len = match ? strlen(match) : 0;
    return call(&rq, fd_memfd("content", bytes, n));
}

static uint32_t write_text(const struct world *w, const char *path, const char *text,
                           uint8_t *ret_layer)
{
    return outcome(write_file(w, path, text, strlen(text), 0, NULL), ret_layer);
}

static struct reply edit(const struct world *w, const char *path, const char *old, const char *new,
                         int flags)
{
    struct tool_request rq = request(w, TOOL_EDIT, path);
    rq.text = old;
    rq.text_len = strlen(old);
    rq.text2 = new;
    rq.text2_len = strlen(new);
    rq.flags = (uint8_t)flags;
    return call(&rq, -1);
}

static uint32_t simple(const struct world *w, int op, const char *path, int flags,
                       uint8_t *ret_layer)
{
    struct tool_request rq = request(w, op, path);
    rq.flags = (uint8_t)flags;
    return outcome(call(&rq, -1), ret_layer);
}

static void reads_and_writes_any_bytes_at_any_path(void **state)
{
    const struct world *w = *state;
    char longest[256];
    memset(longest, 'n', 200);
    longest[200] = '\0';
    const char *const names[] = {"plain",       "with space",   "tab\tname",   "line\nfeed",
                                 "quo'te\"s",   "a..b",         "...",         "-leading",
                                 "$(touch x)",  "[br]ack*ets?", "n\xc3\xa4me", "na\xcc\x88me",
                                 "bad\xff utf", "back\\slash",  longest};
    char content[300];
    for (int i = 0; i < 300; i++)
        content[i] = (char)i;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char below[300];
        snprintf(below, sizeof(below), "w/%s", names[i]);
        struct reply re = write_file(w, at(w, below), content, sizeof(content), 0, NULL);
        struct tool_stat st;
        assert_int_equal(re.a.error, 0);
        assert_int_equal(re.a.id, 7);
        tool_get_stat(&re.u, &st);
        assert_int_equal(unpack_u8(&re.u), 1);
        assert_int_equal(unpack_end(&re.u), 0);
        assert_int_equal(st.type, 'f');
        assert_int_equal(st.size, 300);
        assert_int_equal(st.access, 'w');
        reply_done(&re);
        struct tool_request rq = request(w, TOOL_READ, at(w, below));
        re = call(&rq, -1);
        char got[400];
        assert_int_equal(re.a.error, 0);
        assert_true(re.fd >= 0);
        assert_int_equal(pread(re.fd, got, sizeof(got), 0), 300);
        assert_memory_equal(got, content, 300);
        assert_int_equal(write(re.fd, "x", 1), -1);
        reply_done(&re);
    }
    assert_int_equal(count_entries(w, "w"), sizeof(names) / sizeof(names[0]));
    assert_int_equal(simple(w, TOOL_READ, at(w, "w/none"), 0, NULL), ENOENT);
    assert_int_equal(simple(w, TOOL_READ, at(w, "w"), 0, NULL), EISDIR);
    assert_int_equal(mkfifo(at(w, "w/fifo"), 0600), 0);
    assert_int_equal(simple(w, TOOL_READ, at(w, "w/fifo"), 0, NULL), EINVAL);
}

static void keeps_mode_and_honours_conditions(void **state)
{
    const struct world *w = *state;
    const char *path = at(w, "w/f");
    struct tool_stat st;
    char tag[TOOL_ETAG_MAX];
    struct reply re = write_file(w, path, "one", 3, TOOL_IF_NONE_MATCH, NULL);
    assert_int_equal(re.a.error, 0);
    tool_get_stat(&re.u, &st);
    tool_etag(&st, tag);
    reply_done(&re);
    assert_int_equal(outcome(write_file(w, path, "x", 1, TOOL_IF_NONE_MATCH, NULL), NULL), EEXIST);
    assert_int_equal(outcome(write_file(w, path, "x", 1, 0, "\"1-2-3\""), NULL), ESTALE);
    assert_int_equal(chmod(path, 0750), 0);
    re = write_file(w, path, "two", 3, 0, tag);
    assert_int_equal(re.a.error, 0);
    tool_get_stat(&re.u, &st);
    assert_int_equal(st.mode, 0750);
    assert_int_equal(unpack_u8(&re.u), 0);
    reply_done(&re);
    expect_file(w, "w/f", "two");
    assert_int_equal(outcome(write_file(w, path, "x", 1, 0, tag), NULL), ESTALE);
    assert_int_equal(outcome(write_file(w, at(w, "w/new"), "x", 1, 0, "*"), NULL), ESTALE);
    assert_int_equal(outcome(write_file(w, path, "three", 5, 0, "*"), NULL), 0);
    assert_int_equal(write_text(w, at(w, "w/no/dir"), "x", NULL), ENOENT);
    assert_int_equal(write_text(w, at(w, "w"), "x", NULL), EISDIR);
}

static void edits_exactly_once_or_all(void **state)
{
    const struct world *w = *state;
    const char *path = at(w, "w/e");
    puts_(w, "w/e", "aXbXc");
    assert_int_equal(outcome(edit(w, path, "X", "-", 0), NULL), ENOMSG);
    assert_int_equal(outcome(edit(w, path, "Y", "-", 0), NULL), ENOMSG);
    assert_int_equal(outcome(edit(w, path, "", "-", 0), NULL), EINVAL);
    expect_file(w, "w/e", "aXbXc");
    struct reply re = edit(w, path, "X", "--", TOOL_ALL);
    struct tool_stat st;
    tool_get_stat(&re.u, &st);
    assert_int_equal(unpack_u32(&re.u), 2);
    reply_done(&re);
    expect_file(w, "w/e", "a--b--c");
    assert_int_equal(outcome(edit(w, path, "b--c", "", 0), NULL), 0);
    expect_file(w, "w/e", "a--");
    struct tool_request rq = request(w, TOOL_EDIT, path);
    put(w, "w/e", "a\0b\0c", 5);
    rq.text = "\0b";
    rq.text_len = 2;
    rq.text2 = "\0\0";
    rq.text2_len = 2;
    assert_int_equal(outcome(call(&rq, -1), NULL), 0);
    char *got = NULL;
    size_t n = 0;
    assert_int_equal(fd_read_file(AT_FDCWD, path, 100, &got, &n), 0);
    assert_int_equal(n, 5);
    assert_memory_equal(got, "a\0\0\0c", 5);
    free(got);
}

static void stays_in_its_roots(void **state)
{
    const struct world *w = *state;
    uint8_t layer = 9;
    puts_(w, "out/secret", "s");
    puts_(w, "r/file", "r");
    assert_int_equal(symlink(at(w, "out/secret"), at(w, "w/abs")), 0);
    assert_int_equal(symlink("../out", at(w, "w/rel")), 0);
    assert_int_equal(symlink("../r/file", at(w, "w/into-r")), 0);
    assert_int_equal(symlink("nowhere", at(w, "w/dangling")), 0);
    static const char *const outside[] = {"out/secret", "w/abs", "w/rel/secret"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(simple(w, TOOL_READ, at(w, outside[i]), 0, &layer), EACCES);
        assert_int_equal(layer, TOOL_LAYER_ROOTS);
        assert_int_equal(write_text(w, at(w, outside[i]), "x", &layer), EACCES);
        assert_int_equal(layer, TOOL_LAYER_ROOTS);
        struct reply re = edit(w, at(w, outside[i]), "s", "x", 0);
        assert_int_equal(outcome(re, NULL), EACCES);
    }
    assert_int_equal(simple(w, TOOL_REMOVE, at(w, "w/rel/secret"), 0, NULL), EACCES);
    assert_int_equal(simple(w, TOOL_MKDIR, at(w, "w/rel/new"), 0, NULL), EACCES);
    assert_int_equal(simple(w, TOOL_READ, "/etc/passwd", 0, NULL), EACCES);
    assert_int_equal(simple(w, TOOL_READ, "/proc/self/environ", 0, NULL), EACCES);
    expect_file(w, "out/secret", "s");
    /* one root into another: followed, and judged by where it leads */
    assert_int_equal(simple(w, TOOL_READ, at(w, "w/into-r"), 0, NULL), 0);
    assert_int_equal(write_text(w, at(w, "w/into-r"), "x", &layer), EROFS);
    assert_int_equal(layer, TOOL_LAYER_READ_ONLY);
    assert_int_equal(write_text(w, at(w, "r/new"), "x", &layer), EROFS);
    assert_int_equal(simple(w, TOOL_REMOVE, at(w, "r/file"), 0, NULL), EROFS);
    assert_int_equal(write_text(w, at(w, "w/dangling"), "x", NULL), ELOOP);
    assert_int_equal(simple(w, TOOL_STAT, at(w, "w/abs"), 0, NULL), 0); /* the link itself */
    assert_int_equal(simple(w, TOOL_REMOVE, at(w, "w/abs"), 0, NULL), 0);
    expect_file(w, "out/secret", "s");
    assert_int_equal(simple(w, TOOL_REMOVE, at(w, "w"), TOOL_RECURSIVE, &layer), EACCES);
    assert_int_equal(simple(w, TOOL_READ, at(w, "wx"), 0, NULL), EACCES);
}

static void the_most_specific_root_wins(void **state)
{
    struct world *w = *state;
    assert_int_equal(mkdir(at(w, "w/ro"), 0755), 0);
    assert_int_equal(mkdir(at(w, "w/ro/rw"), 0755), 0);
    struct world inner = *w;
    memset(&inner.roots, 0, sizeof(inner.roots));
    strv_addf(&inner.roots, "rw:%s", at(w, "w/ro/rw"));
    strv_addf(&inner.roots, "ro:%s", at(w, "w/ro"));
    strv_addf(&inner.roots, "rw:%s", at(w, "w"));
    strv_addf(&inner.roots, "rw:%s", at(w, "r"));
    strv_addf(&inner.roots, "ro:%s", at(w, "r"));
    assert_int_equal(write_text(&inner, at(w, "w/ro/rw/f"), "x", NULL), 0);
    assert_int_equal(write_text(&inner, at(w, "w/ro/f"), "x", NULL), EROFS);
    assert_int_equal(write_text(&inner, at(w, "w/f"), "x", NULL), 0);
    assert_int_equal(write_text(&inner, at(w, "r/f"), "x", NULL), EROFS); /* given both ways */
    assert_int_equal(mkdir(at(w, "w/dir"), 0755), 0);
    struct tool_request rq = request(&inner, TOOL_MOVE, at(w, "w/ro"));
    rq.path2 = at(w, "w/moved");
    assert_int_equal(outcome(call(&rq, -1), NULL), EROFS); /* a root, and read-only */
    strv_done(&inner.roots);
    strv_addf(&inner.roots, "rw:%s", at(w, "w"));
    strv_addf(&inner.roots, "ro:%s", at(w, "w/ro/rw"));
    assert_int_equal(simple(&inner, TOOL_REMOVE, at(w, "w/ro"), TOOL_RECURSIVE, NULL), EROFS);
    strv_done(&inner.roots);
    assert_int_equal(write_text(&inner, at(w, "out/f"), "x", NULL), 0); /* no roots: no narrowing */
}

static void moves_makes_and_removes(void **state)
{
    const struct world *w = *state;
    struct tool_request rq = request(w, TOOL_MOVE, at(w, "w/a"));
    puts_(w, "w/a", "1");
    puts_(w, "w/b", "2");
    rq.path2 = at(w, "w/b");
    assert_int_equal(outcome(call(&rq, -1), NULL), EEXIST);
    expect_file(w, "w/b", "2");
    rq.path2 = at(w, "w/c");
    assert_int_equal(outcome(call(&rq, -1), NULL), 0);
    expect_file(w, "w/c", "1");
    assert_int_equal(outcome(call(&rq, -1), NULL), ENOENT);
    rq.path2 = at(w, "out/c");
    rq.path = at(w, "w/c");
    assert_int_equal(outcome(call(&rq, -1), NULL), EACCES);
    assert_int_equal(simple(w, TOOL_MKDIR, at(w, "w/x/y/z"), 0, NULL), 0);
    assert_int_equal(simple(w, TOOL_MKDIR, at(w, "w/x/y/z"), 0, NULL), EEXIST);
    assert_int_equal(simple(w, TOOL_MKDIR, at(w, "w/c/d"), 0, NULL), ENOTDIR);
    assert_int_equal(simple(w, TOOL_MKDIR, at(w, "out/d/e"), 0, NULL), EACCES);
    assert_int_equal(simple(w, TOOL_REMOVE, at(w, "w/x"), 0, NULL), ENOTEMPTY);
    assert_int_equal(symlink(at(w, "out"), at(w, "w/x/link")), 0);
    puts_(w, "out/keep", "k");
    assert_int_equal(simple(w, TOOL_REMOVE, at(w, "w/x"), TOOL_RECURSIVE, NULL), 0);
    expect_file(w, "out/keep", "k");
    assert_int_equal(simple(w, TOOL_REMOVE, at(w, "w/x"), TOOL_RECURSIVE, NULL), ENOENT);
}

/* The names in an answer of LIST or GLOB, without the top, joined by spaces. */
static char *listed(const struct world *w, struct reply *re)
{
    static char out[4096];
    out[0] = '\0';
    uint32_t n = unpack_u32(&re->u);
    for (uint32_t i = 0; i < n; i++) {
        struct tool_stat st;
        size_t len;
        const uint8_t *path = unpack_bytes(&re->u, 4096, &len);
        snprintf(out + strlen(out), sizeof(out) - strlen(out), "%s%.*s", i ? " " : "",
                 (int)(len - strlen(w->top) - 1), path + strlen(w->top) + 1);
        tool_get_stat(&re->u, &st);
    }
    if (unpack_u8(&re->u))
        strcat(out, " more");
    assert_int_equal(unpack_end(&re->u), 0);
    return out;
}

static void lists_and_globs(void **state)
{
    const struct world *w = *state;
    static const char *const files[] = {"w/b.c",           "w/a.h",          "w/src/x.c",
                                        "w/src/y.py",      "w/src/deep/z.c", "w/.git/config",
                                        "w/.github/ci.yml"};
    assert_int_equal(path_make_dirs(AT_FDCWD, at(w, "w/src/deep"), 0755), 0);
    assert_int_equal(path_make_dirs(AT_FDCWD, at(w, "w/.git"), 0755), 0);
    assert_int_equal(path_make_dirs(AT_FDCWD, at(w, "w/.github"), 0755), 0);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        puts_(w, files[i], "x");
    struct tool_request rq = request(w, TOOL_LIST, at(w, "w"));
    struct reply re = call(&rq, -1);
    assert_string_equal(listed(w, &re), "w/.git w/.github w/a.h w/b.c w/src");
    reply_done(&re);
    rq.n = 2;
    rq.m = 1;
    re = call(&rq, -1);
    assert_string_equal(listed(w, &re), "w/.github w/a.h more");
    reply_done(&re);
    static const char *const rows[][2] = {{"*.c", "w/b.c"},
                                          {"**/*.c", "w/b.c w/src/deep/z.c w/src/x.c"},
                                          {"**/*.{h,py}", "w/a.h w/src/y.py"},
                                          {"src/*", "w/src/deep w/src/x.c w/src/y.py"},
                                          {"./src/x.c", "w/src/x.c"},
                                          {"**/*.yml", "w/.github/ci.yml"},
                                          {"**/config", ""},
                                          {".git/config", "w/.git/config"},
                                          {"none", ""}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        rq = request(w, TOOL_GLOB, at(w, "w"));
        rq.text = rows[i][0];
        rq.text_len = strlen(rows[i][0]);
        re = call(&rq, -1);
        assert_int_equal(re.a.error, 0);
        assert_string_equal(listed(w, &re), rows[i][1]);
        reply_done(&re);
    }
    rq.text = "/etc/*";
    rq.text_len = 6;
    assert_int_equal(outcome(call(&rq, -1), NULL), EINVAL);
    assert_int_equal(simple(w, TOOL_LIST, at(w, "w/b.c"), 0, NULL), ENOTDIR);
}

/* "path:line:column:text" of each hit, joined by '|'. */
static char *search(const struct world *w, const char *below, const char *pattern, int flags,
                    uint64_t ms, uint32_t *ret_error)
{
    static char out[8192];
    struct tool_request rq = request(w, TOOL_SEARCH, at(w, below));
    rq.text = pattern;
    rq.text_len = strlen(pattern);
    rq.flags = (uint8_t)flags;
    rq.n = 5;
    rq.m = ms;
    out[0] = '\0';
    struct reply re = call(&rq, -1);
    *ret_error = re.a.error;
    uint32_t n = re.a.error ? 0 : unpack_u32(&re.u);
    for (uint32_t i = 0; i < n; i++) {
        size_t len, len_text;
        const uint8_t *path = unpack_bytes(&re.u, 4096, &len);
        uint64_t line = unpack_u64(&re.u), column = unpack_u64(&re.u);
        const uint8_t *text = unpack_bytes(&re.u, 4096, &len_text);
        snprintf(out + strlen(out), sizeof(out) - strlen(out), "%s%.*s:%d:%d:%.*s", i ? "|" : "",
                 (int)(len - strlen(w->top) - 1), path + strlen(w->top) + 1, (int)line, (int)column,
                 (int)len_text, text);
    }
    if (re.a.error == 0) {
        strcat(out, unpack_u8(&re.u) ? "|more" : "");
        strcat(out, unpack_u8(&re.u) ? "|late" : "");
        assert_int_equal(unpack_end(&re.u), 0);
    } else {
        snprintf(out, sizeof(out), "%s", re.a.detail);
    }
    reply_done(&re);
    return out;
}

static void searches_what_is_not_ignored(void **state)
{
    const struct world *w = *state;
    uint32_t error;
    assert_int_equal(path_make_dirs(AT_FDCWD, at(w, "w/node_modules/p"), 0755), 0);
    assert_int_equal(path_make_dirs(AT_FDCWD, at(w, "w/sub/inner"), 0755), 0);
    assert_int_equal(path_make_dirs(AT_FDCWD, at(w, "w/.git"), 0755), 0);
    puts_(w, "w/.gitignore", "node_modules/\n*.log\n");
    puts_(w, "w/sub/.ignore", "!x.log\n");
    puts_(w, "w/.git/needle", "needle\n");
    puts_(w, "w/node_modules/p/f", "needle\n");
    puts_(w, "w/a", "one needle\ntwo\nneedle needle\n");
    puts_(w, "w/n.log", "needle\n");
    puts_(w, "w/sub/x.log", "a needle without end of line");
    put(w, "w/binary", "needle\0needle", 13);
    assert_int_equal(symlink(at(w, "out"), at(w, "w/link")), 0);
    puts_(w, "out/f", "needle\n");
    assert_string_equal(search(w, "w", "needle", 0, 0, &error),
                        "w/a:1:5:one needle|w/a:3:1:needle needle|"
                        "w/sub/x.log:1:3:a needle without end of line");
    assert_string_equal(search(w, "w/sub", "needle", 0, 0, &error),
                        "w/sub/x.log:1:3:a needle without end of line");
    assert_string_equal(search(w, "w/a", "need", 0, 0, &error),
                        "w/a:1:5:one needle|w/a:3:1:needle needle"); /* a file */
    assert_string_equal(search(w, "w/n.log", "need", 0, 0, &error), "w/n.log:1:1:needle");
    assert_string_equal(search(w, "w", "^(one|t.o)$", TOOL_REGEX, 0, &error), "w/a:2:1:two");
    assert_string_equal(search(w, "w", "n.*(e){2}dle$", TOOL_REGEX, 0, &error),
                        "w/a:1:2:one needle|w/a:3:1:needle needle");
    assert_string_equal(search(w, "w", "a.b", 0, 0, &error), ""); /* literal: no regex */
    (void)search(w, "w", "(", TOOL_REGEX, 0, &error);
    assert_int_equal(error, EINVAL);
    (void)search(w, "w", "(e)\\1", TOOL_REGEX, 0, &error); /* no back references */
    assert_int_equal(error, EINVAL);
    (void)search(w, "w", "", 0, 0, &error);
    assert_int_equal(error, EINVAL);
    (void)search(w, "w/none", "x", 0, 0, &error);
    assert_int_equal(error, ENOENT);
    (void)search(w, "out", "x", 0, 0, &error);
    assert_int_equal(error, EACCES);
}

/* A NUL, a byte that is no character, a line longer than what is searched of it. */
static void searches_strange_lines(void **state)
{
    const struct world *w = *state;
    uint32_t error;
    struct str text = {0};
    for (int i = 0; i < 8192; i++)
        str_putc(&text, '\n');
    str_add(&text, "a\xff\xc3\xa9z\xc3\xa9\nN\0L\n", 12);
    for (int i = 0; i < 70000; i++)
        str_putc(&text, 'x');
    str_puts(&text, "y\nend");
    put(w, "w/strange", text.data, text.len);
    assert_string_equal(search(w, "w", "^a.\xc3\xa9.\xc3\xa9$", TOOL_REGEX, 0, &error),
                        "w/strange:8193:1:a\xff\xc3\xa9z\xc3\xa9");
    assert_string_equal(search(w, "w", "^N.L$", TOOL_REGEX, 0, &error), "w/strange:8194:1:N");
    assert_string_equal(search(w, "w", "xy", TOOL_REGEX, 0, &error), "");
    assert_string_equal(search(w, "w", "^e.d$", TOOL_REGEX, 0, &error), "w/strange:8196:1:end");
    str_done(&text);
}

static void searches_within_bounds(void **state)
{
    const struct world *w = *state;
    uint32_t error;
    struct str text = {0};
    for (int i = 0; i < 50; i++)
        str_puts(&text, "hit\n");
    put(w, "w/many", text.data, text.len);
    assert_string_equal(search(w, "w", "hit", 0, 0, &error),
                        "w/many:1:1:hit|w/many:2:1:hit|w/many:3:1:hit|w/many:4:1:hit|"
                        "w/many:5:1:hit|more");
    str_clear(&text);
    for (int i = 0; i < 100000; i++)
        str_puts(&text, "0123456789");
    str_puts(&text, "needle");
    put(w, "w/many", text.data, text.len);
    char *got = search(w, "w", "needle", 0, 0, &error);
    assert_int_equal(error, 0);
    assert_true(str_starts(got, "w/many:1:1000001:"));
    assert_true(strlen(got) < 700);
    str_clear(&text); /* a regular expression that does not come back */
    for (int i = 0; i < 30000; i++)
        str_puts(&text, "ab");
    put(w, "w/many", text.data, text.len);
    uint64_t before = clock_now_ms();
    got = search(w, "w", "((((a*)*(b*)*)*){1,99}){1,99}c", TOOL_REGEX, 300, &error);
    assert_true(clock_now_ms() - before < 3000);
    assert_true(error != 0 || strstr(got, "late") || got[0] == '\0');
    before = clock_now_ms();
    (void)search(w, "w", "((((x{1,200}){1,200}){1,200}){1,200}){1,200}", TOOL_REGEX, 300, &error);
    assert_true(clock_now_ms() - before < 5000);
    str_done(&text);
}

/* A writer that is killed leaves the old file whole, and its leftover goes with the next write. */
static void is_atomic_under_kill(void **state)
{
    const struct world *w = *state;
    struct str big[2] = {{0}, {0}};
    for (int i = 0; i < 1 << 20; i++) {
        str_putc(&big[0], 'a');
        str_putc(&big[1], 'b');
    }
    put(w, "w/f", big[0].data, big[0].len);
    for (int round = 0; round < 40; round++) {
        pid_t pid = fork();
        if (pid == 0) {
            for (int i = 0;; i++)
                reply_done((struct reply[]){
                    write_file(w, at(w, "w/f"), big[i % 2].data, big[0].len, 0, NULL)});
        }
        usleep(1000 + round * 700);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        char *got = NULL;
        size_t n = 0;
        assert_int_equal(fd_read_file(AT_FDCWD, at(w, "w/f"), 4 << 20, &got, &n), 0);
        assert_int_equal(n, big[0].len);
        for (size_t i = 1; i < n; i++)
            if (got[i] != got[0])
                fail_msg("torn in round %d", round);
        free(got);
    }
    puts_(w, "w/.cordon-AAAAAAAAAAAAAAAAAAAAAA.tmp", "left by a kill");
    puts_(w, "w/.cordon-mine.tmp", "another name");
    int held = open(at(w, "w/.cordon-BBBBBBBBBBBBBBBBBBBBBB.tmp"), O_CREAT | O_WRONLY, 0600);
    assert_int_equal(flock(held, LOCK_EX), 0);
    assert_int_equal(write_text(w, at(w, "w/g"), "x", NULL), 0);
    assert_int_equal(count_entries(w, "w"), 4); /* f, g, mine, the one that is still written */
    close(held);
    assert_int_equal(write_text(w, at(w, "w/g"), "x", NULL), 0);
    assert_int_equal(count_entries(w, "w"), 3);
    str_done(&big[0]);
    str_done(&big[1]);
}

/* Eight writers at once: each write arrives whole, nothing is left. */
static void stands_concurrent_writers(void **state)
{
    const struct world *w = *state;
    pid_t pids[8];
    for (int i = 0; i < 8; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            char text[5000];
            memset(text, 'a' + i, sizeof(text));
            for (int k = 0; k < 20; k++)
                if (outcome(write_file(w, at(w, "w/f"), text, sizeof(text), 0, NULL), NULL) != 0)
                    _exit(1);
            _exit(0);
        }
    }
    for (int i = 0; i < 8; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(count_entries(w, "w"), 1);
}

static void unreadable_requests_are_answered(void **state)
{
    (void)state;
    int pair[2];
    char buf[256];
    assert_int_equal(fd_pair(pair), 0);
    struct unpack u = unpack_from("\1\0\0\0\1", 5);
    tool_call(&u, 9, -1, pair[0]);
    assert_true(recv(pair[1], buf, sizeof(buf), 0) > 9);
    assert_int_equal(buf[5], 9);
    assert_int_equal(buf[9], EBADMSG);
    close(pair[0]);
    close(pair[1]);
}

#define IN_WORLD(f) cmocka_unit_test_setup_teardown(f, world_make, world_drop)

int main(void)
{
    const struct CMUnitTest tests[] = {IN_WORLD(reads_and_writes_any_bytes_at_any_path),
                                       IN_WORLD(keeps_mode_and_honours_conditions),
                                       IN_WORLD(edits_exactly_once_or_all),
                                       IN_WORLD(stays_in_its_roots),
                                       IN_WORLD(the_most_specific_root_wins),
                                       IN_WORLD(moves_makes_and_removes),
                                       IN_WORLD(lists_and_globs),
                                       IN_WORLD(searches_what_is_not_ignored),
                                       IN_WORLD(searches_strange_lines),
                                       IN_WORLD(searches_within_bounds),
                                       IN_WORLD(is_atomic_under_kill),
                                       IN_WORLD(stands_concurrent_writers),
                                       cmocka_unit_test(unreadable_requests_are_answered)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
