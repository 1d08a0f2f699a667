/* Runs in: runner (a worker of one call). Reads: hostile. May block: files. */
#include "base/fd.h"
#include "base/mem.h"
#include "runner/call.h"
#include "runner/replace.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EDIT_FILE_MAX ((size_t)64 << 20)
#define NEW_FILE_MODE 0644

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
        return call_refuse(c, -EINVAL, TOOL_LAYER_NONE, "not a regular file");
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
        return call_refuse(c, -ESTALE, TOOL_LAYER_NONE, "the file does not exist");
    place_describe(p->dir, p->name, st, p->is_writable, &now);
    tool_etag(&now, tag);
    if (strcmp(c->rq.text, "*") == 0 || strcmp(c->rq.text, tag) == 0)
        return 0;
    return call_refuse(c, -ESTALE, TOOL_LAYER_NONE, "the file is now %s", tag);
}

int call_write(struct call *c)
{
    CLEANUP(place_done) struct place p = {.dir = -1};
    struct stat st;
    bool exists;
    if (c->content < 0)
        return call_refuse(c, -EINVAL, TOOL_LAYER_NONE, "no content came with the request");
    int r = call_open_writable(c, c->rq.path, true, &p);
    if (r == 0)
        r = check_target(c, &p, &st, &exists);
    if (r == 0)
        r = check_match(c, &p, &st, exists);
    if (r < 0)
        return r;
    mode_t new_mode = c->rq.m ? (mode_t)c->rq.m & 0777 : NEW_FILE_MODE;
    struct replacing rp = {.place = &p,
                           .fill = call_copy_content,
                           .arg = &c->content,
                           .must_be_new = (c->rq.flags & TOOL_IF_NONE_MATCH) != 0,
                           .known = c->rq.text_len > 0 ? &st : NULL,
                           .mode = exists ? st.st_mode & 0777 : new_mode};
    r = replace_file(&rp);
    if (r == 0)
        r = call_put_stat(c, &p);
    pack_u8(&c->fields, !exists);
    return r;
}

static int read_whole(struct call *c, const struct place *p, struct str *ret, struct stat *st)
{
    CLEANUP(fd_done) int fd = call_open_regular(c, p, O_RDONLY, st);
    if (fd < 0)
        return fd;
    if (st->st_size < 0 || (uint64_t)st->st_size > EDIT_FILE_MAX)
        return call_refuse(c, -EFBIG, TOOL_LAYER_NONE, "larger than %zu bytes", EDIT_FILE_MAX);
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
        return call_refuse(c, -EFBIG, TOOL_LAYER_NONE, "would become larger than %zu bytes",
                           after.max);
    if (r < 0)
        return r;
    if (n == 0)
        return call_refuse(c, -ENOMSG, TOOL_LAYER_NONE, "the old text does not occur in the file");
    if (n > 1 && !(c->rq.flags & TOOL_ALL))
        return call_refuse(c, -ENOMSG, TOOL_LAYER_NONE, "the old text occurs %u times", n);
    struct replacing rp = {
        .place = p, .fill = write_str, .arg = &after, .known = &st, .mode = st.st_mode & 0777};
    r = replace_file(&rp);
    if (r == -ESTALE)
        return call_refuse(c, r, TOOL_LAYER_NONE, "the file changed meanwhile");
    if (r == 0)
        r = call_put_stat(c, p);
    pack_u32(&c->fields, n);
    return r;
}

int call_edit(struct call *c)
{
    CLEANUP(place_done) struct place p = {.dir = -1};
    if (c->rq.text_len == 0)
        return call_refuse(c, -EINVAL, TOOL_LAYER_NONE, "the old text is empty");
    int r = call_open_writable(c, c->rq.path, true, &p);
    return r < 0 ? r : edit_place(c, &p);
}
