/* Runs in: runner (a worker and its child). Reads: hostile. May block: until its deadline. */
#include "runner/search.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include "runner/ignore.h"
#include "runner/walk.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <poll.h>
#include <regex.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define BINARY_LOOK  ((size_t)8 << 10)  /* a NUL in the first bytes: no text */
#define REGEX_LINE   ((size_t)64 << 10) /* of a longer line only the start is searched */
#define FILLER       '\1'
#define MEMORY_MAX   ((rlim_t)1 << 30) /* of the child: "(a{999}){999}" must not take the session */
#define DEPTH_ABOVE  64
#define LATE_MS      300 /* what the child may take beyond its own deadline */
#define RECORD_END   0U  /* in place of a hit's length: has_more and is_timed_out follow */
#define RECORD_FLAGS 2

/* ---- The child --------------------------------------------------------------------------------
 */
struct searcher {
    const struct search *s;
    struct walk walk;
    struct ignore ignore;
    size_t before[WALK_DEPTH_MAX + 2]; /* rules in force above each open folder */
    unsigned depth;
    regex_t regex;
    int out; /* pipe to the worker */
    uint64_t n_hits, hits_max;
    size_t n_bytes;
    bool has_more;
    char *buf;  /* SEARCH_FILE_MAX */
    char *text; /* REGEX_LINE and a NUL: the line that is matched */
};

struct span {
    size_t at, len;
};

static int put_record(int out, const void *bytes, uint32_t n)
{
    uint8_t head[4] = {(uint8_t)n, (uint8_t)(n >> 8), (uint8_t)(n >> 16), (uint8_t)(n >> 24)};
    int r = fd_write_all(out, head, sizeof(head));
    return r < 0 ? r : fd_write_all(out, bytes, n == RECORD_END ? RECORD_FLAGS : n);
}

/* The part of the line that shows the place; whole characters only when it is text. */
static struct span shown_part(const char *line, size_t n, size_t column)
{
    struct span part = {0, n};
    if (n <= SEARCH_TEXT_MAX)
        return part;
    part.at = column > SEARCH_TEXT_MAX / 4 ? column - SEARCH_TEXT_MAX / 4 : 0;
    while (part.at > 0 && ((unsigned char)line[part.at] & 0xc0) == 0x80)
        part.at--;
    size_t end = part.at + SEARCH_TEXT_MAX;
    if (end >= n)
        end = n;
    else
        while (end > part.at && ((unsigned char)line[end] & 0xc0) == 0x80)
            end--;
    part.len = end - part.at;
    return part;
}

static int put_spelled(struct str *out, const struct search *s, const char *below)
{
    below += *below == '/';
    bool has_slash = s->spelled[1] == '\0' || *below == '\0';
    return str_printf(out, "%s%s%s", s->spelled, has_slash ? "" : "/", below);
}

/* 1 when no more are wanted. */
static int put_hit(struct searcher *sr, const char *path, uint64_t line_number, const char *line,
                   size_t n, size_t column)
{
    if (sr->n_hits >= sr->hits_max || sr->n_bytes >= SEARCH_BYTES_MAX) {
        sr->has_more = true;
        return 1;
    }
    struct pack p = {0};
    const char *below = path + strlen(sr->s->resolved);
    CLEANUP(str_done) struct str shown = {0};
    (void)put_spelled(&shown, sr->s, below);
    struct span part = shown_part(line, n, column);
    pack_bytes(&p, str_c(&shown), shown.len);
    pack_u64(&p, line_number);
    pack_u64(&p, column + 1);
    pack_bytes(&p, line + part.at, part.len);
    int r = p.r < 0 ? p.r : put_record(sr->out, p.out.data, (uint32_t)p.out.len);
    sr->n_hits++;
    sr->n_bytes += p.out.len;
    pack_done(&p);
    return r;
}

/* LINE as regexec wants it: its end is a NUL, and nothing in it stops a matcher. A NUL, and where
 * characters count a byte that is part of none, stands there as a control character. */
