/* Runs in: daemon. Reads: hostile. May block: no. */
#include "api/http_head.h"
#include "api/http.h"
#include "base/str.h"
#include <errno.h>
#include <string.h>
#include <strings.h>

struct judge {
    const char *code, *why;
    unsigned n_length, n_transfer, n_fields;
};

static bool refuse(struct judge *j, const char *code, const char *why)
{
    j->code = code;
    j->why = why;
    return false;
}

static bool malformed(struct judge *j, const char *why)
{
    return refuse(j, "json_invalid", why);
}

/* RFC 9110, 5.6.2 */
static bool is_token(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (!((c | 0x20) >= 'a' && (c | 0x20) <= 'z') && !(c >= '0' && c <= '9') &&
            !(c && strchr("!#$%&'*+-.^_`|~", c)))
            return false;
    }
    return n > 0;
}

static bool request_line(struct judge *j, const char *line, size_t n)
{
    const char *space = memchr(line, ' ', n), *target = space ? space + 1 : NULL, *version;
    size_t left = target ? n - (size_t)(target - line) : 0;

    space = target ? memchr(target, ' ', left) : NULL;
    if (!space || !is_token(line, (size_t)(target - 1 - line)) || space == target)
        return malformed(j, "the request line is not METHOD TARGET HTTP/1.1");
    for (const char *at = target; at < space; at++)
        if (*at < 0x21 || *at > 0x7e)
            return malformed(j, "the target holds bytes that are not visible ASCII");
    version = space + 1;
    left = n - (size_t)(version - line);
    if (left == 8 && (memcmp(version, "HTTP/1.1", 8) == 0 || memcmp(version, "HTTP/1.0", 8) == 0))
        return true; /* 1.0 is refused with its Host */
    if (left == 8 && memcmp(version, "HTTP/", 5) == 0)
        return refuse(j, "host_missing", "only HTTP/1.1 is spoken here");
    return malformed(j, "the request line is not METHOD TARGET HTTP/1.1");
}

static bool length_field(struct judge *j, const char *value, size_t n)
{
    char copy[24];
    uint64_t length;

    if (++j->n_length > 1)
        return malformed(j, "the length of the body is given twice");
    if (n == 0 || strspn(value, "0123456789") < n)
        return malformed(j, "Content-Length is no number");
    if (n >= sizeof copy)
        return refuse(j, "body_too_large", "no body is that large");
    memcpy(copy, value, n);
    copy[n] = '\0';
    return parse_u64(copy, 0, INT64_MAX, &length) == 0 ||
           refuse(j, "body_too_large", "no body is that large");
}

static bool is_field(const char *name, size_t n, const char *wanted)
{
    return n == strlen(wanted) && strncasecmp(name, wanted, n) == 0;
}

static bool field_line(struct judge *j, const char *line, size_t n)
{
    const char *colon = memchr(line, ':', n), *value, *end = line + n;

    if (++j->n_fields > API_FIELDS_MAX)
        return refuse(j, "headers_too_large", "the head has more than 200 field lines");
    if (*line == ' ' || *line == '\t')
        return malformed(j, "a field line is folded");
    if (!colon || !is_token(line, (size_t)(colon - line)))
        return malformed(j, "a field line is not NAME: VALUE");
    value = colon + 1;
    for (const char *at = value; at < end; at++)
        if (((unsigned char)*at < 0x20 && *at != '\t') || *at == 0x7f)
            return malformed(j, "a field line holds control bytes");
    while (value < end && (*value == ' ' || *value == '\t'))
        value++;
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    if (is_field(line, (size_t)(colon - line), "Content-Length"))
        return length_field(j, value, (size_t)(end - value));
    if (!is_field(line, (size_t)(colon - line), "Transfer-Encoding"))
        return true;
    if (++j->n_transfer > 1 || !is_field(value, (size_t)(end - value), "chunked"))
        return malformed(j, "a transfer coding other than chunked");
    return true;
}

/* One line after another; *ret_whole at the empty one. */
static bool lines(struct judge *j, const char *bytes, size_t n, bool *ret_whole)
{
    const char *at = bytes, *end = bytes + n, *lf;
    bool is_first = true;

    while (at < end && (lf = memchr(at, '\n', (size_t)(end - at)))) {
        size_t len = (size_t)(lf - at);
        if (len == 0 || at[len - 1] != '\r' || memchr(at, '\r', len - 1))
            return malformed(j, "a line does not end with CR LF");
        len--;
        if (len == 0 && !is_first) {
            *ret_whole = true;
            return (size_t)(lf + 1 - bytes) <= API_HEAD_MAX ||
                   refuse(j, "headers_too_large", "the head has more than 16 KiB");
        }
        /* Empty lines before the request line do not count (RFC 9112, 2.2). */
        if (len > 0 && !(is_first ? request_line(j, at, len) : field_line(j, at, len)))
            return false;
        is_first = is_first && len == 0;
        at = lf + 1;
    }
    return n <= API_HEAD_MAX || refuse(j, "headers_too_large", "the head has more than 16 KiB");
}

enum head_state head_judge(const char *bytes, size_t n, const char **ret_code, const char **ret_why)
{
    struct judge j = {0};
    bool whole = false, ok = lines(&j, bytes, n, &whole);

    if (ok && whole && j.n_length && j.n_transfer)
        ok = malformed(&j, "Content-Length and Transfer-Encoding exclude each other");
    if (ok)
        return whole ? HEAD_WHOLE : HEAD_PARTIAL;
    *ret_code = j.code;
    *ret_why = j.why;
    return HEAD_REFUSED;
}
