/* Runs in: any. Reads: hostile. May block: no. */
#include "base/hash.h"
#include <nettle/sha2.h>

void hash_sha256(const void *bytes, size_t n, unsigned char ret[static 32])
{
    struct sha256_ctx ctx;
    sha256_init(&ctx);
    sha256_update(&ctx, n, bytes);
    sha256_digest(&ctx, 32, ret);
}

void hash_sha256_hex(const void *bytes, size_t n, char ret[static HASH_TEXT_MAX])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char raw[32];
    hash_sha256(bytes, n, raw);
    for (size_t i = 0; i < sizeof(raw); i++) {
        ret[i * 2] = digits[raw[i] >> 4];
        ret[i * 2 + 1] = digits[raw[i] & 15];
    }
    ret[64] = '\0';
}

bool hash_equal(const void *a, const void *b, size_t n)
{
    const volatile unsigned char *x = a, *y = b;
    unsigned char different = 0;
    for (size_t i = 0; i < n; i++)
        different |= (unsigned char)(x[i] ^ y[i]);
    return different == 0;
}
