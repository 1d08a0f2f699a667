/* Runs in: egress. Reads: hostile. May block: no. */
#include "egress/rewrite.h"
#include "base/mem.h"
#include <errno.h>
#include <string.h>
#include <strings.h>

const char *uri_parse(const char *target, size_t n, char ret_host[static HOST_MAX],
                      uint16_t *ret_port, const char **ret_path, size_t *ret_path_len)
{
    static const char SCHEME[] = "http://";
    size_t at = sizeof SCHEME - 1, end = at;
    if (n <= at || strncasecmp(target, SCHEME, at) != 0)
        return "only http:// URIs are forwarded; for everything else use CONNECT";
    while (end < n && target[end] != '/' && target[end] != '?' && target[end] != '#')
        end++;
    if (memchr(target + end, '#', n - end) != NULL)
        return "a request target has no fragment";
    if (host_port_parse(target + at, end - at, 80, ret_host, ret_port) == HOST_BAD)
        return "the host or port of the URI is not in a plain form";
    *ret_path = target + end;
    *ret_path_len = n - end;
    return NULL;
}

/* Fields that are for one hop only, or rewritten here. */
static const char *const HOP_FIELDS[] = {
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "transfer-encoding",
    "content-length",
    "upgrade",
    "host",
    "proxy-authentication-info",
};

static bool is_kept(const struct httphead *h, const struct head_field *f)
{
    for (size_t i = 0; i < ARRAY_LEN(HOP_FIELDS); i++)
        if (head_field_is(f, HOP_FIELDS[i]) && (!h->is_response || strcmp(HOP_FIELDS[i], "host")))
            return false;
    return !httphead_has_token(h, "connection", f->name, f->name_len);
}

static void field_put(struct str *out, const struct head_field *f)
{
    (void)str_add(out, f->name, f->name_len);
    (void)str_puts(out, ": ");
    (void)str_add(out, f->value, f->value_len);
    (void)str_puts(out, "\r\n");
}

/* Room for all that is written below, so that no part of a head can be missing from it: a field is
 * written with one byte more than it came with. */
static bool room_make(struct str *out, const struct httphead *h)
{
    return str_room(out, h->raw.len + h->n_fields + HOST_MAX + 256) != NULL;
}

static void fields_put(struct str *out, const struct httphead *h)
{
    const struct head_field *length = httphead_find(h, "content-length");
    for (size_t i = 0; i < h->n_fields; i++)
        if (is_kept(h, &h->fields[i]))
            field_put(out, &h->fields[i]);
    if (h->is_response && (h->status < 200 || h->status == 204))
        return;
    if (length != NULL)
        field_put(out, length);
    if (httphead_find(h, "transfer-encoding") != NULL)
        (void)str_puts(out, "Transfer-Encoding: chunked\r\n");
}

static void upgrade_put(struct str *out, const struct httphead *h)
{
    for (size_t i = 0; i < h->n_fields; i++)
        if (head_field_is(&h->fields[i], "upgrade"))
            field_put(out, &h->fields[i]);
    (void)str_puts(out, "Connection: Upgrade\r\n");
}

int rewrite_request(struct str *out, const struct httphead *h, const char *host, uint16_t port,
                    const char *path, size_t path_len)
{
    char authority[HOST_MAX + 10];
    if (!room_make(out, h))
        return -ENOMEM;
    host_port_text(host, port, authority);
    if (port == 80)
        *strrchr(authority, ':') = '\0';
    (void)str_add(out, h->method, h->method_len);
    (void)str_putc(out, ' ');
    if (path_len == 0 && h->method_len == 7 && memcmp(h->method, "OPTIONS", 7) == 0)
        (void)str_putc(out, '*'); /* RFC 9112, 3.2.4 */
    else if (path_len == 0 || path[0] != '/')
        (void)str_putc(out, '/');
    (void)str_add(out, path, path_len);
    /* A client of 1.0 could not read what a server of 1.1 may answer. */
    (void)str_printf(out, " HTTP/1.%d\r\nHost: %s\r\n", h->minor > 0 ? 1 : 0, authority);
    fields_put(out, h);
    if (h->upgrade)
        upgrade_put(out, h);
    return str_puts(out, "\r\n");
}

int rewrite_for_proxy(struct str *out, const struct str *head, const char *authorization)
{
    static const char HOST[] = "\r\nHost: ";
    const char *space = memchr(head->data, ' ', head->len);
    const char *host = memmem(head->data, head->len, HOST, sizeof HOST - 1);
    if (space == NULL || host == NULL)
        return -EINVAL;
    const char *authority = host + sizeof HOST - 1, *end = head->data + head->len;
    const char *line_end = memchr(authority, '\r', (size_t)(end - authority));
    if (line_end == NULL || host < space)
        return -EINVAL;
    const char *path = space + 1;
    if (*path == '*')
        path++; /* RFC 9112, 3.2.4: the proxy makes it from an empty path */
    if (str_room(out, head->len + HOST_MAX + strlen(authorization) + 64) == NULL)
        return -ENOMEM;
    (void)str_add(out, head->data, (size_t)(space + 1 - head->data));
    (void)str_puts(out, "http://");
    (void)str_add(out, authority, (size_t)(line_end - authority));
    (void)str_add(out, path, (size_t)(line_end + 2 - path));
    if (authorization[0] != '\0')
        (void)str_printf(out, "Proxy-Authorization: %s\r\n", authorization);
    return str_add(out, line_end + 2, (size_t)(end - line_end) - 2);
}

int rewrite_response(struct str *out, const struct httphead *h, const struct rewrite_response *how)
{
    const char *line_end = memchr(h->raw.data, '\r', h->raw.len);
    if (!room_make(out, h))
        return -ENOMEM;
    /* Our own version, then the status and reason as they came. */
    (void)str_puts(out, "HTTP/1.1");
    (void)str_add(out, h->raw.data + 8, (size_t)(line_end - h->raw.data) - 8);
    (void)str_puts(out, "\r\n");
    fields_put(out, h);
    if (how->upgraded)
        upgrade_put(out, h);
    else if (h->status >= 200 && !how->keep_alive)
        (void)str_puts(out, "Connection: close\r\n");
    else if (h->status >= 200 && how->client_minor == 0)
        (void)str_puts(out, "Connection: keep-alive\r\n");
    if (h->status == 426 && !how->upgraded)
        for (size_t i = 0; i < h->n_fields; i++)
            if (head_field_is(&h->fields[i], "upgrade"))
                field_put(out, &h->fields[i]);
    return str_puts(out, "\r\n");
}
