/* Runs in: fetch. Reads: hostile (pages). May block: no. */
#include "fetch/charset.h"
#include "base/mem.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define META_BYTES 1024
#define REPLACED   0xfffdU

enum encoding { ENC_UTF8 = 0, ENC_1252, ENC_UTF16LE, ENC_UTF16BE };

static const struct {
    const char *label;
    enum encoding encoding;
} LABELS[] = {
    {"utf-8", ENC_UTF8},       {"utf8", ENC_UTF8},       {"windows-1252", ENC_1252},
    {"cp1252", ENC_1252},      {"iso-8859-1", ENC_1252}, {"iso8859-1", ENC_1252},
    {"latin1", ENC_1252},      {"us-ascii", ENC_1252},   {"ascii", ENC_1252},
    {"iso-8859-15", ENC_1252}, {"utf-16", ENC_UTF16LE},  {"utf-16le", ENC_UTF16LE},
    {"utf-16be", ENC_UTF16BE},
};

/* windows-1252, 0x80 to 0x9f. */
static const uint16_t HIGH_1252[32] = {
    0x20ac, 0xfffd, 0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021, 0x02c6, 0x2030, 0x0160,
    0x2039, 0x0152, 0xfffd, 0x017d, 0xfffd, 0xfffd, 0x2018, 0x2019, 0x201c, 0x201d, 0x2022,
    0x2013, 0x2014, 0x02dc, 0x2122, 0x0161, 0x203a, 0x0153, 0xfffd, 0x017e, 0x0178};

int charset_put(struct str *out, uint32_t c)
{
    char b[4];
    size_t n;
    if ((c < 0x20 && c != '\n' && c != '\t') || (c >= 0x7f && c < 0xa0))
        return c == '\r' ? 0 : str_putc(out, ' ');
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        c = REPLACED;
    if (c < 0x80) {
        b[0] = (char)c;
        n = 1;
    } else if (c < 0x800) {
        b[0] = (char)(0xc0 | (c >> 6));
        b[1] = (char)(0x80 | (c & 0x3f));
        n = 2;
    } else if (c < 0x10000) {
        b[0] = (char)(0xe0 | (c >> 12));
        b[1] = (char)(0x80 | ((c >> 6) & 0x3f));
        b[2] = (char)(0x80 | (c & 0x3f));
        n = 3;
    } else {
        b[0] = (char)(0xf0 | (c >> 18));
        b[1] = (char)(0x80 | ((c >> 12) & 0x3f));
        b[2] = (char)(0x80 | ((c >> 6) & 0x3f));
        b[3] = (char)(0x80 | (c & 0x3f));
        n = 4;
    }
    return str_add(out, b, n);
}

/* ---- Which encoding ------------------------------------------------------------------------- */

static bool label_find(const char *text, size_t n, enum encoding *ret)
{
    while (n > 0 && (*text == ' ' || *text == '"' || *text == '\'')) {
        text++;
        n--;
    }
    for (size_t i = 0; i < ARRAY_LEN(LABELS); i++) {
        size_t len = strlen(LABELS[i].label);
        bool ends = n == len || (n > len && strchr(" \"';,/>\t\r\n", text[len]));
        if (n >= len && ends && strncasecmp(text, LABELS[i].label, len) == 0) {
            *ret = LABELS[i].encoding;
            return true;
        }
    }
    return false;
}

/* What stands behind "charset=", in a type or in the head of a page. */
static bool charset_named(const char *text, size_t n, enum encoding *ret)
{
    static const char WORD[] = "charset=";
    size_t len = sizeof WORD - 1;
    for (size_t i = 0; i + len <= n; i++)
        if (strncasecmp(text + i, WORD, len) == 0)
            return label_find(text + i + len, n - i - len, ret);
    return false;
}

