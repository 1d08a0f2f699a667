/* Runs in: any. Reads: hostile. May block: no. */
#include "wire/frame.h"
#include <errno.h>

static uint32_t frame_length(const char *head)
{
    const uint8_t *p = (const uint8_t *)head;
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

int frame_feed(struct frame_reader *fr, const void *bytes, size_t n)
{
    str_consume(&fr->in, fr->used);
    fr->used = 0;
    /* One frame and one read of the socket more: an owner that asks for frames never gets there. */
    if (fr->in.len + n > 2 * (FRAME_HEAD + FRAME_MAX))
        return -EMSGSIZE;
    return str_add(&fr->in, bytes, n);
}

int frame_next(struct frame_reader *fr, struct frame *ret)
{
    size_t have = fr->in.len - fr->used;
    if (have < 4)
        return 0;
    const char *at = fr->in.data + fr->used;
    size_t n = frame_length(at); /* kind and payload */
    if (n == 0 || n > FRAME_MAX + 1)
        return -EBADMSG;
    if (have < 4 + n)
        return 0;
    ret->kind = (uint8_t)at[4];
    ret->payload = (const uint8_t *)at + FRAME_HEAD;
    ret->len = n - 1;
    fr->used += 4 + n;
    return 1;
}

void frame_reader_done(struct frame_reader *fr)
{
    str_done(&fr->in);
    fr->used = 0;
}

int frame_put(struct str *out, uint8_t kind, const void *payload, size_t n)
{
    if (n > FRAME_MAX)
        return -EMSGSIZE;
    uint32_t len = (uint32_t)n + 1;
    uint8_t head[FRAME_HEAD] = {(uint8_t)len, (uint8_t)(len >> 8), (uint8_t)(len >> 16),
                                (uint8_t)(len >> 24), kind};
    if (!str_room(out, FRAME_HEAD + n)) /* all or nothing */
        return -ENOMEM;
    (void)str_add(out, head, FRAME_HEAD);
    (void)str_add(out, payload, n);
    return 0;
}
