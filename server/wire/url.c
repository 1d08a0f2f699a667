/* Runs in: any. Reads: hostile. May block: no. */
#include "wire/url.h"
#include "base/mem.h"
#include "wire/idna.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define AUTHORITY_MAX 1024

static int refuse(const char **why, const char *text)
{
    *why = text;
    return -EINVAL;
}

static bool has_controls(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return true;
    return false;
}

static bool scheme_take(const char **text, size_t *n, bool *ret_tls)
{
    static const struct {
        const char *text;
        bool is_tls;
    } SCHEMES[] = {{"https://", true}, {"http://", false}};
    for (size_t i = 0; i < ARRAY_LEN(SCHEMES); i++) {
        size_t len = strlen(SCHEMES[i].text);
        if (*n < len || strncasecmp(*text, SCHEMES[i].text, len) != 0)
            continue;
        *text += len;
        *n -= len;
        *ret_tls = SCHEMES[i].is_tls;
        return true;
    }
    return false;
}

/* Digits only, 1..65535. */
static bool port_parse(const char *text, size_t n, uint16_t *ret)
{
    unsigned long port = 0;
    if (n == 0 || n > 5 || text[0] == '0')
        return false;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        port = port * 10 + (unsigned long)(text[i] - '0');
    }
    if (port > 65535)
        return false;
    *ret = (uint16_t)port;
    return true;
}

/* [v6], and where its port would stand. */
static size_t v6_length(const char *text, size_t n)
{
    const char *end = n > 0 && text[0] == '[' ? memchr(text, ']', n) : NULL;
    return end ? (size_t)(end - text) + 1 : 0;
}

static int authority_take(const char *text, size_t n, struct url *u, const char **why)
{
    char typed[AUTHORITY_MAX];
    size_t v6 = v6_length(text, n);
    const char *colon = memchr(text + v6, ':', n - v6);
    size_t host_n = colon ? (size_t)(colon - text) : n;
    u->port = u->is_tls ? 443 : 80;
    if (memchr(text, '@', n))
        return refuse(why, "a URL with a user name or password is not taken");
    if (colon && !port_parse(colon + 1, n - host_n - 1, &u->port))
        return refuse(why, "the port is a number from 1 to 65535");
    if (v6 > 0) {
        if (v6 != host_n || host_canonical(text, host_n, true, u->host) != HOST_V6)
            return refuse(why, "the address in brackets is none");
        u->is_v6 = true;
        return 0;
    }
    if (host_n == 0 || host_n >= sizeof typed)
        return refuse(why, "the URL names no host");
    memcpy(typed, text, host_n);
    typed[host_n] = '\0';
    enum host_kind kind = host_from_typed(typed, u->host);
    if (kind != HOST_NAME && kind != HOST_V4)
        return refuse(why, "the host is neither a name nor an address in its usual form");
    return 0;
}

static int put_encoded(struct str *out, unsigned char c)
{
    return str_printf(out, "%%%02X", (unsigned)c);
}

static int target_take(const char *text, size_t n, char **ret)
{
    CLEANUP(str_done) struct str out = {.max = 3 * URL_MAX + 2};
    const char *fragment = memchr(text, '#', n);
    int r = n > 0 && text[0] == '/' ? 0 : str_putc(&out, '/');
    if (fragment)
        n = (size_t)(fragment - text);
    for (size_t i = 0; i < n && r >= 0; i++) {
        unsigned char c = (unsigned char)text[i];
        r = c <= ' ' || c >= 0x7f || strchr("\"<>\\^`{|}", c) ? put_encoded(&out, c)
                                                              : str_putc(&out, (char)c);
    }
    if (r < 0)
        return r;
    *ret = TAKE(out.data);
    return 0;
}

int url_parse(const char *text, size_t n, struct url *ret, const char **ret_why)
{
    struct url u = {0};
    if (n > URL_MAX)
        return refuse(ret_why, "the URL is too long");
    if (has_controls(text, n))
        return refuse(ret_why, "the URL holds control characters");
    if (!scheme_take(&text, &n, &u.is_tls))
        return refuse(ret_why, "only http:// and https:// URLs are taken");
    size_t authority = 0;
    while (authority < n && !strchr("/?#\\", text[authority]))
        authority++;
    if (authority < n && text[authority] == '\\')
        return refuse(ret_why, "a backslash stands behind the host");
    int r = authority_take(text, authority, &u, ret_why);
    if (r == 0)
        r = target_take(text + authority, n - authority, &u.target);
    if (r < 0)
        return r;
    *ret = u;
    return 0;
}

int url_text(const struct url *u, struct str *out)
{
    const char *open = u->is_v6 ? "[" : "", *close = u->is_v6 ? "]" : "";
    int r = str_printf(out, "%s://%s%s%s", u->is_tls ? "https" : "http", open, u->host, close);
    if (r >= 0 && u->port != (u->is_tls ? 443 : 80))
        r = str_printf(out, ":%u", (unsigned)u->port);
    return r < 0 ? r : str_puts(out, u->target);
}

void url_done(struct url *u)
{
    free(TAKE(u->target));
}

int url_put_component(struct str *out, const char *bytes, size_t n)
{
    int r = 0;
    for (size_t i = 0; i < n && r >= 0; i++) {
        unsigned char c = (unsigned char)bytes[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     c == '-' || c == '.' || c == '_' || c == '~';
        r = plain ? str_putc(out, (char)c) : put_encoded(out, c);
    }
    return r;
}
