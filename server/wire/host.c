/* Runs in: any. Reads: hostile. May block: no. */
#include "wire/host.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#define NAME_MAX_BYTES  253 /* RFC 1035, 2.3.4, as text without the root dot */
#define LABEL_MAX_BYTES 63

/* Own tests of characters: the ones of ctype.h follow the locale. */
static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_hex(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static char to_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool is_label_char(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || c == '-' || c == '_';
}

/* Would a URL parser or inet_aton read this label as a number (WHATWG URL, 3.5 "ends in a
 * number")? */
static bool label_is_number(const char *label, size_t n)
{
    bool hex = n >= 2 && label[0] == '0' && to_lower(label[1]) == 'x';
    for (size_t i = hex ? 2 : 0; i < n; i++)
        if (!(hex ? is_hex(label[i]) : is_digit(label[i])))
            return false;
    return true;
}

static enum host_kind name_canonical(const char *host, size_t n, char *ret)
{
    char name[HOST_MAX];
    size_t label = 0;
    if (n > 1 && host[n - 1] == '.')
        n--;
    if (n == 0 || n > NAME_MAX_BYTES)
        return HOST_BAD;
    for (size_t i = 0; i < n; i++) {
        name[i] = to_lower(host[i]);
        if (name[i] == '.') {
            if (i == label || i - label > LABEL_MAX_BYTES)
                return HOST_BAD;
            label = i + 1;
        } else if (!is_label_char(name[i])) {
            return HOST_BAD;
        }
    }
    if (n == label || n - label > LABEL_MAX_BYTES || label_is_number(name + label, n - label))
        return HOST_BAD;
    memcpy(ret, name, n);
    ret[n] = '\0';
    return HOST_NAME;
}

/* Four decimal numbers without leading zeros: what every reader takes for the same address. */
static enum host_kind v4_canonical(const char *host, size_t n, char *ret)
{
    size_t at = 0;
    for (int part = 0; part < 4; part++) {
        size_t start = at;
        unsigned value = 0;
        while (at < n && at - start < 3 && is_digit(host[at]))
            value = value * 10 + (unsigned)(host[at++] - '0');
        if (at == start || value > 255 || (host[start] == '0' && at - start > 1))
            return HOST_BAD;
        if (part < 3 && (at == n || host[at++] != '.'))
            return HOST_BAD;
    }
    if (at != n)
        return HOST_BAD;
    memcpy(ret, host, n);
    ret[n] = '\0';
    return HOST_V4;
}

static enum host_kind v6_canonical(const char *host, size_t n, char *ret)
{
    char text[INET6_ADDRSTRLEN];
    struct in6_addr a;
    if (n < 2 || n >= sizeof text)
        return HOST_BAD;
    for (size_t i = 0; i < n; i++)
        if (!is_hex(host[i]) && host[i] != ':' && host[i] != '.')
            return HOST_BAD;
    memcpy(text, host, n);
    text[n] = '\0';
    if (inet_pton(AF_INET6, text, &a) != 1 || inet_ntop(AF_INET6, &a, text, sizeof text) == NULL)
        return HOST_BAD;
    memcpy(ret, text, strlen(text) + 1);
    return HOST_V6;
}

enum host_kind host_canonical(const char *host, size_t n, bool bracketed, char ret[static HOST_MAX])
{
    if (n == 0 || n > HOST_MAX)
        return HOST_BAD;
    if (bracketed && host[0] == '[')
        return host[n - 1] == ']' ? v6_canonical(host + 1, n - 2, ret) : HOST_BAD;
    if (memchr(host, ':', n) != NULL)
        return bracketed ? HOST_BAD : v6_canonical(host, n, ret);
    if (v4_canonical(host, n, ret) == HOST_V4)
        return HOST_V4;
    return name_canonical(host, n, ret);
}

static bool port_parse(const char *text, size_t n, uint16_t *ret)
{
    unsigned value = 0;
    if (n == 0 || n > 5 || text[0] == '0')
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!is_digit(text[i]))
            return false;
        value = value * 10 + (unsigned)(text[i] - '0');
    }
    if (value > 65535)
        return false;
    *ret = (uint16_t)value;
    return true;
}

