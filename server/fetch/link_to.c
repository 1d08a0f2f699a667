/* Runs in: fetch. Reads: hostile (pages). May block: no. */
#include "fetch/link_to.h"
#include "base/mem.h"
#include <string.h>
#include <strings.h>

#define LINK_MAX 4096

static bool has_scheme(const char *ref, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char c = ref[i];
        if (c == ':')
            return i > 0;
        if (c == '/' || c == '?' || c == '#')
            return false;
    }
    return false;
}

static bool is_shown(const char *ref, size_t n)
{
    static const char *const SCHEMES[] = {"http://", "https://", "mailto:"};
    for (size_t i = 0; i < ARRAY_LEN(SCHEMES); i++)
        if (n > strlen(SCHEMES[i]) && strncasecmp(ref, SCHEMES[i], strlen(SCHEMES[i])) == 0)
            return true;
    return false;
}

/* Dot segments removed (RFC 3986, 5.2.4) of the path in TEXT, which begins with '/'. */
static int put_path(struct str *out, const char *text, size_t n)
{
    size_t path = 0, from = out->len;
    while (path < n && text[path] != '?' && text[path] != '#')
        path++;
    for (size_t at = 0; at < path;) {
        size_t len = 1;
        while (at + len < path && text[at + len] != '/')
            len++;
        bool one = len == 2 && text[at + 1] == '.';
        bool two = len == 3 && text[at + 1] == '.' && text[at + 2] == '.';
        while (two && out->len > from && out->data[--out->len] != '/')
            ;
        bool last = at + len == path;
        if (one || two ? last && str_putc(out, '/') < 0 : str_add(out, text + at, len) < 0)
            return -1;
        at += len;
    }
    if (out->len == from && str_putc(out, '/') < 0)
        return -1;
    return str_add(out, text + path, n - path);
}

static int put_relative(struct str *out, const struct url *base, const char *ref, size_t n)
{
    CLEANUP(str_done) struct str path = {.max = 4 * URL_MAX};
    size_t dir = strcspn(base->target, "?");
    if (ref[0] == '?') {
        if (str_add(&path, base->target, dir) < 0)
            return -1;
    } else if (ref[0] != '/') {
        while (dir > 0 && base->target[dir - 1] != '/')
            dir--;
        if (str_add(&path, base->target, dir) < 0)
            return -1;
    }
    if (str_add(&path, ref, n) < 0)
        return -1;
    return put_path(out, path.data, path.len);
}

/* "scheme://host:port" */
static int put_origin(struct str *out, const struct url *base)
{
    CLEANUP(str_done) struct str text = {0};
    if (url_text(base, &text) < 0)
        return -1;
    return str_add(out, text.data, text.len - strlen(base->target));
}

static int put_any(struct str *out, const struct url *base, const char *ref, size_t n)
{
    if (has_scheme(ref, n))
        return is_shown(ref, n) ? str_add(out, ref, n) : -1;
    if (n >= 2 && ref[0] == '/' && ref[1] == '/')
        return str_puts(out, base->is_tls ? "https:" : "http:") < 0 ? -1 : str_add(out, ref, n);
    return put_origin(out, base) < 0 ? -1 : put_relative(out, base, ref, n);
}

bool link_resolve(const struct url *base, const char *ref, size_t n, struct str *out)
{
    CLEANUP(str_done) struct str whole = {.max = 4 * LINK_MAX};
    while (n > 0 && (unsigned char)ref[0] <= ' ') {
        ref++;
        n--;
    }
    while (n > 0 && (unsigned char)ref[n - 1] <= ' ')
        n--;
    if (n == 0 || n > LINK_MAX || ref[0] == '#' || put_any(&whole, base, ref, n) < 0)
        return false;
    size_t from = out->len;
    for (size_t i = 0; i < whole.len; i++) {
        char c = whole.data[i];
        int r = (unsigned char)c <= ' ' || c == '(' || c == ')' || c == '<' || c == '>'
                    ? str_printf(out, "%%%02X", (unsigned)(unsigned char)c)
                    : str_putc(out, c);
        if (r < 0) {
            out->len = from;
            return false;
        }
    }
    return true;
}
