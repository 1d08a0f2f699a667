/* Runs in: any. Reads: hostile. May block: no. */
#include "wire/httphead.h"
#include <string.h>
#include <strings.h>

#define LEADING_BYTES_MAX 4 /* empty lines before a request line (RFC 9112, 2.2) */
#define LENGTH_DIGITS_MAX 18
#define CHUNK_DIGITS_MAX  15

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* RFC 9110, 5.6.2. */
static bool is_token_char(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

/* RFC 9110, 5.5: visible characters, obs-text, space and tab. */
static bool is_value_char(char c)
{
    unsigned char u = (unsigned char)c;
    return u == '\t' || (u >= 0x20 && u != 0x7f);
}

static size_t token_length(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n && is_token_char(s[i]))
        i++;
    return i;
}

static bool equals(const char *s, size_t n, const char *text)
{
    return strlen(text) == n && strncasecmp(s, text, n) == 0;
}

void httphead_init(struct httphead *h, size_t max, bool is_response)
{
    memset(h, 0, sizeof *h);
    h->max = max;
    h->is_response = is_response;
}

void httphead_done(struct httphead *h)
{
    str_done(&h->raw);
    h->n_fields = 0;
}

static enum head_result bad(struct httphead *h, const char *why)
{
    h->why = why;
    return HEAD_BAD;
}

/* ---- The parts of a complete head ----------------------------------------------------------- */

static enum head_target target_kind(const struct httphead *h)
{
    const char *t = h->target;
    size_t n = h->target_len, scheme = 0;
    if (h->method_len == 7 && memcmp(h->method, "CONNECT", 7) == 0)
        return TARGET_AUTHORITY;
    if (t[0] == '/')
        return TARGET_ORIGIN;
    if (n == 1 && t[0] == '*')
        return TARGET_ASTERISK;
    while (scheme < n &&
           (is_digit(t[scheme]) || t[scheme] == '+' || t[scheme] == '-' || t[scheme] == '.' ||
            (t[scheme] | 0x20) >= 'a') &&
           is_token_char(t[scheme]))
        scheme++;
    return scheme > 0 && n - scheme >= 3 && memcmp(t + scheme, "://", 3) == 0 ? TARGET_ABSOLUTE
                                                                              : TARGET_BAD;
}

/* "HTTP/1.x", and nothing else: RFC 9112, 2.3. */
static bool version_parse(const char *s, size_t n, int *ret_minor)
{
    if (n != 8 || memcmp(s, "HTTP/1.", 7) != 0 || !is_digit(s[7]))
        return false;
    *ret_minor = s[7] - '0';
    return true;
}

static const char *request_line_parse(struct httphead *h, const char *line, size_t n)
{
    size_t at = token_length(line, n);
    if (at == 0 || at == n || line[at] != ' ')
        return "the request line has no method";
    h->method = line;
    h->method_len = at;
    h->target = line + ++at;
    while (at < n && line[at] > 0x20 && line[at] < 0x7f)
        at++;
    h->target_len = (size_t)(line + at - h->target);
    if (h->target_len == 0 || at == n || line[at] != ' ')
        return "the request target is missing or holds bytes that no URI has";
    if (!version_parse(line + at + 1, n - at - 1, &h->minor))
        return "the HTTP version is not 1.0 or 1.1";
    h->target_kind = target_kind(h);
    return h->target_kind == TARGET_BAD ? "the request target is of no known form" : NULL;
}

static const char *status_line_parse(struct httphead *h, const char *line, size_t n)
{
    if (n < 12 || !version_parse(line, 8, &h->minor) || line[8] != ' ')
        return "the status line is not one of HTTP/1";
    for (int i = 9; i < 12; i++) {
        if (!is_digit(line[i]))
            return "the status code is not a number";
        h->status = h->status * 10 + (line[i] - '0');
    }
    if (h->status < 100 || h->status > 599 || (n > 12 && line[12] != ' '))
        return "the status code is not a number of three digits";
    for (size_t i = 12; i < n; i++)
        if (!is_value_char(line[i]))
            return "the status line holds control bytes";
    return NULL;
}

