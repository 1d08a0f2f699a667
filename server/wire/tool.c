/* Runs in: daemon, runner. Reads: hostile. May block: no. */
#include "wire/tool.h"
#include "base/path.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tool_put_stat(struct pack *p, const struct tool_stat *s)
{
    pack_u8(p, s->type);
    pack_u64(p, s->size);
    pack_u32(p, s->mode);
    pack_u64(p, s->mtime_ns);
    pack_u64(p, s->ino);
    pack_u8(p, s->access);
}

void tool_get_stat(struct unpack *u, struct tool_stat *ret)
{
    ret->type = unpack_u8(u);
    ret->size = unpack_u64(u);
    ret->mode = unpack_u32(u);
    ret->mtime_ns = unpack_u64(u);
    ret->ino = unpack_u64(u);
    ret->access = unpack_u8(u);
}

void tool_etag(const struct tool_stat *s, char ret[static TOOL_ETAG_MAX])
{
    (void)snprintf(ret, TOOL_ETAG_MAX, "\"%llx-%llx-%llx\"", (unsigned long long)s->ino,
                   (unsigned long long)s->size, (unsigned long long)s->mtime_ns);
}

void tool_request_put(struct pack *p, const struct tool_request *rq)
{
    pack_u32(p, rq->id);
    pack_u8(p, rq->op);
    pack_u8(p, rq->flags);
    pack_strv(p, rq->roots.items, rq->roots.n);
    pack_str(p, rq->path);
    pack_str(p, rq->path2);
    pack_bytes(p, rq->text, rq->text_len);
    pack_bytes(p, rq->text2, rq->text2_len);
    pack_u64(p, rq->n);
    pack_u64(p, rq->m);
}

static char *get_text(struct unpack *u, size_t *ret_n)
{
    const uint8_t *bytes = unpack_bytes(u, TOOL_TEXT_MAX, ret_n);
    char *copy = malloc(*ret_n + 1);
    if (!copy) {
        u->r = -ENOMEM;
        *ret_n = 0;
        return NULL;
    }
    memcpy(copy, bytes, *ret_n);
    copy[*ret_n] = '\0';
    return copy;
}

static bool is_root(const char *root)
{
    return (str_starts(root, "rw:") || str_starts(root, "ro:")) && path_is_canonical(root + 3);
}

int tool_request_get(struct unpack *u, struct tool_request *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->id = unpack_u32(u);
    ret->op = unpack_u8(u);
    ret->flags = unpack_u8(u);
    (void)unpack_strv(u, TOOL_ROOTS_MAX, (size_t)TOOL_ROOTS_MAX * PATH_MAX, &ret->roots);
    ret->path = unpack_str(u, PATH_MAX - 1);
    ret->path2 = unpack_str(u, PATH_MAX - 1);
    ret->text = get_text(u, &ret->text_len);
    ret->text2 = get_text(u, &ret->text2_len);
    ret->n = unpack_u64(u);
    ret->m = unpack_u64(u);
    for (size_t i = 0; i < ret->roots.n && u->r == 0; i++)
        if (!is_root(ret->roots.items[i]))
            u->r = -EBADMSG;
    if (u->r == 0 && (!path_is_canonical(ret->path) ||
                      (ret->path2[0] != '\0' && !path_is_canonical(ret->path2))))
        u->r = -EBADMSG;
    return unpack_end(u);
}

void tool_request_done(struct tool_request *rq)
{
    strv_done(&rq->roots);
    free(rq->path);
    free(rq->path2);
    free(rq->text);
    free(rq->text2);
    memset(rq, 0, sizeof(*rq));
}

void tool_answer_put(struct pack *p, const struct tool_answer *a)
{
    pack_u32(p, a->id);
    pack_u32(p, a->error);
    pack_u8(p, a->layer);
    pack_u8(p, a->n_fds);
    pack_str(p, a->detail);
}

int tool_answer_get(struct unpack *u, struct tool_answer *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->id = unpack_u32(u);
    ret->error = unpack_u32(u);
    ret->layer = unpack_u8(u);
    ret->n_fds = unpack_u8(u);
    ret->detail = unpack_str(u, 4096);
    return u->r;
}

void tool_answer_done(struct tool_answer *a)
{
    free(a->detail);
    memset(a, 0, sizeof(*a));
}
