/* Runs in: egress. Reads: trusted (texts of the daemon). May block: no. */
#include "egress/reply.h"
#include "base/mem.h"
#include "wire/host.h"
#include <errno.h>
#include <string.h>

static const struct reason {
    const char *word, *code, *text;
} REASONS[] = {
    {"not_listed", "site_not_listed", "is on no list of this session"},
    {"network_none", "network_none", "is refused: this session has no network"},
    {"denied", "ask_denied", "was denied by a person; asking again will not change that"},
    {"address_class", "private_address", "is at an address that is never reached from inside"},
    {"own_port", "private_address", "is refused: the port is Cordon's own"},
};

static const struct reason *reason_find(const char *word)
{
    for (size_t i = 0; i < ARRAY_LEN(REASONS); i++)
        if (strcmp(REASONS[i].word, word) == 0)
            return &REASONS[i];
    return NULL;
}

const char *reply_reason_code(const char *reason)
{
    const struct reason *r = reason_find(reason);
    return r != NULL ? r->code : "site_not_listed";
}

const char *reply_reason_text(const char *reason)
{
    const struct reason *r = reason_find(reason);
    return r != NULL ? r->text : "is not allowed";
}

static const char *status_phrase(int status)
{
    switch (status) {
    case 400:
        return "Bad Request";
    case 403:
        return "Blocked by Cordon";
    case 503:
        return "Service Unavailable";
    case 504:
        return "Gateway Timeout";
    default:
        return "Bad Gateway";
    }
}

/* RFC 9209, 2.3. */
static const char *proxy_error(int status)
{
    switch (status) {
    case 400:
        return "http_request_error";
    case 403:
        return "http_request_denied";
    case 503:
        return "connection_limit_reached";
    case 504:
        return "connection_timeout";
    default:
        return "destination_unavailable";
    }
}

/* Text into a line of a head: nothing that could end it, and short. */
static void line_put(struct str *out, const char *text)
{
    for (size_t n = 0; *text != '\0' && n < 200; text++, n++)
        (void)str_putc(out,
                       *text < 0x20 || *text > 0x7e || *text == '"' || *text == '\\' ? '?' : *text);
}

static void json_text_put(struct str *out, const char *text)
{
    (void)str_putc(out, '"');
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c == 0x7f)
            (void)str_printf(out, "\\u%04x", (unsigned)c);
        else if (c == '"' || c == '\\')
            (void)str_printf(out, "\\%c", c);
        else
            (void)str_putc(out, (char)c);
    }
    (void)str_putc(out, '"');
}

static void member_put(struct str *out, const char *name, const char *value)
{
    if (value == NULL || *value == '\0')
        return;
    (void)str_printf(out, ",\"%s\":", name);
    json_text_put(out, value);
}

static void body_json(struct str *out, const struct reply *r, const char *title)
{
    (void)str_printf(out, "{\"type\":\"about:blank\",\"status\":%d", r->status);
    member_put(out, "title", title);
    member_put(out, "code", r->code);
    if (r->host != NULL) {
        member_put(out, "host", r->host);
        (void)str_printf(out, ",\"port\":%u", (unsigned)r->port);
    }
    member_put(out, "detail", r->detail);
    member_put(out, "rule", r->rule);
    member_put(out, "hint", r->hint);
    (void)str_puts(out, "}\n");
}

static void body_text(struct str *out, const struct reply *r, const char *title)
{
    (void)str_printf(out, "%s\n%s\n", title, r->detail);
    if (r->rule != NULL && *r->rule != '\0')
        (void)str_printf(out, "Rule: %s\n", r->rule);
    if (r->hint != NULL && *r->hint != '\0')
        (void)str_printf(out, "What to do: %s\n", r->hint);
}

int reply_put(struct str *out, const struct reply *r, bool json, bool head)
{
    char target[HOST_MAX + 10] = "";
    CLEANUP(str_done) struct str body = {0}, title = {0};
    if (r->host != NULL)
        host_port_text(r->host, r->port, target);
    (void)str_printf(&title, "%s%s%s", status_phrase(r->status), *target ? ": " : "", target);
    if (json)
        body_json(&body, r, str_c(&title));
    else
        body_text(&body, r, str_c(&title));
    (void)str_printf(out, "HTTP/1.1 %d ", r->status);
    line_put(out, str_c(&title));
    (void)str_printf(out,
                     "\r\nContent-Type: %s\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n"
                     "Proxy-Status: cordon; error=%s; details=\"",
                     json ? "application/problem+json" : "text/plain; charset=utf-8", body.len,
                     proxy_error(r->status));
    line_put(out, r->detail);
    (void)str_puts(out, "\"\r\nConnection: close\r\n\r\n");
    if (!head)
        (void)str_add(out, body.data, body.len);
    return body.len > 0 && out->len > 0 ? 0 : -ENOMEM;
}