static const char *field_parse(struct httphead *h, const char *line, size_t n)
{
    size_t name = token_length(line, n), start = name + 1;
    if (line[0] == ' ' || line[0] == '\t')
        return "a field is folded onto a second line";
    if (name == 0 || name == n || line[name] != ':')
        return "a field line has no valid name before its colon";
    if (h->n_fields == HEAD_FIELDS_MAX) {
        h->too_large = true;
        return "too many fields";
    }
    for (size_t i = start; i < n; i++)
        if (!is_value_char(line[i]))
            return "a field value holds control bytes";
    while (start < n && (line[start] == ' ' || line[start] == '\t'))
        start++;
    while (n > start && (line[n - 1] == ' ' || line[n - 1] == '\t'))
        n--;
    h->fields[h->n_fields++] = (struct head_field){line, name, line + start, n - start};
    return NULL;
}

bool head_field_is(const struct head_field *f, const char *name)
{
    return equals(f->name, f->name_len, name);
}

const struct head_field *httphead_find(const struct httphead *h, const char *name)
{
    for (size_t i = 0; i < h->n_fields; i++)
        if (head_field_is(&h->fields[i], name))
            return &h->fields[i];
    return NULL;
}

size_t httphead_count(const struct httphead *h, const char *name)
{
    size_t count = 0;
    for (size_t i = 0; i < h->n_fields; i++)
        count += head_field_is(&h->fields[i], name);
    return count;
}

static bool list_has(const char *s, size_t n, const char *token, size_t token_len)
{
    size_t at = 0;
    while (at < n) {
        size_t start = at, end;
        while (at < n && s[at] != ',')
            at++;
        end = at++;
        while (start < end && (s[start] == ' ' || s[start] == '\t'))
            start++;
        while (end > start && (s[end - 1] == ' ' || s[end - 1] == '\t'))
            end--;
        if (end - start == token_len && strncasecmp(s + start, token, token_len) == 0)
            return true;
    }
    return false;
}

bool httphead_has_token(const struct httphead *h, const char *name, const char *token, size_t n)
{
    for (size_t i = 0; i < h->n_fields; i++)
        if (head_field_is(&h->fields[i], name) &&
            list_has(h->fields[i].value, h->fields[i].value_len, token, n))
            return true;
    return false;
}

static bool length_parse(const struct head_field *f, uint64_t *ret)
{
    uint64_t value = 0;
    if (f->value_len == 0 || f->value_len > LENGTH_DIGITS_MAX ||
        (f->value_len > 1 && f->value[0] == '0'))
        return false;
    for (size_t i = 0; i < f->value_len; i++) {
        if (!is_digit(f->value[i]))
            return false;
        value = value * 10 + (uint64_t)(f->value[i] - '0');
    }
    *ret = value;
    return true;
}

/* RFC 9112, 6.3, and nothing of what it says "may" be repaired. */
static const char *body_decide(struct httphead *h)
{
    const struct head_field *coding = httphead_find(h, "transfer-encoding");
    const struct head_field *length = httphead_find(h, "content-length");
    if (coding != NULL && length != NULL)
        return "both Transfer-Encoding and Content-Length";
    if (httphead_count(h, "content-length") > 1 || httphead_count(h, "transfer-encoding") > 1)
        return "the length of the body is given twice";
    if (coding != NULL && (h->minor == 0 || !equals(coding->value, coding->value_len, "chunked")))
        return "a transfer coding other than chunked";
    if (length != NULL && !length_parse(length, &h->body_len))
        return "Content-Length is not a plain number";
    if (coding != NULL)
        h->body = BODY_CHUNKED;
    else if (length != NULL)
        h->body = h->body_len > 0 ? BODY_LENGTH : BODY_NONE;
    else
        h->body = h->is_response ? BODY_UNTIL_CLOSE : BODY_NONE;
    if (h->is_response && (h->status < 200 || h->status == 204 || h->status == 304)) {
        h->body = BODY_NONE;
        h->body_len = 0;
    }
    return NULL;
}