static void set_text(struct searcher *sr, const char *line, size_t n)
{
    memcpy(sr->text, line, n);
    sr->text[n] = '\0';
    for (char *p = sr->text; (p = memchr(p, '\0', (size_t)(sr->text + n - p)));)
        *p++ = FILLER;
    if (MB_CUR_MAX == 1 || utf8_is_valid(sr->text, n))
        return;
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)sr->text[i];
        size_t len = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 1;
        if (len <= n - i && utf8_is_valid(sr->text + i, len))
            i += len;
        else
            sr->text[i++] = FILLER;
    }
}

static bool find_in_line(struct searcher *sr, const char *line, size_t n, struct span *ret)
{
    regmatch_t match;
    set_text(sr, line, n < REGEX_LINE ? n : REGEX_LINE);
    if (regexec(&sr->regex, sr->text, 1, &match, 0) != 0)
        return false;
    *ret = (struct span){(size_t)match.rm_so, (size_t)(match.rm_eo - match.rm_so)};
    return true;
}

static int search_regex(struct searcher *sr, const char *path, const char *buf, size_t n)
{
    const char *end = buf + n;
    uint64_t number = 1;
    int r = 0;
    for (const char *line = buf; r == 0 && line < end; number++) {
        const char *feed = memchr(line, '\n', (size_t)(end - line));
        const char *stop = feed ? feed : end;
        struct span found;
        if (find_in_line(sr, line, (size_t)(stop - line), &found))
            r = put_hit(sr, path, number, line, (size_t)(stop - line), found.at);
        if (number % 1024 == 0 && clock_now_ms() >= sr->walk.deadline) {
            sr->walk.is_out_of_time = true;
            r = 1;
        }
        line = feed ? feed + 1 : end;
    }
    return r;
}

static uint64_t count_lines(const char *from, const char *to)
{
    uint64_t n = 0;
    while (from < to && (from = memchr(from, '\n', (size_t)(to - from)))) {
        n++;
        from++;
    }
    return n;
}

static int search_literal(struct searcher *sr, const char *path, const char *buf, size_t n)
{
    const char *end = buf + n, *counted = buf, *from = buf;
    uint64_t number = 1;
    int r = 0;
    while (r == 0 && from < end) {
        const char *at = memmem(from, (size_t)(end - from), sr->s->pattern, sr->s->pattern_len);
        if (!at)
            break;
        const char *line = at > buf ? memrchr(buf, '\n', (size_t)(at - buf)) : NULL;
        line = line ? line + 1 : buf;
        const char *feed = memchr(at, '\n', (size_t)(end - at));
        const char *stop = feed ? feed : end;
        number += count_lines(counted, line);
        counted = line;
        r = put_hit(sr, path, number, line, (size_t)(stop - line), (size_t)(at - line));
        from = feed ? feed + 1 : end; /* one hit a line */
    }
    return r;
}

static int search_file(struct searcher *sr, int dir, const char *name, const char *path)
{
    CLEANUP(fd_done) int fd = path_open_beneath(dir, name, O_RDONLY | O_NONBLOCK, 0, false);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size == 0)
        return 0;
    ssize_t n = fd_read_all(fd, sr->buf, SEARCH_FILE_MAX);
    if (n <= 0)
        return 0;
    size_t len = (size_t)n, look = len < BINARY_LOOK ? len : BINARY_LOOK;
    if (memchr(sr->buf, '\0', look))
        return 0;
    return sr->s->is_regex ? search_regex(sr, path, sr->buf, len)
                           : search_literal(sr, path, sr->buf, len);
}

static bool search_enter(struct walk *w, int fd, const char *path)
{
    struct searcher *sr = w->arg;
    size_t before = sr->ignore.n;
    if (sr->depth > 0) { /* the start itself was asked for: nothing leaves it out */
        const char *name = path_last(path);
        if (strcmp(name, ".git") == 0 || ignore_has(&sr->ignore, path, true))
            return false;
    }
    (void)ignore_read(&sr->ignore, fd, path);
    sr->before[sr->depth++] = before;
    return true;
}

static void search_leave(struct walk *w, const char *path)
{
    struct searcher *sr = w->arg;
    (void)path;
    ignore_forget(&sr->ignore, sr->before[--sr->depth]);
}

