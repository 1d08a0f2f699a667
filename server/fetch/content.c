/* Runs in: fetch. Reads: hostile (pages). May block: no. */
#include "fetch/content.h"
#include "base/mem.h"
#include "fetch/charset.h"
#include "fetch/markdown.h"
#include <errno.h>
#include <string.h>
#include <strings.h>

bool content_type_is(const char *type, const char *wanted)
{
    size_t n = strlen(wanted);
    return strncasecmp(type, wanted, n) == 0 && strchr("; \t", type[n]);
}

static bool is_html(const struct content *in)
{
    if (!*in->type) {
        static const char *const HEADS[] = {"<!doctype html", "<html"};
        for (size_t i = 0; i < ARRAY_LEN(HEADS); i++)
            if (in->n > strlen(HEADS[i]) && strncasecmp(in->bytes, HEADS[i], strlen(HEADS[i])) == 0)
                return true;
        return false;
    }
    return content_type_is(in->type, "text/html") ||
           content_type_is(in->type, "application/xhtml+xml");
}

static bool is_plain_text(const char *bytes, size_t n)
{
    return !memchr(bytes, '\0', n) && utf8_is_valid(bytes, n);
}

/* The bytes of a character that was cut in two at the end. */
static size_t utf8_tail(const char *bytes, size_t n)
{
    size_t k = 0;
    while (k < 3 && k < n && ((unsigned char)bytes[n - 1 - k] & 0xc0) == 0x80)
        k++;
    if (k == n || ((unsigned char)bytes[n - 1 - k] & 0xc0) != 0xc0)
        return 0;
    return utf8_is_valid(bytes + n - 1 - k, k + 1) ? 0 : k + 1;
}

/* text/…, what says that it is text, and what is text although nobody says so. */
static bool is_text(const struct content *in)
{
    static const char *const TYPES[] = {"application/json",       "application/xml",
                                        "application/javascript", "application/ecmascript",
                                        "application/yaml",       "application/toml",
                                        "application/x-sh",       "application/sql",
                                        "application/x-ndjson",   "application/graphql"};
    size_t n = strcspn(in->type, "; \t");
    if (strncasecmp(in->type, "text/", 5) == 0 ||
        (n > 4 && strncasecmp(in->type + n - 4, "+xml", 4) == 0) ||
        (n > 5 && strncasecmp(in->type + n - 5, "+json", 5) == 0))
        return true;
    for (size_t i = 0; i < ARRAY_LEN(TYPES); i++)
        if (content_type_is(in->type, TYPES[i]))
            return true;
    return false;
}

static int put_cut(struct str *out, const char *bytes, size_t n, bool *ret_cut)
{
    size_t fits = n < out->max ? n : out->max;
    *ret_cut |= fits < n;
    return str_add(out, bytes, fits);
}

static int raw_make(const struct content *in, struct str *out, bool *ret_text, bool *ret_cut)
{
    size_t tail = in->is_cut ? utf8_tail(in->bytes, in->n) : 0;
    *ret_text = is_plain_text(in->bytes, in->n - tail);
    return put_cut(out, in->bytes, *ret_text ? in->n - tail : in->n, ret_cut);
}

int content_make(const struct content *in, struct str *out, bool *ret_text, bool *ret_cut)
{
    CLEANUP(str_done) struct str text = {.max = 4 * (size_t)FETCH_BODY_MAX};
    bool html = is_html(in);
    *ret_cut = false;
    *ret_text = true;
    if (in->n == 0)
        return 0;
    if (in->form == FETCH_RAW || !(html || is_text(in)))
        return raw_make(in, out, ret_text, ret_cut);
    int r = charset_decode(in->type, in->bytes, in->n, html, &text);
    if (r == 0 && !html) {
        r = put_cut(out, str_c(&text), text.len, ret_cut);
    } else if (r == 0) {
        r = markdown_make(str_c(&text), text.len, in->url, in->form == FETCH_TEXT, out);
        *ret_cut = r == -E2BIG;
        r = r == -E2BIG ? 0 : r;
    }
    if (r == 0 && *ret_cut)
        out->len -= utf8_tail(out->data, out->len);
    return r;
}
