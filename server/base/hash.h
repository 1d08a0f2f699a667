/* SHA-256 (FIPS 180-4, by nettle) and comparing in constant time. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#define HASH_TEXT_MAX 65
void hash_sha256(const void *bytes, size_t n, unsigned char ret[static 32]);
void hash_sha256_hex(const void *bytes, size_t n, char ret[static HASH_TEXT_MAX]);
bool hash_equal(const void *a, const void *b, size_t n);
