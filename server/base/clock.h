/* Time and ids. */
#pragma once
#include <stddef.h>
#include <stdint.h>

uint64_t clock_now_ms(void); /* CLOCK_MONOTONIC */
int64_t clock_wall_ms(void); /* since 1970, UTC */
#define CLOCK_TEXT_MAX 25
void clock_text(int64_t wall_ms, char ret[static CLOCK_TEXT_MAX]); /* 2026-12-01T09:30:00.120Z */
int clock_parse(const char *text, int64_t *ret_wall_ms); /* RFC 3339, any offset; -EINVAL */

#define ID_MAX 31 /* prefix of 3, '_', 26 of a ULID, NUL */
/* PREFIX + '_' + ULID (Crockford base 32, 48 bits of ms, 80 random; increasing within a ms). */
void id_new(const char *prefix, char ret[static ID_MAX]);
int id_is(const char *text, const char *prefix); /* 1 when TEXT has that form */

int random_bytes(void *ret, size_t n);                  /* getrandom(2); never short */
void base64url(const void *bytes, size_t n, char *ret); /* no padding; (n*4+2)/3+1 bytes */