static const char *fields_judge(struct httphead *h)
{
    const struct head_field *expect = httphead_find(h, "expect");
    if (!h->is_response) {
        size_t hosts = httphead_count(h, "host");
        if (hosts > 1)
            return "two Host fields";
        /* Clients that only tunnel leave it out; its value is used for nothing. */
        if (hosts == 0 && h->minor > 0 && h->target_kind != TARGET_AUTHORITY)
            return "no Host field";
    }
    h->keep_alive = h->minor > 0 ? !httphead_has_token(h, "connection", "close", 5)
                                 : httphead_has_token(h, "connection", "keep-alive", 10);
    h->upgrade = h->minor > 0 && httphead_find(h, "upgrade") != NULL &&
                 httphead_has_token(h, "connection", "upgrade", 7);
    h->expect_continue =
        expect != NULL && h->minor > 0 && equals(expect->value, expect->value_len, "100-continue");
    return body_decide(h);
}

/* raw ends with CR LF CR LF, and each CR and LF in it belongs to a pair. */
static enum head_result head_parse(struct httphead *h)
{
    const char *at = h->raw.data, *end = h->raw.data + h->raw.len - 2;
    bool first = true;
    while (at < end) {
        size_t n = (size_t)((const char *)memchr(at, '\r', (size_t)(end - at)) - at);
        const char *why = !first           ? field_parse(h, at, n)
                          : h->is_response ? status_line_parse(h, at, n)
                                           : request_line_parse(h, at, n);
        if (why != NULL)
            return bad(h, why);
        first = false;
        at += n + 2;
    }
    const char *why = fields_judge(h);
    return why != NULL ? bad(h, why) : HEAD_DONE;
}

/* Follows the line ends; a negative answer is a stray CR, LF or NUL. */
static int line_end_follow(unsigned end, char c)
{
    if (c == '\r')
        return end % 2 == 0 ? (int)end + 1 : -1;
    if (c == '\n')
        return end % 2 == 1 ? (int)end + 1 : -1;
    return end % 2 == 1 || c == '\0' ? -1 : 0;
}

enum head_result httphead_feed(struct httphead *h, const char *bytes, size_t n, size_t *ret_used)
{
    size_t i = 0, start = 0;
    *ret_used = 0;
    if (h->raw.len == 0 && !h->is_response)
        for (; i < n && (bytes[i] == '\r' || bytes[i] == '\n'); start = ++i)
            if (bytes[i] != "\r\n"[h->skipped % 2] || ++h->skipped > LEADING_BYTES_MAX)
                return bad(h, "odd line ends before the request line");
    if (h->skipped % 2 != 0 && i < n)
        return bad(h, "odd line ends before the request line");
    for (; i < n && h->end < 4; i++) {
        int end = line_end_follow(h->end, bytes[i]);
        if (end < 0)
            return bad(h, "a bare CR or LF, or a NUL");
        h->end = (unsigned)end;
    }
    *ret_used = i;
    if (h->raw.len + (i - start) > h->max) {
        h->too_large = true;
        return bad(h, "the head is too large");
    }
    if (i > start && str_add(&h->raw, bytes + start, i - start) < 0)
        return bad(h, "out of memory");
    return h->end < 4 ? HEAD_MORE : head_parse(h);
}

/* ---- Chunked bodies ------------------------------------------------------------------------- */

enum chunk_state {
    CHUNK_SIZE = 0,
    CHUNK_EXTENSION,
    CHUNK_SIZE_LF,
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    TRAILER_START,
    TRAILER_NAME,
    TRAILER_VALUE,
    TRAILER_LF,
    TRAILER_LAST_LF,
    CHUNK_BROKEN
};