static int search_entry(struct walk *w, int dir, const char *name, const char *path, bool is_folder)
{
    struct searcher *sr = w->arg;
    if (is_folder || ignore_has(&sr->ignore, path, false))
        return 0;
    return search_file(sr, dir, name, path);
}

/* Ignore files between the folder that holds .git and the start of the search. */
static void read_ignores_above(struct searcher *sr)
{
    CLEANUP(strv_done) struct strv above = {0};
    CLEANUP(freep) char *path = strdup(sr->s->resolved);
    bool is_found = false;
    for (unsigned i = 0; path && !is_found && i < DEPTH_ABOVE && path[1] != '\0'; i++) {
        CLEANUP(str_done) struct str git = {0};
        (void)str_printf(&git, "%s/.git", path);
        is_found = access(str_c(&git), F_OK) == 0;
        if (i > 0 && strv_add(&above, path) < 0)
            return;
        char *slash = strrchr(path, '/');
        slash[slash == path ? 1 : 0] = '\0';
    }
    for (size_t i = above.n; is_found && i > 0; i--) {
        CLEANUP(fd_done)
        int fd = path_open_beneath(AT_FDCWD, above.items[i - 1], O_PATH | O_DIRECTORY, 0, false);
        if (fd >= 0)
            (void)ignore_read(&sr->ignore, fd, above.items[i - 1]);
    }
}

static void limit_child(void)
{
#ifndef __SANITIZE_ADDRESS__ /* its shadow memory counts as address space */
    struct rlimit memory = {MEMORY_MAX, MEMORY_MAX};
    (void)setrlimit(RLIMIT_AS, &memory);
#endif
    struct rlimit core = {0, 0};
    (void)setrlimit(RLIMIT_CORE, &core);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static int search_start(struct searcher *sr)
{
    CLEANUP(fd_done)
    int fd = path_open_beneath(sr->s->dir, sr->s->name, O_RDONLY | O_NONBLOCK, 0, false);
    struct stat st;
    if (fd < 0)
        return fd;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISDIR(st.st_mode))
        return search_file(sr, sr->s->dir, sr->s->name, sr->s->resolved);
    read_ignores_above(sr);
    return walk_tree(&sr->walk, fd, sr->s->resolved);
}

static void run_child(struct searcher *sr)
{
    limit_child();
    sr->buf = malloc(SEARCH_FILE_MAX);
    sr->text = malloc(REGEX_LINE + 1);
    int r = sr->buf && sr->text ? search_start(sr) : -ENOMEM;
    uint8_t flags[RECORD_FLAGS] = {sr->has_more, sr->walk.is_out_of_time};
    if (r >= 0)
        r = put_record(sr->out, flags, RECORD_END);
    _exit(r < 0 ? -r : 0);
}

/* ---- The worker -------------------------------------------------------------------------------
 */
/* Reads until the child ends or the deadline passed; 0 also when it was cut off. */
static int collect(int in, uint64_t deadline, struct str *ret, bool *ret_late)
{
    for (;;) {
        uint64_t now = clock_now_ms();
        struct pollfd p = {.fd = in, .events = POLLIN};
        int ready = now >= deadline ? 0 : poll(&p, 1, (int)(deadline - now));
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0) {
            *ret_late = ready == 0;
            return ready < 0 ? -errno : 0;
        }
        char *room = str_room(ret, 65536);
        ssize_t n = room ? read(in, room, 65536) : -1;
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n == 0 ? 0 : room ? -errno : -ENOMEM;
        ret->len += (size_t)n;
    }
}

/* The whole records of RAW; a torn one at the end is dropped. True when the child came to its end.
 */
static bool take_records(const struct str *raw, struct search_result *ret, int *ret_r)
{
    struct unpack u = unpack_from(raw->data, raw->len);
    *ret_r = 0;
    while (*ret_r == 0) {
        size_t n = unpack_u32(&u);
        if (u.r < 0)
            return false;
        if (n == RECORD_END) {
            ret->has_more = unpack_u8(&u) != 0;
            ret->is_timed_out = unpack_u8(&u) != 0;
            return u.r == 0;
        }
        if ((size_t)(u.end - u.at) < n)
            return false;
        *ret_r = str_add(&ret->hits, u.at, n);
        u.at += n;
        ret->n++;
    }
    return false;
}

