/* Runs in: any. Reads: hostile. May block: no.
 * Typed entries -> rules (host_rule_parse of policy/hostset.h). */
#include "base/str.h"
#include "policy/hostset.h"
#include "wire/idna.h"
#include <arpa/inet.h>
#include <errno.h>
#include <libpsl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TYPED_MAX = 1024
}; /* bytes of an entry that is looked at; U-labels are longer than A-labels */

/* Why an entry is refused; the order is that of the checks. */
enum fault {
    FAULT_NONE = 0,
    FAULT_EMPTY,
    FAULT_LONG,
    FAULT_URL,
    FAULT_SPACE,
    FAULT_USERINFO,
    FAULT_PATH,
    FAULT_DOT,
    FAULT_STAR,
    FAULT_V6,
    FAULT_PORT,
    FAULT_PORT_STAR,
    FAULT_ADDRESS,
    FAULT_HOST
};
static const char *const FAULTS[] = {
    [FAULT_NONE] = "",
    [FAULT_EMPTY] = "a site needs a host",
    [FAULT_LONG] = "a host has at most 253 bytes",
    [FAULT_URL] = "a site is a host and a port, not a URL",
    [FAULT_SPACE] = "no space or control byte may stand in a site",
    [FAULT_USERINFO] = "no user name may stand before a host",
    [FAULT_PATH] = "a site is a host and a port: no path, query or fragment",
    [FAULT_DOT] = "subdomains are written with a star before the dot",
    [FAULT_STAR] = "a star stands alone or as the whole first label",
    [FAULT_V6] = "an IPv6 address stands in brackets",
    [FAULT_PORT] = "a port is 1 to 65535, in digits without sign or leading zero",
    [FAULT_PORT_STAR] = "each port is an entry of its own; no port means 443 and 80",
    [FAULT_ADDRESS] = "an IPv4 address is written as four decimal numbers",
    [FAULT_HOST] = "this is no host name: letters, digits, '-' and '_' in labels of 1 to 63",
};

/* Does a wildcard below NAME span more than one owner? The list's rules may themselves be
 * wildcards ("*.ck"), so an arbitrary name below NAME is asked for too. Without a list: yes. */
static bool below_is_wide(const char *name)
{
    char below[HOST_MAX + 4];
    const psl_ctx_t *list = psl_builtin();
    snprintf(below, sizeof below, "x.%s", name);
    return !list || psl_is_public_suffix2(list, name, PSL_TYPE_ICANN) ||
           psl_is_public_suffix2(list, below, PSL_TYPE_ICANN);
}

bool host_is_shared(const char *host)
{
    const psl_ctx_t *list = psl_builtin();
    return !list || psl_is_public_suffix2(list, host, PSL_TYPE_ANY);
}

static bool port_parse(const char *text, uint16_t *ret)
{
    uint64_t port;
    if (text[0] == '0' || parse_u64(text, 1, 65535, &port) < 0)
        return false;
    *ret = (uint16_t)port;
    return true;
}

/* What other programs would read as an address: "127.1", "0x7f.1", "017.0.0.1", "2130706433". */
static bool is_odd_address(const char *host, char *ret_quad, size_t size)
{
    struct in_addr a;
    return inet_aton(host, &a) == 1 && inet_ntop(AF_INET, &a, ret_quad, (socklen_t)size) != NULL;
}

/* Host without port -> HOST. */
static enum fault name_take(const char *typed, char host[static HOST_MAX], enum host_kind *ret_kind)
{
    char quad[INET_ADDRSTRLEN];
    size_t n = strlen(typed);
    if (n == 0)
        return FAULT_EMPTY;
    if (typed[0] == '[') {
        *ret_kind = host_canonical(typed, n, true, host);
        return *ret_kind == HOST_V6 ? FAULT_NONE : FAULT_V6;
    }
    if (strchr(typed, ':'))
        return FAULT_V6;
    if (typed[0] == '.')
        return FAULT_DOT;
    if (strchr(typed, '*'))
        return FAULT_STAR;
    *ret_kind = host_from_typed(typed, host);
    if (*ret_kind == HOST_NAME || *ret_kind == HOST_V4)
        return FAULT_NONE;
    if (is_odd_address(typed, quad, sizeof quad))
        return FAULT_ADDRESS;
    return n > HOST_MAX - 3 ? FAULT_LONG : FAULT_HOST;
}