void chunks_init(struct chunks *c)
{
    *c = (struct chunks){.state = CHUNK_SIZE};
}

static int hex_value(char c)
{
    if (is_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static int size_step(struct chunks *c, char ch)
{
    int digit = hex_value(ch);
    if (digit >= 0) {
        c->left = c->left << 4 | (uint64_t)digit;
        return ++c->digits > CHUNK_DIGITS_MAX ? CHUNK_BROKEN : CHUNK_SIZE;
    }
    if (c->digits == 0)
        return CHUNK_BROKEN;
    if (ch == ';')
        return CHUNK_EXTENSION;
    return ch == '\r' ? CHUNK_SIZE_LF : CHUNK_BROKEN;
}

static int size_line_done(struct chunks *c)
{
    c->line = 0;
    c->digits = 0;
    return c->left > 0 ? CHUNK_DATA : TRAILER_START;
}

/* The state after CH, for every state that takes single bytes. */
static int chunk_step(struct chunks *c, char ch)
{
    switch ((enum chunk_state)c->state) {
    case CHUNK_SIZE:
        return size_step(c, ch);
    case CHUNK_EXTENSION:
        return ch == '\r' ? CHUNK_SIZE_LF : is_value_char(ch) ? CHUNK_EXTENSION : CHUNK_BROKEN;
    case CHUNK_SIZE_LF:
        return ch == '\n' ? size_line_done(c) : CHUNK_BROKEN;
    case CHUNK_DATA_CR:
        return ch == '\r' ? CHUNK_DATA_LF : CHUNK_BROKEN;
    case CHUNK_DATA_LF:
        c->line = 0;
        return ch == '\n' ? CHUNK_SIZE : CHUNK_BROKEN;
    case TRAILER_START:
        return ch == '\r' ? TRAILER_LAST_LF : is_token_char(ch) ? TRAILER_NAME : CHUNK_BROKEN;
    case TRAILER_NAME:
        return ch == ':' ? TRAILER_VALUE : is_token_char(ch) ? TRAILER_NAME : CHUNK_BROKEN;
    case TRAILER_VALUE:
        return ch == '\r' ? TRAILER_LF : is_value_char(ch) ? TRAILER_VALUE : CHUNK_BROKEN;
    case TRAILER_LF:
        return ch == '\n' ? TRAILER_START : CHUNK_BROKEN;
    case TRAILER_LAST_LF:
        return ch == '\n' ? -1 : CHUNK_BROKEN;
    case CHUNK_DATA:
    case CHUNK_BROKEN:
        break;
    }
    return CHUNK_BROKEN;
}

uint64_t chunks_data(const struct chunks *c)
{
    return c->state == CHUNK_DATA ? c->left : 0;
}

enum head_result chunks_feed(struct chunks *c, const char *bytes, size_t n, size_t *ret_used)
{
    size_t i = 0;
    *ret_used = 0;
    while (i < n) {
        if (c->state == CHUNK_DATA) {
            size_t take = c->left < n - i ? (size_t)c->left : n - i;
            i += take;
            c->left -= take;
            if (c->left == 0)
                c->state = CHUNK_DATA_CR;
            continue;
        }
        bool in_trailer = c->state >= TRAILER_START;
        c->state = chunk_step(c, bytes[i++]);
        if (c->state < 0) {
            c->state = CHUNK_BROKEN; /* nothing may follow */
            *ret_used = i;
            return HEAD_DONE;
        }
        if (c->state == CHUNK_BROKEN ||
            ++c->line > (in_trailer ? CHUNK_TRAILER_MAX : CHUNK_LINE_MAX)) {
            c->state = CHUNK_BROKEN;
            return HEAD_BAD;
        }
    }
    *ret_used = i;
    return HEAD_MORE;
}