/* Kills CHILD when it must not go on, and reaps it. Its exit code, 0 for a signal of ours. */
static int end_child(pid_t child, bool is_killed)
{
    int status;
    if (is_killed)
        (void)kill(child, SIGKILL);
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    if (WIFEXITED(status))
        return -WEXITSTATUS(status);
    return is_killed ? 0 : -ENOMEM; /* killed by its limit */
}

/* No part of POSIX's extended expressions; a C library that has none would take the digit itself.
 */
static bool has_back_reference(const char *pattern)
{
    for (const char *p = pattern; (p = strchr(p, '\\')) && p[1]; p += 2)
        if (p[1] >= '1' && p[1] <= '9')
            return true;
    return false;
}

static int compile(struct searcher *sr, struct str *ret_why)
{
    const struct search *s = sr->s;
    if (s->pattern_len == 0)
        return str_puts(ret_why, "the pattern is empty") < 0 ? -ENOMEM : -EINVAL;
    if (!s->is_regex)
        return 0;
    /* Characters count where the pattern has any beyond ASCII; else bytes, which is much faster. */
    for (size_t i = 0; i < s->pattern_len; i++)
        if ((unsigned char)s->pattern[i] >= 0x80)
            (void)setlocale(LC_CTYPE, "C.UTF-8");
    int failed = memchr(s->pattern, '\0', s->pattern_len) ? REG_BADPAT
                 : has_back_reference(s->pattern)         ? REG_ESUBREG
                                                  : regcomp(&sr->regex, s->pattern, REG_EXTENDED);
    if (failed == 0)
        return 0;
    char text[160];
    (void)regerror(failed, &sr->regex, text, sizeof(text));
    (void)str_printf(ret_why, "not a regular expression: %s", text);
    return failed == REG_ESPACE ? -ENOMEM : -EINVAL;
}

static uint64_t bounded(uint64_t v, uint64_t normal, uint64_t max)
{
    return v == 0 ? normal : v > max ? max : v;
}

/* Compiling is part of what may not come back or may eat all memory, so it happens in the child; an
 * error text then travels as the only record. */
static void child_main(struct searcher *sr)
{
    CLEANUP(str_done) struct str why = {0};
    int r = compile(sr, &why);
    if (r == 0)
        run_child(sr); /* does not return */
    if (why.len > 0)
        (void)put_record(sr->out, why.data, (uint32_t)why.len);
    _exit(-r);
}

int search_run(const struct search *s, struct search_result *ret, struct str *ret_why)
{
    struct searcher sr = {.s = s, .out = -1};
    uint64_t ms = bounded(s->ms, SEARCH_MS, SEARCH_MS_MAX);
    sr.hits_max = bounded(s->hits_max, SEARCH_HITS, SEARCH_HITS_MAX);
    sr.walk = (struct walk){.deadline = clock_now_ms() + ms,
                            .arg = &sr,
                            .enter = search_enter,
                            .leave = search_leave,
                            .entry = search_entry};
    int pipes[2];
    int r = fd_pipe(pipes);
    if (r < 0)
        return r;
    pid_t child = fork();
    if (child == 0) {
        fd_close(pipes[0]);
        sr.out = pipes[1];
        child_main(&sr);
    }
    fd_close(pipes[1]);
    CLEANUP(fd_done) int in = pipes[0];
    if (child < 0)
        return -errno;
    CLEANUP(str_done) struct str raw = {0};
    bool is_late = false;
    r = collect(in, sr.walk.deadline + LATE_MS, &raw, &is_late);
    int ended = end_child(child, is_late || r < 0);
    if (r < 0)
        return r;
    if (ended == -EINVAL) {
        if (raw.len > sizeof(uint32_t))
            (void)str_add(ret_why, raw.data + sizeof(uint32_t), raw.len - sizeof(uint32_t));
        return -EINVAL;
    }
    bool is_whole = take_records(&raw, ret, &r);
    if (r == 0 && !is_whole && !is_late)
        return ended < 0 ? ended : -EIO;
    ret->is_timed_out |= !is_whole;
    return r;
}