/* The bytes of a byte order mark are passed over. */
static bool mark_take(const char **bytes, size_t *n, enum encoding *ret)
{
    static const struct {
        const char *mark;
        size_t n;
        enum encoding encoding;
    } MARKS[] = {
        {"\xef\xbb\xbf", 3, ENC_UTF8}, {"\xff\xfe", 2, ENC_UTF16LE}, {"\xfe\xff", 2, ENC_UTF16BE}};
    for (size_t i = 0; i < ARRAY_LEN(MARKS); i++)
        if (*n >= MARKS[i].n && memcmp(*bytes, MARKS[i].mark, MARKS[i].n) == 0) {
            *bytes += MARKS[i].n;
            *n -= MARKS[i].n;
            *ret = MARKS[i].encoding;
            return true;
        }
    return false;
}

/* ---- Decoding ------------------------------------------------------------------------------- */

/* One code point of UTF-8 (RFC 3629) at BYTES; the bytes it took. */
static size_t utf8_next(const unsigned char *b, size_t n, uint32_t *ret)
{
    static const uint32_t LEAST[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t len = b[0] < 0x80                   ? 1
                 : b[0] >= 0xc2 && b[0] < 0xe0 ? 2
                 : (b[0] & 0xf0) == 0xe0       ? 3
                 : b[0] >= 0xf0 && b[0] < 0xf5 ? 4
                                               : 0;
    uint32_t c = len == 1 ? b[0] : len > 1 ? b[0] & (0x7fU >> len) : REPLACED;
    *ret = REPLACED;
    if (len == 0 || len > n)
        return 1;
    for (size_t i = 1; i < len; i++) {
        if ((b[i] & 0xc0) != 0x80)
            return i;
        c = c << 6 | (b[i] & 0x3fU);
    }
    if (c >= LEAST[len] && c <= 0x10ffff && !(c >= 0xd800 && c < 0xe000))
        *ret = c;
    return len;
}

static size_t utf16_next(const unsigned char *b, size_t n, bool is_be, uint32_t *ret)
{
    *ret = REPLACED;
    if (n < 2)
        return n;
    uint32_t c = is_be ? (uint32_t)(b[0] << 8 | b[1]) : (uint32_t)(b[1] << 8 | b[0]);
    if (c < 0xd800 || c >= 0xe000) {
        *ret = c;
        return 2;
    }
    if (c >= 0xdc00 || n < 4)
        return 2;
    uint32_t d = is_be ? (uint32_t)(b[2] << 8 | b[3]) : (uint32_t)(b[3] << 8 | b[2]);
    if (d < 0xdc00 || d >= 0xe000)
        return 2;
    *ret = 0x10000 + ((c & 0x3ff) << 10) + (d & 0x3ff);
    return 4;
}

static size_t next(enum encoding encoding, const unsigned char *b, size_t n, uint32_t *ret)
{
    switch (encoding) {
    case ENC_UTF8:
        return utf8_next(b, n, ret);
    case ENC_UTF16LE:
    case ENC_UTF16BE:
        return utf16_next(b, n, encoding == ENC_UTF16BE, ret);
    case ENC_1252:
        break;
    }
    *ret = b[0] >= 0x80 && b[0] < 0xa0 ? HIGH_1252[b[0] - 0x80] : b[0];
    return 1;
}

int charset_decode(const char *type, const char *bytes, size_t n, bool is_html, struct str *out)
{
    enum encoding encoding = ENC_UTF8;
    size_t meta = n < META_BYTES ? n : META_BYTES;
    if (!mark_take(&bytes, &n, &encoding) && !charset_named(type, strlen(type), &encoding) &&
        !(is_html && charset_named(bytes, meta, &encoding)) && !strstr(type, "charset=") &&
        !utf8_is_valid(bytes, n))
        encoding = ENC_1252;
    for (size_t at = 0; at < n;) {
        uint32_t c;
        at += next(encoding, (const unsigned char *)bytes + at, n - at, &c);
        int r = charset_put(out, c);
        if (r < 0)
            return r;
    }
    return 0;
}
