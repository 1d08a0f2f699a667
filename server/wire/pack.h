/* Fields as bytes, for the payload of a frame: little-endian integers, strings and byte strings
 * with a u32 length before them. Pure. Packing remembers the first error (r) and does nothing more;
 * unpacking likewise, and hands out zeros and empty strings after it, so that a reader checks once
 * at the end with unpack_end(). Nothing is copied: unpacked strings point into the payload. */
#pragma once
#include "base/str.h"
#include <stdint.h>

struct pack {
    struct str out;
    int r;
};
void pack_u8(struct pack *p, uint8_t v);
void pack_u16(struct pack *p, uint16_t v);
void pack_u32(struct pack *p, uint32_t v);
void pack_u64(struct pack *p, uint64_t v);
void pack_bytes(struct pack *p, const void *bytes, size_t n);
void pack_str(struct pack *p, const char *s); /* NULL is the empty string */
void pack_strv(struct pack *p, char *const *items, size_t n);
void pack_done(struct pack *p);

struct unpack {
    const uint8_t *at, *end;
    int r; /* 0; -EBADMSG after the first thing that did not fit; -ENOMEM */
};
struct unpack unpack_from(const void *bytes, size_t n);
uint8_t unpack_u8(struct unpack *u);
uint16_t unpack_u16(struct unpack *u);
uint32_t unpack_u32(struct unpack *u);
uint64_t unpack_u64(struct unpack *u);
const uint8_t *unpack_bytes(struct unpack *u, size_t max, size_t *ret_n); /* never NULL */
/* malloc'ed, NUL-terminated; a NUL inside is an error; never more than MAX bytes. NULL only when
 * memory ran out; free it in every case. */
char *unpack_str(struct unpack *u, size_t max);
int unpack_strv(struct unpack *u, size_t max_items, size_t max_bytes, struct strv *ret);
int unpack_end(const struct unpack *u); /* 0 when all was read and everything fitted */