static enum fault shape_check(const char *text)
{
    if (!text[0])
        return FAULT_EMPTY;
    if (strlen(text) > TYPED_MAX)
        return FAULT_LONG;
    if (strstr(text, "://"))
        return FAULT_URL;
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        if (*p <= ' ' || *p == 0x7f)
            return FAULT_SPACE;
    if (strchr(text, '@'))
        return FAULT_USERINFO;
    return strpbrk(text, "/?#\\") ? FAULT_PATH : FAULT_NONE;
}

/* Splits "host:port"; a text with more than one colon is an IPv6 address. */
static enum fault port_split(char *text, uint16_t *ret_port)
{
    char *colon = strrchr(text, ':'), *bracket = strchr(text, ']');
    if (!colon || (bracket && colon < bracket))
        return FAULT_NONE;
    if (!bracket && strchr(text, ':') != colon)
        return FAULT_V6;
    if (bracket && colon != bracket + 1)
        return FAULT_V6;
    if (strcmp(colon + 1, "*") == 0)
        return FAULT_PORT_STAR;
    if (!port_parse(colon + 1, ret_port))
        return FAULT_PORT;
    *colon = '\0';
    return FAULT_NONE;
}

static enum fault rule_take(const char *text, enum covers bare_covers, char host[static HOST_MAX],
                            struct host_rule *ret, bool *ret_wide)
{
    char copy[TYPED_MAX + 1];
    struct host_rule rule = {.host = host, .covers = bare_covers};
    enum host_kind kind = HOST_BAD;
    enum fault fault = shape_check(text);
    if (fault)
        return fault;
    snprintf(copy, sizeof copy, "%s", text);
    fault = port_split(copy, &rule.port);
    if (fault)
        return fault;
    if (strcmp(copy, "*") == 0) {
        rule.covers = COVERS_ANY;
        snprintf(host, HOST_MAX, "*");
        *ret = rule;
        *ret_wide = true;
        return FAULT_NONE;
    }
    bool below = str_starts(copy, "*.");
    fault = name_take(copy + (below ? 2 : 0), host, &kind);
    if (fault)
        return fault;
    if (below && kind != HOST_NAME)
        return FAULT_STAR;
    rule.covers = below ? COVERS_SUBDOMAINS : kind == HOST_NAME ? bare_covers : COVERS_HOST;
    *ret_wide = rule.covers != COVERS_HOST && below_is_wide(host);
    *ret = rule;
    return FAULT_NONE;
}

/* ---- What was probably meant ----------------------------------------------------------------- */

/* Cuts scheme, userinfo and path off and reports the port that the scheme stands for. */
static char *url_strip(char *s, const char **ret_port)
{
    char *at, *scheme = strstr(s, "://");
    *ret_port = NULL;
    if (scheme) {
        *scheme = '\0';
        *ret_port = strcmp(s, "https") == 0 || strcmp(s, "wss") == 0 ? "443"
                    : strcmp(s, "http") == 0 || strcmp(s, "ws") == 0 ? "80"
                    : strcmp(s, "ssh") == 0                          ? "22"
                                                                     : NULL;
        s = scheme + 3;
    }
    s[strcspn(s, "/?#\\")] = '\0';
    at = strrchr(s, '@');
    return at ? at + 1 : s;
}

static char *space_strip(char *s)
{
    while (*s && (unsigned char)*s <= ' ')
        s++;
    for (size_t n = strlen(s); n > 0 && (unsigned char)s[n - 1] <= ' '; n--)
        s[n - 1] = '\0';
    return s;
}

/* Repairs HOST, which has no port any more, into RET. */
static void host_repair(const char *host, char *ret, size_t size)
{
    struct in6_addr v6;
    char quad[INET_ADDRSTRLEN];
    if (inet_pton(AF_INET6, host, &v6) == 1)
        snprintf(ret, size, "[%s]", host);
    else if (host[0] == '.' && host[1])
        snprintf(ret, size, "*%s", host);
    else if (is_odd_address(host, quad, sizeof quad))
        snprintf(ret, size, "%s", quad);
    else
        snprintf(ret, size, "%s", host);
}

