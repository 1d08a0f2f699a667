/* Runs in: daemon, egress, runner. Reads: trusted. May block: no. */
#include "wire/rules.h"
#include "base/path.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define FILTER_ROW ((size_t)8)         /* struct sock_filter */
#define FILTER_MAX (4096 * FILTER_ROW) /* BPF_MAXINSNS */

void rules_done(struct rules *r)
{
    for (uint32_t i = 0; i < r->n_paths; i++)
        free(r->paths[i].path);
    free(r->paths);
    free(r->filter);
    memset(r, 0, sizeof(*r));
}

void rules_put(struct pack *p, const struct rules *r)
{
    pack_u8(p, r->landlock);
    pack_u32(p, r->abi);
    pack_u64(p, r->handled);
    pack_u64(p, r->scopes);
    pack_u32(p, r->n_paths);
    for (uint32_t i = 0; i < r->n_paths; i++) {
        pack_str(p, r->paths[i].path);
        pack_u64(p, r->paths[i].rights);
        pack_u8(p, r->paths[i].optional);
    }
    pack_u32(p, r->n_limits);
    for (uint32_t i = 0; i < r->n_limits && i < RULES_LIMITS_MAX; i++) {
        pack_u32(p, r->limits[i].resource);
        pack_u64(p, r->limits[i].soft);
        pack_u64(p, r->limits[i].hard);
    }
    pack_bytes(p, r->filter, r->filter_len);
}

static void get_paths(struct unpack *u, struct rules *r)
{
    uint32_t n = unpack_u32(u);
    if (n > RULES_PATHS_MAX)
        u->r = -EBADMSG;
    if (u->r < 0 || n == 0)
        return;
    r->paths = calloc(n, sizeof(*r->paths));
    if (!r->paths) {
        u->r = -ENOMEM;
        return;
    }
    for (uint32_t i = 0; i < n && u->r == 0; i++) {
        struct rules_path *row = &r->paths[r->n_paths++];
        row->path = unpack_str(u, PATH_MAX - 1);
        row->rights = unpack_u64(u);
        row->optional = unpack_u8(u);
        if (u->r == 0 && !path_is_canonical(row->path))
            u->r = -EBADMSG;
    }
}

static void get_limits(struct unpack *u, struct rules *r)
{
    uint32_t n = unpack_u32(u);
    if (n > RULES_LIMITS_MAX)
        u->r = -EBADMSG;
    for (uint32_t i = 0; i < n && u->r == 0; i++) {
        struct rules_limit *row = &r->limits[r->n_limits++];
        row->resource = unpack_u32(u);
        row->soft = unpack_u64(u);
        row->hard = unpack_u64(u);
    }
}

static void get_filter(struct unpack *u, struct rules *r)
{
    size_t n;
    const uint8_t *filter = unpack_bytes(u, FILTER_MAX, &n);
    if (n % FILTER_ROW != 0)
        u->r = -EBADMSG;
    if (u->r < 0 || n == 0)
        return;
    r->filter = malloc(n);
    if (!r->filter) {
        u->r = -ENOMEM;
        return;
    }
    memcpy(r->filter, filter, n);
    r->filter_len = (uint32_t)n;
}

int rules_get(struct unpack *u, struct rules *ret)
{
    struct rules r = {.landlock = unpack_u8(u)};
    r.abi = unpack_u32(u);
    r.handled = unpack_u64(u);
    r.scopes = unpack_u64(u);
    get_paths(u, &r);
    get_limits(u, &r);
    get_filter(u, &r);
    if (u->r < 0) {
        rules_done(&r);
        return u->r;
    }
    *ret = r;
    return 0;
}
