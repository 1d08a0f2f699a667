/* Runs in: daemon. Reads: hostile (files of a project). May block: no.
 *
 * Strings, numbers, booleans and dates (toml.io/en/v1.0.0). */
#include "base/mem.h"
#include "config/toml_parts.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Strings ----------------------------------------------------------------------------------
 */

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* UTF-8 of a code point (RFC 3629, 3). */
static int put_code_point(struct str *out, uint32_t c)
{
    char bytes[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char LEAD[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n; i-- > 1; c >>= 6)
        bytes[i] = (char)(0x80 | (c & 0x3f));
    bytes[0] = (char)(LEAD[n] | c);
    return str_add(out, bytes, n);
}

static int read_unicode(struct reader *rd, size_t digits, struct str *out)
{
    uint32_t c = 0;
    for (size_t i = 0; i < digits; i++, rd->at++) {
        char d = peek(rd);
        if (!is_hex(d))
            return toml_bad(rd, "an escape \\%c has %zu hexadecimal digits",
                            digits == 4 ? 'u' : 'U', digits);
        c = c << 4 | (uint32_t)(is_digit(d) ? d - '0' : (d | 0x20) - 'a' + 10);
    }
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return toml_bad(rd, "U+%04X is no character", (unsigned)c);
    return put_code_point(out, c);
}

/* At the backslash. */
static int read_escape(struct reader *rd, struct str *out)
{
    static const char FROM[] = "btnfr\"\\", TO[] = "\b\t\n\f\r\"\\";
    char c = peek_at(rd, 1);
    const char *known = c ? strchr(FROM, c) : NULL;
    rd->at += c ? 2 : 1;
    if (known)
        return str_putc(out, TO[known - FROM]);
    if (c == 'u' || c == 'U')
        return read_unicode(rd, c == 'u' ? 4 : 8, out);
    return toml_bad(rd, "no such escape in a string; a backslash itself is written \\\\");
}

/* A backslash at the end of a line: the white space up to the next character is left out. */
static bool skip_line_end(struct reader *rd)
{
    const char *from = rd->at++;
    while (peek(rd) == ' ' || peek(rd) == '\t')
        rd->at++;
    if (!newline_here(rd)) {
        rd->at = from;
        return false;
    }
    for (;;) {
        size_t n = newline_here(rd);
        if (n)
            rd->line++;
        else if (peek(rd) == ' ' || peek(rd) == '\t')
            n = 1;
        else
            return true;
        rd->at += n;
    }
}

static bool is_control(char c)
{
    return ((unsigned char)c < 0x20 && c != '\t') || c == 0x7f;
}

static int read_line_string(struct reader *rd, char quote, struct str *out)
{
    int r = 0;
    rd->at++;
    while (r >= 0 && peek(rd) != quote) {
        if (rd->at == rd->end || newline_here(rd))
            return toml_bad(rd, "the string has no end on its line");
        if (is_control(peek(rd)))
            return toml_bad(rd, "a control character in a string is written as an escape");
        if (quote == '"' && peek(rd) == '\\')
            r = read_escape(rd, out);
        else
            r = str_putc(out, *rd->at++);
    }
    rd->at++;
    return r;
}

static size_t quotes_here(const struct reader *rd, char quote)
{
    size_t n = 0;
    while (n < 6 && peek_at(rd, n) == quote)
        n++;
    return n;
}

static int read_block_string(struct reader *rd, char quote, struct str *out)
{
    int r = 0;
    size_t n;
    unsigned begun = rd->line;
    rd->at += 3;
    if ((n = newline_here(rd))) {
        rd->at += n;
        rd->line++;
    }
    while (r >= 0) {
        if (rd->at == rd->end) {
            rd->line = begun;
            return toml_bad(rd, "the string that begins here has no end");
        }
        n = quotes_here(rd, quote);
        if (n >= 3) { /* one or two quotes may stand before the closing three */
            n = n > 5 ? 5 : n;
            r = str_add(out, rd->at, n - 3);
            rd->at += n;
            return r;
        }
        if ((n = newline_here(rd))) {
            r = str_add(out, rd->at, n);
            rd->at += n;
            rd->line++;
        } else if (is_control(peek(rd))) {
            return toml_bad(rd, "a control character in a string is written as an escape");
        } else if (quote == '"' && peek(rd) == '\\') {
            r = skip_line_end(rd) ? 0 : read_escape(rd, out);
        } else {
            r = str_putc(out, *rd->at++);
        }
    }
    return r;
}

int toml_read_string(struct reader *rd, bool multi, struct str *ret)
{
    char quote = peek(rd);
    bool is_block = quotes_here(rd, quote) >= 3;
    if (is_block && !multi)
        return toml_bad(rd, "a key is a string of one line");
    int r = is_block ? read_block_string(rd, quote, ret) : read_line_string(rd, quote, ret);
    if (r == -ENOMEM || r == -E2BIG)
        return toml_no_memory(rd);
    return r;
}

/* ---- Dates (RFC 3339) -------------------------------------------------------------------------
 */

/* N digits at AT, or -1. */
static int digits(const struct reader *rd, size_t at, size_t n)
{
    int value = 0;
    for (size_t i = 0; i < n; i++) {
        char c = peek_at(rd, at + i);
        if (!is_digit(c))
            return -1;
        value = value * 10 + (c - '0');
    }
    return value;
}

static bool is_date(int year, int month, int day)
{
    static const int DAYS[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    if (year < 0 || month < 1 || month > 12 || day < 1)
        return false;
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return day <= DAYS[month - 1] + (month == 2 && leap);
}

/* HH:MM:SS[.fraction] at *AT, moved behind it. */
static bool take_time(const struct reader *rd, size_t *at)
{
    size_t i = *at;
    int hour = digits(rd, i, 2), minute = digits(rd, i + 3, 2), second = digits(rd, i + 6, 2);
    if (peek_at(rd, i + 2) != ':' || peek_at(rd, i + 5) != ':' || hour < 0 || hour > 23 ||
        minute < 0 || minute > 59 || second < 0 || second > 60)
        return false;
    i += 8;
    if (peek_at(rd, i) == '.') {
        size_t from = ++i;
        while (is_digit(peek_at(rd, i)))
            i++;
        if (i == from)
            return false;
    }
    *at = i;
    return true;
}

/* 1 = an offset is there and good, 0 = none, -1 = a bad one. */
static int take_offset(const struct reader *rd, size_t *at)
{
    char c = peek_at(rd, *at);
    if (c == 'Z' || c == 'z') {
        (*at)++;
        return 1;
    }
    if (c != '+' && c != '-')
        return 0;
    int hour = digits(rd, *at + 1, 2), minute = digits(rd, *at + 4, 2);
    if (peek_at(rd, *at + 3) != ':' || hour < 0 || hour > 23 || minute < 0 || minute > 59)
        return -1;
    *at += 6;
    return 1;
}

static int keep_text(struct reader *rd, struct toml *v, size_t n)
{
    v->text = strndup(rd->at, n);
    if (!v->text)
        return toml_no_memory(rd);
    v->len = n;
    rd->at += n;
    return 0;
}

static int read_date(struct reader *rd, struct toml *v)
{
    size_t at = 10;
    if (peek_at(rd, 4) != '-' || peek_at(rd, 7) != '-' ||
        !is_date(digits(rd, 0, 4), digits(rd, 5, 2), digits(rd, 8, 2)))
        return toml_bad(rd, "no such date (YYYY-MM-DD)");
    char between = peek_at(rd, at);
    bool has_time =
        between == 'T' || between == 't' || (between == ' ' && is_digit(peek_at(rd, 11)));
    v->kind = TOML_DATE_LOCAL;
    if (has_time) {
        at++;
        if (!take_time(rd, &at))
            return toml_bad(rd, "no such time of day (HH:MM:SS)");
        int offset = take_offset(rd, &at);
        if (offset < 0)
            return toml_bad(rd, "no such offset from UTC (+HH:MM)");
        v->kind = offset ? TOML_DATETIME : TOML_DATETIME_LOCAL;
    }
    int r = keep_text(rd, v, at);
    if (r >= 0 && has_time) {
        v->text[10] = 'T';
        if (v->text[at - 1] == 'z')
            v->text[at - 1] = 'Z';
    }
    return r;
}

static int read_time(struct reader *rd, struct toml *v)
{
    size_t at = 0;
    if (!take_time(rd, &at))
        return toml_bad(rd, "no such time of day (HH:MM:SS)");
    v->kind = TOML_TIME_LOCAL;
    return keep_text(rd, v, at);
}

/* ---- Numbers ----------------------------------------------------------------------------------
 */

#define NUMBER_MAX 400 /* digits as they stand, without underscores */

static bool is_of_base(char c, unsigned base)
{
    return base == 16 ? is_hex(c) : c >= '0' && c < (char)('0' + base);
}

/* Digits of BASE with single underscores between them, into TEXT; how many, 0 = none or badly
 * set, and then nothing is said. */
static size_t take_digits(struct reader *rd, unsigned base, char *text, size_t *n)
{
    size_t got = 0;
    while (is_of_base(peek(rd), base) ||
           (got && peek(rd) == '_' && is_of_base(peek_at(rd, 1), base))) {
        if (peek(rd) != '_' && *n + 1 < NUMBER_MAX)
            text[(*n)++] = peek(rd);
        else if (peek(rd) != '_')
            return 0;
        got += peek(rd) != '_';
        rd->at++;
    }
    return got;
}

static int read_based(struct reader *rd, struct toml *v)
{
    char text[NUMBER_MAX], kind = peek_at(rd, 1);
    size_t n = 0;
    unsigned base = kind == 'x' ? 16 : kind == 'o' ? 8 : 2;
    rd->at += 2;
    if (!take_digits(rd, base, text, &n))
        return toml_bad(rd, "no digits behind 0%c", kind);
    text[n] = '\0';
    errno = 0;
    v->kind = TOML_INTEGER;
    v->integer = strtoll(text, NULL, (int)base);
    return errno ? toml_bad(rd, "the number does not fit into 64 bits") : 0;
}

static int read_float_rest(struct reader *rd, struct toml *v, char *text, size_t n)
{
    if (peek(rd) == '.') {
        rd->at++;
        text[n++] = '.';
        if (!take_digits(rd, 10, text, &n))
            return toml_bad(rd, "digits are wanted behind the point of a number");
    }
    if (peek(rd) == 'e' || peek(rd) == 'E') {
        rd->at++;
        if (n + 3 >= NUMBER_MAX)
            return toml_bad(rd, "the number is too long");
        text[n++] = 'e';
        if (peek(rd) == '+' || peek(rd) == '-')
            text[n++] = *rd->at++;
        if (!take_digits(rd, 10, text, &n))
            return toml_bad(rd, "digits are wanted in the exponent of a number");
    }
    text[n] = '\0';
    v->kind = TOML_FLOAT;
    v->number = strtod(text, NULL); /* the program never leaves the C locale's numbers */
    return 0;
}

/* "inf" or "nan" at I. */
static bool take_word(struct reader *rd, size_t i, const char *word)
{
    size_t n = strlen(word);
    for (size_t j = 0; j < n; j++)
        if (peek_at(rd, i + j) != word[j])
            return false;
    rd->at += i + n;
    return true;
}

static int read_number(struct reader *rd, struct toml *v)
{
    char text[NUMBER_MAX + 8];
    char sign = peek(rd) == '+' || peek(rd) == '-' ? peek(rd) : '\0';
    size_t n = 0, i = sign != '\0';
    if (take_word(rd, i, "inf") || take_word(rd, i, "nan")) {
        v->kind = TOML_FLOAT;
        v->number = rd->at[-1] == 'f' ? (double)INFINITY : (double)NAN;
        v->number = sign == '-' ? -v->number : v->number;
        return 0;
    }
    if (!sign && peek(rd) == '0' && peek_at(rd, 1) && strchr("xob", peek_at(rd, 1)))
        return read_based(rd, v);
    if (sign == '-')
        text[n++] = '-';
    rd->at += i;
    const char *from = rd->at;
    if (!take_digits(rd, 10, text, &n))
        return toml_bad(rd, "this is no value; a string is written in quotes");
    if (*from == '0' && rd->at - from > 1)
        return toml_bad(rd, "a number has no leading zeros");
    if (peek(rd) == '.' || peek(rd) == 'e' || peek(rd) == 'E')
        return read_float_rest(rd, v, text, n);
    text[n] = '\0';
    errno = 0;
    v->kind = TOML_INTEGER;
    v->integer = strtoll(text, NULL, 10);
    return errno ? toml_bad(rd, "the number does not fit into 64 bits") : 0;
}

int toml_read_scalar(struct reader *rd, struct toml *v)
{
    if (take_word(rd, 0, "true") || take_word(rd, 0, "false")) {
        v->kind = TOML_BOOLEAN;
        v->truth = rd->at[-2] == 'u';
        return 0;
    }
    if (digits(rd, 0, 4) >= 0 && peek_at(rd, 4) == '-')
        return read_date(rd, v);
    if (digits(rd, 0, 2) >= 0 && peek_at(rd, 2) == ':')
        return read_time(rd, v);
    return read_number(rd, v);
}