/* "host:0443" and "host:*" -> host and a port that is one, or none. */
static const char *port_repair(char *s, char port[static 8])
{
    char *colon = strrchr(s, ':'), *bracket = strchr(s, ']');
    uint64_t n;
    port[0] = '\0';
    if (!colon || (bracket && colon < bracket) || (!bracket && strchr(s, ':') != colon))
        return NULL;
    *colon++ = '\0';
    colon += strspn(colon, "+0");
    if (parse_u64(colon, 1, 65535, &n) < 0)
        return NULL;
    snprintf(port, 8, "%u", (unsigned)n);
    return port;
}

static void suggestion_make(const char *text, char ret[static HOST_RULE_TEXT_MAX])
{
    char copy[TYPED_MAX + 1], host[TYPED_MAX + 4], whole[TYPED_MAX + 16], port[8];
    char canonical[HOST_MAX];
    struct host_rule rule;
    const char *scheme_port;
    bool wide;
    ret[0] = '\0';
    if (strlen(text) > TYPED_MAX)
        return;
    snprintf(copy, sizeof copy, "%s", text);
    char *s = url_strip(space_strip(copy), &scheme_port);
    const char *own_port = port_repair(s, port);
    host_repair(s, host, sizeof host);
    if (!own_port)
        own_port = scheme_port;
    snprintf(whole, sizeof whole, "%s%s%s", host, own_port ? ":" : "", own_port ? own_port : "");
    if (rule_take(whole, COVERS_HOST, canonical, &rule, &wide) == FAULT_NONE)
        host_rule_text(&rule, ret);
}

static int rule_refuse(const char *text, enum fault fault, const char *suggestion, struct err *err)
{
    struct str shown = {0};
    char hint[HOST_RULE_TEXT_MAX + 16] = "";
    if (suggestion[0])
        snprintf(hint, sizeof hint, "write %s", suggestion);
    (void)str_put_escaped(&shown, text, strnlen(text, 120));
    err_set(err, -EINVAL, "site_invalid", suggestion[0] ? hint : NULL, "\"%s\": %s", str_c(&shown),
            FAULTS[fault]);
    str_done(&shown);
    return -EINVAL;
}

int host_rule_parse(const char *text, enum covers bare_covers, char host[static HOST_MAX],
                    struct host_rule *ret, bool *ret_wide,
                    char suggestion[static HOST_RULE_TEXT_MAX], struct err *err)
{
    suggestion[0] = '\0';
    enum fault fault = rule_take(text, bare_covers, host, ret, ret_wide);
    if (fault == FAULT_NONE)
        return 0;
    suggestion_make(text, suggestion);
    return rule_refuse(text, fault, suggestion, err);
}

void host_rule_kept(const char *host, enum covers bare_covers, struct host_rule *ret)
{
    struct in_addr v4;
    bool is_any = strcmp(host, "*") == 0, below = str_starts(host, "*.");
    bool is_address = strchr(host, ':') || inet_pton(AF_INET, host, &v4) == 1;
    ret->host = below ? host + 2 : host;
    ret->covers = is_any       ? COVERS_ANY
                  : below      ? COVERS_SUBDOMAINS
                  : is_address ? COVERS_HOST
                               : bare_covers;
}

enum host_reach host_rule_reach(const struct host_rule *rule)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    const struct sockaddr *at = NULL;
    if (rule->covers == COVERS_ANY)
        return REACH_ORDINARY;
    if (inet_pton(AF_INET, rule->host, &v4.sin_addr) == 1)
        at = (struct sockaddr *)&v4;
    else if (inet_pton(AF_INET6, rule->host, &v6.sin6_addr) == 1)
        at = (struct sockaddr *)&v6;
    if (!at)
        return strcmp(rule->host, "localhost") == 0 ? REACH_LOOPBACK : REACH_ORDINARY;
    enum addr_class class = addr_class(at);
    return class == ADDR_PUBLIC     ? REACH_ORDINARY
           : class == ADDR_PRIVATE  ? REACH_PRIVATE
           : class == ADDR_LOOPBACK ? REACH_LOOPBACK
                                    : REACH_NEVER;
}

void host_rule_unicode(const char *host, char *ret, size_t size)
{
    bool below = str_starts(host, "*.");
    size_t n = below ? 2 : 0;

    (void)snprintf(ret, size, "%s", below ? "*." : "");
    host_to_unicode(host + n, ret + n, size - n);
}
