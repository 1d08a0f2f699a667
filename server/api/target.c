/* Runs in: daemon. Reads: hostile. May block: no. */
#include "api/target.h"
#include "base/mem.h"
#include <errno.h>
#include <string.h>

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* N bytes, percent-decoded: UTF-8 without NUL, or NULL. */
static char *decode(const char *text, size_t n, bool plus_is_space)
{
    char *out = malloc(n + 1);
    size_t len = 0;

    for (size_t i = 0; out && i < n; i++) {
        int high = 0, low = 0;
        char c = text[i];
        if (c == '%') {
            high = i + 2 < n ? hex_value(text[i + 1]) : -1;
            low = i + 2 < n ? hex_value(text[i + 2]) : -1;
            c = (char)(high * 16 + low);
            i += 2;
        } else if (c == '+' && plus_is_space) {
            c = ' ';
        }
        if (high < 0 || low < 0 || c == '\0') {
            free(out);
            return NULL;
        }
        out[len++] = c;
    }
    if (!out)
        return NULL;
    out[len] = '\0';
    if (!utf8_is_valid(out, len)) {
        free(out);
        return NULL;
    }
    return out;
}

void segments_done(struct segments *s)
{
    for (unsigned i = 0; i < s->n; i++)
        free(s->items[i]);
    s->n = 0;
}

int target_segments(const char *path, struct segments *ret)
{
    const char *at = path;

    ret->n = 0;
    while (*at == '/') {
        size_t n = strcspn(++at, "/");
        char *text = ret->n < TARGET_SEGMENTS ? decode(at, n, false) : NULL;
        if (!text) {
            segments_done(ret);
            return -EINVAL;
        }
        ret->items[ret->n++] = text;
        at += n;
    }
    return 0;
}

bool target_matches(const char *pattern, const struct segments *s)
{
    const char *at = pattern;

    for (unsigned i = 0; i < s->n; i++) {
        size_t n;
        if (*at != '/')
            return false;
        n = strcspn(++at, "/");
        if (at[0] == '{' ? s->items[i][0] == '\0'
                         : strlen(s->items[i]) != n || memcmp(s->items[i], at, n) != 0)
            return false;
        at += n;
    }
    return *at == '\0';
}

static int query_add(struct request *rq, const char *text, size_t n)
{
    const char *equals = memchr(text, '=', n);
    size_t n_name = equals ? (size_t)(equals - text) : n;
    CLEANUP(freep) char *name = decode(text, n_name, true);
    CLEANUP(freep) char *value = equals ? decode(equals + 1, n - n_name - 1, true) : strdup("");

    if (!name || !value)
        return request_bad_query(rq, name ? name : "", "format",
                                 "not percent-encoded UTF-8 without NUL");
    if (rq->n_query == REQUEST_QUERY_MAX)
        return request_bad_query(rq, name, "range", "too many members");
    if (request_query(rq, name))
        return request_bad_query(rq, name, "duplicate", "given twice");
    rq->query[rq->n_query].name = TAKE(name);
    rq->query[rq->n_query++].value = TAKE(value);
    return 0;
}

int target_split(struct request *rq)
{
    size_t n_path = strcspn(rq->target, "?#");
    const char *at = rq->target + n_path;
    int r = 0;

    rq->path = strndup(rq->target, n_path);
    if (!rq->path)
        return -ENOMEM;
    if (*at++ != '?')
        return 0;
    while (r == 0 && *at) {
        size_t n = strcspn(at, "&");
        if (n)
            r = query_add(rq, at, n);
        at += n;
        at += *at == '&';
    }
    return r;
}