enum host_kind host_port_parse(const char *text, size_t n, uint16_t default_port,
                               char ret[static HOST_MAX], uint16_t *ret_port)
{
    size_t host_len = n;
    uint16_t port = default_port;
    if (n > 0 && text[0] == '[') {
        const char *end = memchr(text, ']', n);
        if (end == NULL)
            return HOST_BAD;
        host_len = (size_t)(end - text) + 1;
    } else {
        const char *colon = n > 0 ? memchr(text, ':', n) : NULL;
        if (colon != NULL)
            host_len = (size_t)(colon - text);
    }
    if (host_len < n &&
        (text[host_len] != ':' || !port_parse(text + host_len + 1, n - host_len - 1, &port)))
        return HOST_BAD;
    if (port == 0)
        return HOST_BAD;
    enum host_kind kind = host_canonical(text, host_len, true, ret);
    if (kind != HOST_BAD)
        *ret_port = port;
    return kind;
}

void host_port_text(const char *host, uint16_t port, char ret[static HOST_MAX + 10])
{
    bool v6 = strchr(host, ':') != NULL;
    snprintf(ret, HOST_MAX + 10, v6 ? "[%.255s]:%u" : "%.255s:%u", host, (unsigned)port);
}

/* ---- Address classes ------------------------------------------------------------------------ */

/* IANA IPv4 Special-Purpose Address Registry; the most specific row stands first. The
 * documentation ranges are ordinary: nothing there is ours or the machine's. */
static const struct {
    uint32_t address;
    int bits;
    enum addr_class class;
} V4_ROWS[] = {
    {0x00000000, 32, ADDR_UNSPECIFIED},
    {0x00000000, 8, ADDR_RESERVED}, /* "this network" (RFC 791) */
    {0x0a000000, 8, ADDR_PRIVATE},
    {0x646464c8, 32, ADDR_METADATA}, /* 100.100.100.200 */
    {0x64400000, 10, ADDR_CARRIER_NAT},
    {0x7f000000, 8, ADDR_LOOPBACK},
    {0xa83f8110, 32, ADDR_METADATA}, /* 168.63.129.16, an ordinary address but a host's service */
    {0xa9fea9fe, 32, ADDR_METADATA}, /* 169.254.169.254 */
    {0xa9feaa02, 32, ADDR_METADATA}, /* 169.254.170.2, credentials of containers */
    {0xa9feaa17, 32, ADDR_METADATA}, /* 169.254.170.23, the same */
    {0xa9fe0000, 16, ADDR_LINK_LOCAL},
    {0xac100000, 12, ADDR_PRIVATE},
    {0xc00000c0, 32, ADDR_METADATA}, /* 192.0.0.192 */
    {0xc0000000, 24, ADDR_RESERVED}, /* IETF protocol assignments */
    {0xc0586300, 24, ADDR_RESERVED}, /* 192.88.99.0, 6to4 relays (RFC 7526) */
    {0xc0a80000, 16, ADDR_PRIVATE},
    {0xc6120000, 15, ADDR_RESERVED}, /* 198.18.0.0, benchmarking; stands for names inside */
    {0xe0000000, 4, ADDR_MULTICAST},
    {0xf0000000, 4, ADDR_RESERVED}, /* and the broadcast address */
};

static enum addr_class v4_class(uint32_t address)
{
    for (size_t i = 0; i < sizeof V4_ROWS / sizeof V4_ROWS[0]; i++)
        if ((address ^ V4_ROWS[i].address) >> (32 - V4_ROWS[i].bits) == 0)
            return V4_ROWS[i].class;
    return ADDR_PUBLIC;
}

/* How a row's addresses hide an IPv4 address. */
enum v6_hides {
    HIDES_NOTHING = 0,
    HIDES_AT_12,        /* the last four bytes, and the address is a working form of it */
    HIDES_AT_12_LEGACY, /* likewise, but nothing real is reached by this form any more */
    HIDES_AT_12_XOR,    /* Teredo: inverted (RFC 4380, 4) */
    HIDES_AT_2          /* 6to4 (RFC 3056, 2) */
};

/* IANA IPv6 Special-Purpose Address Registry; the most specific row stands first, and whatever is
 * in no row and outside 2000::/3 is not allocated. */
