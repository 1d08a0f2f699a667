/* Runs in: any. Reads: hostile. May block: no. */
#include "wire/pack.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void pack_raw(struct pack *p, const void *bytes, size_t n)
{
    if (p->r == 0)
        p->r = str_add(&p->out, bytes, n);
}

static void pack_le(struct pack *p, uint64_t v, size_t n)
{
    uint8_t bytes[8];
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(v >> (8 * i));
    pack_raw(p, bytes, n);
}

void pack_u8(struct pack *p, uint8_t v)
{
    pack_le(p, v, 1);
}

void pack_u16(struct pack *p, uint16_t v)
{
    pack_le(p, v, 2);
}

void pack_u32(struct pack *p, uint32_t v)
{
    pack_le(p, v, 4);
}

void pack_u64(struct pack *p, uint64_t v)
{
    pack_le(p, v, 8);
}

void pack_bytes(struct pack *p, const void *bytes, size_t n)
{
    if (n > UINT32_MAX) {
        p->r = p->r < 0 ? p->r : -E2BIG;
        return;
    }
    pack_u32(p, (uint32_t)n);
    pack_raw(p, bytes, n);
}

void pack_str(struct pack *p, const char *s)
{
    pack_bytes(p, s ? s : "", s ? strlen(s) : 0);
}

void pack_strv(struct pack *p, char *const *items, size_t n)
{
    if (n > UINT32_MAX) {
        p->r = p->r < 0 ? p->r : -E2BIG;
        return;
    }
    pack_u32(p, (uint32_t)n);
    for (size_t i = 0; i < n; i++)
        pack_str(p, items[i]);
}

void pack_done(struct pack *p)
{
    str_done(&p->out);
}

struct unpack unpack_from(const void *bytes, size_t n)
{
    const uint8_t *p = bytes ? bytes : (const uint8_t *)"";
    return (struct unpack){.at = p, .end = p + n};
}

/* N bytes, or NULL after which every further read fails too. */
static const uint8_t *unpack_raw(struct unpack *u, size_t n)
{
    if (u->r < 0 || (size_t)(u->end - u->at) < n) {
        u->r = -EBADMSG;
        return NULL;
    }
    const uint8_t *p = u->at;
    u->at += n;
    return p;
}

static uint64_t unpack_le(struct unpack *u, size_t n)
{
    const uint8_t *p = unpack_raw(u, n);
    uint64_t v = 0;
    for (size_t i = 0; p && i < n; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

uint8_t unpack_u8(struct unpack *u)
{
    return (uint8_t)unpack_le(u, 1);
}

uint16_t unpack_u16(struct unpack *u)
{
    return (uint16_t)unpack_le(u, 2);
}

uint32_t unpack_u32(struct unpack *u)
{
    return (uint32_t)unpack_le(u, 4);
}

uint64_t unpack_u64(struct unpack *u)
{
    return unpack_le(u, 8);
}

const uint8_t *unpack_bytes(struct unpack *u, size_t max, size_t *ret_n)
{
    size_t n = unpack_u32(u);
    if (n > max)
        u->r = -EBADMSG;
    const uint8_t *p = unpack_raw(u, n);
    *ret_n = p ? n : 0;
    return p ? p : (const uint8_t *)"";
}

char *unpack_str(struct unpack *u, size_t max)
{
    size_t n;
    const uint8_t *p = unpack_bytes(u, max, &n);
    if (memchr(p, '\0', n)) {
        u->r = -EBADMSG;
        n = 0;
    }
    char *s = malloc(n + 1);
    if (!s) {
        u->r = u->r < 0 ? u->r : -ENOMEM;
        return NULL;
    }
    memcpy(s, p, n);
    s[n] = '\0';
    return s;
}

int unpack_strv(struct unpack *u, size_t max_items, size_t max_bytes, struct strv *ret)
{
    size_t n = unpack_u32(u), total = 0;
    if (n > max_items)
        u->r = -EBADMSG;
    for (size_t i = 0; i < n && u->r == 0; i++) {
        char *s = unpack_str(u, max_bytes - total);
        if (u->r == 0) {
            total += strlen(s);
            u->r = strv_add_take(ret, s);
        } else {
            free(s);
        }
    }
    return u->r;
}

int unpack_end(const struct unpack *u)
{
    return u->r < 0 ? u->r : u->at == u->end ? 0 : -EBADMSG;
}
