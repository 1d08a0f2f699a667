/* Runs in: runner (a worker of one call). Reads: hostile. May block: files. */
#include "runner/call.h"
#include "base/fd.h"
#include "base/mem.h"
#include "wire/tool.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define COPY_STEP ((size_t)256 << 10)

int call_refuse(struct call *c, int r, uint8_t layer, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(c->detail, sizeof(c->detail), fmt, ap);
    va_end(ap);
    c->answer.layer = layer;
    return r;
}

int call_open(struct call *c, const char *path, bool follow, struct place *ret)
{
    uint8_t layer = TOOL_LAYER_NONE;
    int r = place_open(&c->rq.roots, path, follow, ret, &layer);
    if (layer == TOOL_LAYER_ROOTS)
        return call_refuse(c, r, layer, "outside of the session's folders");
    return r;
}

int call_open_writable(struct call *c, const char *path, bool follow, struct place *ret)
{
    int r = call_open(c, path, follow, ret);
    if (r == 0 && !ret->is_writable)
        return call_refuse(c, -EROFS, TOOL_LAYER_READ_ONLY, "in a folder that is read-only here");
    return r;
}

int call_open_movable(struct call *c, const char *path, struct place *ret)
{
    int r = call_open_writable(c, path, false, ret);
    if (r < 0)
        return r;
    if (ret->is_root || strcmp(ret->path, "/") == 0)
        return call_refuse(c, -EACCES, TOOL_LAYER_ROOTS, "is one of the session's own folders");
    if (place_holds_read_only(&c->rq.roots, ret))
        return call_refuse(c, -EROFS, TOOL_LAYER_READ_ONLY,
                           "holds a folder that is read-only here");
    return 0;
}

int call_open_regular(struct call *c, const struct place *p, int flags, struct stat *ret)
{
    int fd = place_open_entry(p, flags | O_NONBLOCK);
    if (fd < 0)
        return fd;
    if (fstat(fd, ret) == 0 && S_ISREG(ret->st_mode))
        return fd;
    bool is_folder = S_ISDIR(ret->st_mode);
    fd_close(fd);
    return is_folder ? -EISDIR : call_refuse(c, -EINVAL, TOOL_LAYER_NONE, "not a regular file");
}

int call_put_stat(struct call *c, const struct place *p)
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

int call_copy_content(int to, void *arg)
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
