/* Runs in: any. Reads: trusted (settings, the daemon's environment). May block: no. */
#include "policy/upstream.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PORT_DEFAULT 80

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* N bytes of percent-encoded text, a NUL behind; false when it is too long or wrongly written. */
static bool decode(const char *text, size_t n, char *ret, size_t size)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        int c = (unsigned char)text[i];
        if (c == '%') {
            if (n - i < 3 || hex(text[i + 1]) < 0 || hex(text[i + 2]) < 0)
                return false;
            c = hex(text[i + 1]) << 4 | hex(text[i + 2]);
            i += 2;
        }
        if (c < 0x20 || c == 0x7f || at + 1 >= size)
            return false;
        ret[at++] = (char)c;
    }
    ret[at] = '\0';
    return true;
}

static const char *user_parse(const char *text, size_t n, struct upstream *ret)
{
    const char *colon = memchr(text, ':', n);
    if (colon == text || !decode(text, n, ret->user, sizeof ret->user))
        return "its user and password cannot be read";
    /* A colon that came escaped would split them elsewhere (RFC 7617, 2). */
    size_t name = colon ? (size_t)(colon - text) : n;
    char user[UPSTREAM_USER_MAX + 1];
    if (!decode(text, name, user, sizeof user) || strchr(user, ':'))
        return "its user has a colon";
    size_t len = strlen(ret->user);
    if (!colon && len + 1 < sizeof ret->user)
        memcpy(ret->user + len, ":", 2);
    return NULL;
}

const char *upstream_parse(const char *text, struct upstream *ret)
{
    static const char HTTP[] = "http://";
    struct upstream up = {0};
    const char *scheme = strstr(text, "://");
    if (scheme && strncasecmp(text, HTTP, sizeof HTTP - 1) != 0)
        return "only http:// proxies are known";
    const char *rest = scheme ? text + sizeof HTTP - 1 : text;
    size_t n = strcspn(rest, "/?#");
    if (rest[n] != '\0' && strcmp(rest + n, "/") != 0)
        return "it has a path";
    for (size_t i = n; i > 0; i--) /* the last one: a password may have others */
        if (rest[i - 1] == '@') {
            const char *why = user_parse(rest, i - 1, &up);
            if (why)
                return why;
            rest += i;
            n -= i;
            break;
        }
    if (host_port_parse(rest, n, PORT_DEFAULT, up.host, &up.port) == HOST_BAD)
        return "its host and port are not host:port";
    *ret = up;
    return NULL;
}

int upstream_put_shown(struct str *out, const struct upstream *up)
{
    char target[HOST_MAX + 10];
    host_port_text(up->host, up->port, target);
    (void)str_puts(out, "http://");
    if (up->user[0]) {
        (void)str_put_escaped(out, up->user, strcspn(up->user, ":"));
        (void)str_puts(out, ":***@");
    }
    return str_puts(out, target);
}

int upstream_authorization(const struct upstream *up, struct str *ret)
{
    if (!up->user[0])
        return 0;
    (void)str_puts(ret, "Basic ");
    return str_put_base64(ret, up->user, strlen(up->user));
}

/* ---- NO_PROXY -------------------------------------------------------------------------------- */

static bool address_parse(const char *text, uint8_t ret[static 16], int *ret_bits)
{
    memset(ret, 0, 16);
    *ret_bits = 128;
    if (inet_pton(AF_INET6, text, ret) == 1)
        return true;
    *ret_bits = 32;
    return inet_pton(AF_INET, text, ret) == 1;
}

static bool block_has(const char *block, const char *host)
{
    char base[HOST_MAX];
    uint8_t a[16], b[16];
    int bits_a, bits_b;
    const char *slash = strchr(block, '/');
    size_t n = (size_t)(slash - block);
    if (n >= sizeof base)
        return false;
    memcpy(base, block, n);
    base[n] = '\0';
    char *end;
    long bits = strtol(slash + 1, &end, 10);
    if (!address_parse(base, a, &bits_a) || !address_parse(host, b, &bits_b) || bits_a != bits_b ||
        end == slash + 1 || *end || bits < 0 || bits > bits_a)
        return false;
    for (long i = 0; i < bits; i++)
        if (((a[i / 8] ^ b[i / 8]) >> (7 - i % 8)) & 1)
            return false;
    return true;
}

static bool name_is_below(const char *host, const char *name)
{
    size_t n = strlen(host), m = strlen(name);
    if (m == 0 || n < m || strcasecmp(host + n - m, name) != 0)
        return false;
    return n == m || (host[n - m - 1] == '.' && strspn(host, "0123456789.") != n);
}

/* Takes ":port" and brackets off ENTRY; false when they are wrong, or name another port. */
static bool port_fits(char *entry, uint16_t port)
{
    char *end, *colon = strchr(entry, ':');
    if (entry[0] == '[') {
        char *close = strchr(entry, ']');
        if (!close || (close[1] != '\0' && close[1] != ':'))
            return false;
        colon = close[1] != '\0' ? close + 1 : NULL;
        *close = '\0';
        memmove(entry, entry + 1, (size_t)(close - entry));
    } else if (colon && strchr(colon + 1, ':')) { /* an IPv6 address */
        colon = NULL;
    } else if (colon) {
        *colon = '\0';
    }
    if (!colon)
        return true;
    unsigned long wanted = strtoul(colon + 1, &end, 10);
    return end != colon + 1 && *end == '\0' && wanted == port;
}

static bool entry_names(char *entry, const char *host, uint16_t port)
{
    if (strcmp(entry, "*") == 0)
        return true;
    if (strchr(entry, '/'))
        return block_has(entry, host);
    if (!port_fits(entry, port))
        return false;
    if (entry[0] == '*' && entry[1] == '.')
        entry++;
    if (entry[0] == '.')
        entry++;
    size_t n = strlen(entry);
    if (n > 0 && entry[n - 1] == '.')
        entry[n - 1] = '\0';
    return name_is_below(host, entry);
}

bool upstream_is_bypassed(const char *list, const char *host, uint16_t port)
{
    static const char BETWEEN[] = ", \t";
    for (const char *at = list; at && *at;) {
        char entry[HOST_MAX + 10];
        at += strspn(at, BETWEEN);
        size_t n = strcspn(at, BETWEEN);
        if (n > 0 && n < sizeof entry) {
            memcpy(entry, at, n);
            entry[n] = '\0';
            if (entry_names(entry, host, port))
                return true;
        }
        at += n;
    }
    return false;
}
