/* Runs in: any. Reads: hostile. May block: no. */
#include "base/str.h"
#include "base/mem.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes the capacity at least LEN + N + 1. */
static int str_grow(struct str *s, size_t n)
{
    size_t max = s->max ? s->max : STR_MAX_DEFAULT;
    if (n > max || s->len > max - n)
        return -E2BIG;
    size_t want = s->len + n + 1;
    if (want <= s->cap)
        return 0;
    size_t cap = s->cap ? s->cap : 32;
    while (cap < want)
        cap *= 2;
    char *data = realloc(s->data, cap);
    if (!data)
        return -ENOMEM;
    s->data = data;
    s->cap = cap;
    return 0;
}

int str_add(struct str *s, const void *bytes, size_t n)
{
    int r = str_grow(s, n);
    if (r < 0)
        return r;
    if (n > 0)
        memcpy(s->data + s->len, bytes, n);
    s->len += n;
    s->data[s->len] = '\0';
    return 0;
}

int str_puts(struct str *s, const char *text)
{
    return str_add(s, text, strlen(text));
}

int str_putc(struct str *s, char c)
{
    return str_add(s, &c, 1);
}

int str_vprintf(struct str *s, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    int r = n < 0 ? -EINVAL : str_grow(s, (size_t)n);
    if (r == 0) {
        (void)vsnprintf(s->data + s->len, (size_t)n + 1, fmt, again);
        s->len += (size_t)n;
    }
    va_end(again);
    return r;
}

int str_printf(struct str *s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int r = str_vprintf(s, fmt, ap);
    va_end(ap);
    return r;
}

char *str_room(struct str *s, size_t n)
{
    return str_grow(s, n) < 0 ? NULL : s->data + s->len;
}

void str_consume(struct str *s, size_t n)
{
    if (n > s->len)
        n = s->len;
    if (n == 0)
        return;
    s->len -= n;
    memmove(s->data, s->data + n, s->len);
    s->data[s->len] = '\0';
}

void str_clear(struct str *s)
{
    s->len = 0;
    if (s->data)
        s->data[0] = '\0';
}

void str_done(struct str *s)
{
    free(s->data);
    s->data = NULL;
    s->len = s->cap = 0;
}

const char *str_c(const struct str *s)
{
    return s->data ? s->data : "";
}

/* Length of the UTF-8 sequence at P (RFC 3629, section 4), 0 when it is none. */
static size_t utf8_next(const unsigned char *p, size_t n, uint32_t *ret)
{
    unsigned char c = p[0];
    if (c < 0x80) {
        *ret = c;
        return 1;
    }
    size_t len = c >= 0xc2 && c <= 0xdf   ? 2
                 : (c & 0xf0) == 0xe0     ? 3
                 : c >= 0xf0 && c <= 0xf4 ? 4
                                          : 0;
    if (len == 0 || len > n)
        return 0;
    uint32_t v = c & (0x7fU >> len);
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        v = v << 6 | (p[i] & 0x3fU);
    }
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (v < least[len] || v > 0x10ffff || (v >= 0xd800 && v <= 0xdfff))
        return 0;
    *ret = v;
    return len;
}

/* Controls, separators and format characters (general categories Cc, Cf, Zl, Zp of Unicode 15). */
static bool is_hidden(uint32_t c)
{
    static const struct {
        uint32_t first, last;
    } ranges[] = {{0x0000, 0x001f},   {0x007f, 0x009f},   {0x00ad, 0x00ad},   {0x0600, 0x0605},
                  {0x061c, 0x061c},   {0x06dd, 0x06dd},   {0x070f, 0x070f},   {0x0890, 0x0891},
                  {0x08e2, 0x08e2},   {0x180e, 0x180e},   {0x200b, 0x200f},   {0x2028, 0x202e},
                  {0x2060, 0x206f},   {0xfeff, 0xfeff},   {0xfff9, 0xfffb},   {0x110bd, 0x110bd},
                  {0x110cd, 0x110cd}, {0x13430, 0x1343f}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a},
                  {0xe0000, 0xe007f}};
    for (size_t i = 0; i < ARRAY_LEN(ranges); i++)
        if (c >= ranges[i].first && c <= ranges[i].last)
            return true;
    return false;
}

