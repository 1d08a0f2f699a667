/* Runs in: daemon, runner (stage). Reads: trusted. May block: no. */
#include "wire/order.h"
#include "base/path.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define DATA_MAX ((size_t)256 << 10)

void join_done(struct join *j)
{
    free(j->source);
    free(j->target);
    free(j->data);
    memset(j, 0, sizeof(*j));
}

void order_put_join(struct pack *p, const struct join *j)
{
    pack_u8(p, (uint8_t)j->kind);
    pack_u32(p, j->flags);
    pack_u32(p, j->mode);
    pack_u64(p, j->dev);
    pack_u64(p, j->ino);
    pack_str(p, j->source);
    pack_str(p, j->target);
    pack_bytes(p, j->data, j->data_len);
}

/* What SOURCE must be for each kind. */
static int check_source(const struct join *j)
{
    switch (j->kind) {
    case JOIN_BIND:
    case JOIN_ETC:
        return path_is_canonical(j->source) ? 0 : -EBADMSG;
    case JOIN_LINK:
        return j->source[0] != '\0' ? 0 : -EBADMSG;
    case JOIN_DIR:
    case JOIN_DATA:
    case JOIN_HIDE:
    case JOIN_COVER:
        return j->source[0] == '\0' ? 0 : -EBADMSG;
    }
    return -EBADMSG;
}

int order_get_join(struct unpack *u, struct join *ret)
{
    struct join j = {.kind = (enum join_kind)unpack_u8(u)};
    j.flags = unpack_u32(u);
    j.mode = unpack_u32(u);
    j.dev = unpack_u64(u);
    j.ino = unpack_u64(u);
    j.source = unpack_str(u, PATH_MAX - 1);
    j.target = unpack_str(u, PATH_MAX - 1);
    size_t n;
    const uint8_t *data = unpack_bytes(u, DATA_MAX, &n);
    j.data = malloc(n + 1);
    if (!j.data)
        u->r = -ENOMEM;
    if (u->r == 0 && (check_source(&j) < 0 || !path_is_canonical(j.target)))
        u->r = -EBADMSG;
    if (u->r < 0) {
        join_done(&j);
        return u->r;
    }
    memcpy(j.data, data, n);
    j.data[n] = '\0';
    j.data_len = n;
    *ret = j;
    return 0;
}

void order_head_done(struct order_head *h)
{
    free(h->root);
    free(h->runner);
    memset(h, 0, sizeof(*h));
}

void order_put_head(struct pack *p, const struct order_head *h)
{
    pack_u32(p, h->ppid);
    pack_u32(p, h->uid);
    pack_u32(p, h->gid);
    pack_u32(p, h->pid_max);
    pack_u8(p, h->net);
    pack_u16(p, h->door_port);
    pack_u8(p, h->redirect);
    pack_u32(p, h->n_joins);
    pack_str(p, h->root);
    pack_str(p, h->runner);
}

int order_get_head(struct unpack *u, struct order_head *ret)
{
    struct order_head h = {.ppid = unpack_u32(u)};
    h.uid = unpack_u32(u);
    h.gid = unpack_u32(u);
    h.pid_max = unpack_u32(u);
    h.net = unpack_u8(u);
    h.door_port = unpack_u16(u);
    h.redirect = unpack_u8(u);
    h.n_joins = unpack_u32(u);
    h.root = unpack_str(u, PATH_MAX - 1);
    h.runner = unpack_str(u, PATH_MAX - 1);
    if (u->r == 0 && (h.net > ORDER_NET_DOORS || h.redirect > 1 || h.n_joins > ORDER_JOINS_MAX ||
                      !path_is_canonical(h.root) || !path_is_canonical(h.runner)))
        u->r = -EBADMSG;
    if (u->r < 0) {
        order_head_done(&h);
        return u->r;
    }
    *ret = h;
    return 0;
}
