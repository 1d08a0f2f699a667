/* Growable bytes with a maximum, and lists of strings.
 * Zero-initialised is valid and empty ({0}); max 0 means STR_MAX_DEFAULT. Growing past the maximum
 * is -E2BIG, out of memory -ENOMEM; the content then stays as it was. */
#pragma once
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STR_MAX_DEFAULT ((size_t)64 << 20)

struct str {
    char *data; /* LEN bytes, always followed by a NUL once anything was added; NULL when never */
    size_t len, cap, max;
};
int str_add(struct str *s, const void *bytes, size_t n);
int str_puts(struct str *s, const char *text);
int str_putc(struct str *s, char c);
int str_printf(struct str *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int str_vprintf(struct str *s, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
/* Makes room for N more bytes and returns where they go, NULL on failure; add N to len when used.
 */
char *str_room(struct str *s, size_t n);
void str_consume(struct str *s, size_t n); /* drops the first N bytes */
void str_clear(struct str *s);             /* keeps the memory */
void str_done(struct str *s);
const char *str_c(const struct str *s); /* never NULL */
/* S's bytes for a terminal or a log line: control, format and non-UTF-8 bytes as \xNN or \u{N},
 * so that one event stays one line and nothing is hidden. */
int str_put_escaped(struct str *s, const void *bytes, size_t n);
int str_put_base64(struct str *s, const void *bytes, size_t n); /* RFC 4648, 4 */

struct strv {
    char **items; /* N owned strings and a NULL behind them; NULL when never added to */
    size_t n, cap;
};
int strv_add(struct strv *v, const char *s);
int strv_add_take(struct strv *v, char *take_s); /* takes also on failure; NULL is -ENOMEM */
int strv_addf(struct strv *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool strv_has(const struct strv *v, const char *s);
int strv_copy(struct strv *to, const struct strv *from);
void strv_done(struct strv *v);

bool utf8_is_valid(const void *bytes, size_t n); /* RFC 3629: no surrogates, no overlong forms */
bool str_starts(const char *s, const char *prefix);
/* Levenshtein distance, for "did you mean"; capped at 9. */
unsigned str_distance(const char *a, const char *b);
/* Digits only, MIN..MAX, nothing before or behind; -EINVAL, -ERANGE. */
int parse_u64(const char *s, uint64_t min, uint64_t max, uint64_t *ret);