int str_put_escaped(struct str *s, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    int r = 0;
    for (size_t i = 0; i < n && r == 0;) {
        uint32_t c;
        size_t len = utf8_next(p + i, n - i, &c);
        if (len == 0 || (len == 1 && is_hidden(c)))
            r = str_printf(s, "\\x%02x", p[i]);
        else if (c == '\\') /* else a name could pretend to be an escape */
            r = str_puts(s, "\\\\");
        else if (is_hidden(c))
            r = str_printf(s, "\\u{%x}", c);
        else
            r = str_add(s, p + i, len);
        i += len ? len : 1;
    }
    return r;
}

bool utf8_is_valid(const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    for (size_t i = 0; i < n;) {
        uint32_t c;
        size_t len = utf8_next(p + i, n - i, &c);
        if (len == 0)
            return false;
        i += len;
    }
    return true;
}

int strv_add_take(struct strv *v, char *take_s)
{
    if (!take_s)
        return -ENOMEM;
    if (v->n + 2 > v->cap) {
        size_t cap = v->cap ? v->cap * 2 : 8;
        char **items = realloc(v->items, cap * sizeof(*items));
        if (!items) {
            free(take_s);
            return -ENOMEM;
        }
        v->items = items;
        v->cap = cap;
    }
    v->items[v->n++] = take_s;
    v->items[v->n] = NULL;
    return 0;
}

int strv_add(struct strv *v, const char *s)
{
    return strv_add_take(v, strdup(s));
}

int strv_addf(struct strv *v, const char *fmt, ...)
{
    char *s = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&s, fmt, ap);
    va_end(ap);
    return strv_add_take(v, n < 0 ? NULL : s);
}

bool strv_has(const struct strv *v, const char *s)
{
    for (size_t i = 0; i < v->n; i++)
        if (strcmp(v->items[i], s) == 0)
            return true;
    return false;
}

int strv_copy(struct strv *to, const struct strv *from)
{
    int r = 0;
    for (size_t i = 0; i < from->n && r == 0; i++)
        r = strv_add(to, from->items[i]);
    return r;
}

void strv_done(struct strv *v)
{
    for (size_t i = 0; i < v->n; i++)
        free(v->items[i]);
    free(v->items);
    v->items = NULL;
    v->n = v->cap = 0;
}

bool str_starts(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

#define DISTANCE_MAX 9
#define DISTANCE_LEN 64 /* longer words are never meant */

unsigned str_distance(const char *a, const char *b)
{
    size_t la = strlen(a), lb = strlen(b);
    if (la > DISTANCE_LEN || lb > DISTANCE_LEN)
        return DISTANCE_MAX;
    unsigned row[DISTANCE_LEN + 1];
    for (size_t j = 0; j <= lb; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; i <= la; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= lb; j++) {
            unsigned change = diagonal + (a[i - 1] != b[j - 1]);
            unsigned other = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = change < other ? change : other;
        }
    }
    return row[lb] > DISTANCE_MAX ? DISTANCE_MAX : row[lb];
}

int parse_u64(const char *s, uint64_t min, uint64_t max, uint64_t *ret)
{
    uint64_t v = 0;
    if (*s == '\0')
        return -EINVAL;
    bool is_large = false;
    for (; *s; s++) {
        if (*s < '0' || *s > '9')
            return -EINVAL;
        is_large |= __builtin_mul_overflow(v, 10, &v);
        is_large |= __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v);
    }
    if (is_large || v < min || v > max)
        return -ERANGE;
    *ret = v;
    return 0;
}

int str_put_base64(struct str *out, const void *bytes, size_t n)
{
    static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *in = bytes;
    char *to = str_room(out, (n + 2) / 3 * 4 + 1);
    size_t len = 0;

    if (!to)
        return -ENOMEM;
    for (size_t i = 0; i < n; i += 3) {
        unsigned left = n - i > 2 ? 3 : (unsigned)(n - i);
        unsigned v = (unsigned)in[i] << 16 | (left > 1 ? (unsigned)in[i + 1] << 8 : 0) |
                     (left > 2 ? in[i + 2] : 0u);
        to[len++] = DIGITS[v >> 18];
        to[len++] = DIGITS[v >> 12 & 63];
        to[len++] = left > 1 ? DIGITS[v >> 6 & 63] : '=';
        to[len++] = left > 2 ? DIGITS[v & 63] : '=';
    }
    to[len] = '\0';
    out->len += len;
    return 0;
}