static const struct {
    uint8_t prefix[16];
    int bits;
    enum addr_class class;
    enum v6_hides hides;
} V6_ROWS[] = {
    {{0}, 128, ADDR_UNSPECIFIED, HIDES_NOTHING},
    {{[15] = 1}, 128, ADDR_LOOPBACK, HIDES_NOTHING},
    {{[10] = 0xff, [11] = 0xff}, 96, ADDR_UNKNOWN, HIDES_AT_12},
    {{0}, 96, ADDR_UNKNOWN, HIDES_AT_12_LEGACY},
    {{0, 0x64, 0xff, 0x9b}, 96, ADDR_UNKNOWN, HIDES_AT_12},
    {{0x20, 0x01}, 32, ADDR_UNKNOWN, HIDES_AT_12_XOR},
    {{0x20, 0x01}, 23, ADDR_RESERVED, HIDES_NOTHING}, /* IETF protocol assignments */
    {{0x20, 0x02}, 16, ADDR_UNKNOWN, HIDES_AT_2},
    {{0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, [15] = 0x54}, 128, ADDR_METADATA, HIDES_NOTHING},
    {{0xfd, 0x00, 0x0e, 0xc2, [15] = 0x23}, 128, ADDR_METADATA, HIDES_NOTHING},
    {{0xfd, 0x20, 0x00, 0xce, [14] = 0x02, [15] = 0x54}, 128, ADDR_METADATA, HIDES_NOTHING},
    {{0xfd, 0x00, 0x00, 0x42, [15] = 0x42}, 128, ADDR_METADATA, HIDES_NOTHING},
    {{0xfc}, 7, ADDR_PRIVATE, HIDES_NOTHING},
    {{0xfe, 0x80}, 10, ADDR_LINK_LOCAL, HIDES_NOTHING},
    {{0xff}, 8, ADDR_MULTICAST, HIDES_NOTHING},
    {{0x20}, 3, ADDR_PUBLIC, HIDES_NOTHING},
};

static bool prefix_matches(const uint8_t *a, const uint8_t *prefix, int bits)
{
    int whole = bits / 8, rest = bits % 8;
    return memcmp(a, prefix, (size_t)whole) == 0 &&
           (rest == 0 || (a[whole] ^ prefix[whole]) >> (8 - rest) == 0);
}

static uint32_t v4_from(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static enum addr_class v6_hidden_class(const uint8_t *a, enum v6_hides hides)
{
    enum addr_class class = ADDR_UNKNOWN;
    switch (hides) {
    case HIDES_NOTHING:
        return ADDR_UNKNOWN;
    case HIDES_AT_12:
        return v4_class(v4_from(a + 12));
    case HIDES_AT_12_LEGACY:
        class = v4_class(v4_from(a + 12));
        break;
    case HIDES_AT_12_XOR:
        class = v4_class(~v4_from(a + 12));
        break;
    case HIDES_AT_2:
        class = v4_class(v4_from(a + 2));
        break;
    }
    return class == ADDR_PUBLIC ? ADDR_RESERVED : class;
}

static enum addr_class v6_class(const uint8_t *a)
{
    for (size_t i = 0; i < sizeof V6_ROWS / sizeof V6_ROWS[0]; i++)
        if (prefix_matches(a, V6_ROWS[i].prefix, V6_ROWS[i].bits))
            return V6_ROWS[i].hides == HIDES_NOTHING ? V6_ROWS[i].class
                                                     : v6_hidden_class(a, V6_ROWS[i].hides);
    return ADDR_RESERVED;
}

enum addr_class addr_class(const struct sockaddr *sa)
{
    if (sa->sa_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, sa, sizeof v4);
        return v4_class(ntohl(v4.sin_addr.s_addr));
    }
    if (sa->sa_family == AF_INET6) {
        struct sockaddr_in6 v6;
        memcpy(&v6, sa, sizeof v6);
        return v6_class(v6.sin6_addr.s6_addr);
    }
    return ADDR_UNKNOWN;
}

const char *addr_class_name(enum addr_class c)
{
    switch (c) {
    case ADDR_UNKNOWN:
        return "unknown";
    case ADDR_PUBLIC:
        return "public";
    case ADDR_PRIVATE:
        return "private";
    case ADDR_LOOPBACK:
        return "loopback";
    case ADDR_UNSPECIFIED:
        return "unspecified";
    case ADDR_LINK_LOCAL:
        return "link-local";
    case ADDR_MULTICAST:
        return "multicast";
    case ADDR_METADATA:
        return "metadata service";
    case ADDR_CARRIER_NAT:
        return "carrier NAT";
    case ADDR_RESERVED:
        return "reserved";
    case ADDR_OWN:
        return "this host's own";
    }
    return "unknown";
}
