/* Runs in: fetch. Reads: hostile (search providers). May block: no. */
#include "fetch/results.h"
#include "base/fields.h"
#include "base/mem.h"
#include "fetch/charset.h"
#include "fetch/html.h"
#include "fetch/link_to.h"
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define INNER_MAX (64 << 10) /* bytes of a title or snippet with its markup */

struct out {
    unsigned n, max;
    result_fn *fn;
    void *arg;
};

/* One line without tags, cut at whole characters. */
static void flatten(const char *html, size_t n, size_t max, struct str *ret)
{
    CLEANUP(str_done) struct str decoded = {0}, flat = {0};
    if (charset_decode("", html, n, false, &decoded) < 0 ||
        html_flat(str_c(&decoded), decoded.len, &flat) < 0)
        return;
    size_t len = flat.len < max ? flat.len : max;
    while (len > 0 && len < flat.len && ((unsigned char)flat.data[len] & 0xc0) == 0x80)
        len--;
    (void)str_add(ret, str_c(&flat), len);
}

static void result_put(struct out *o, const char *title, size_t n_title, const char *url,
                       const char *snippet, size_t n_snippet)
{
    CLEANUP(str_done) struct str t = {0}, s = {0}, link = {0};
    struct url parsed = {0};
    const char *why;
    if (o->n == o->max || url_parse(url, strlen(url), &parsed, &why) < 0)
        return;
    if (url_text(&parsed, &link) == 0) {
        flatten(title, n_title, FETCH_TITLE_MAX, &t);
        flatten(snippet, n_snippet, FETCH_SNIPPET_MAX, &s);
        o->n++;
        o->fn(str_c(&t), str_c(&link), str_c(&s), o->arg);
    }
    url_done(&parsed);
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

static int items_read(struct out *o, const json_t *items, const char *snippet)
{
    size_t i;
    const json_t *item;
    if (!json_is_array(items))
        return -EBADMSG;
    json_array_foreach(items, i, item)
    {
        const char *t = text_of(item, "title"), *s = text_of(item, snippet);
        result_put(o, t, strlen(t), text_of(item, "url"), s, strlen(s));
    }
    return (int)o->n;
}

static int json_read(struct out *o, enum fetch_form form, const char *bytes, size_t n)
{
    json_t *doc = json_loadb(bytes, n, 0, NULL);
    int r = -EBADMSG;
    if (form == FETCH_TAVILY) {
        r = items_read(o, json_object_get(doc, "results"), "content");
    } else if (json_is_object(doc)) {
        const json_t *web = json_object_get(doc, "web"); /* not there when nothing was found */
        r = web ? items_read(o, json_object_get(web, "results"), "description") : 0;
    }
    json_decref(doc);
    return r;
}

/* ---- DuckDuckGo's page ---------------------------------------------------------------------- */

static int hex(char c)
{
    return c >= '0' && c <= '9'                 ? c - '0'
           : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                : -1;
}

/* What stands behind NAME= in the query of URL, decoded. */
static bool query_member(const char *url, const char *name, struct str *ret)
{
    const char *at = strchr(url, '?');
    size_t n = strlen(name);
    for (; at && *at; at = strchr(at + 1, '&')) {
        if (strncmp(at + 1, name, n) != 0 || at[n + 1] != '=')
            continue;
        for (at += n + 2; *at && *at != '&'; at++) {
            bool coded = at[0] == '%' && hex(at[1]) >= 0 && hex(at[2]) >= 0;
            char c = coded ? (char)(hex(at[1]) * 16 + hex(at[2])) : *at;
            at += coded ? 2 : 0;
            if (c == '\0' || str_putc(ret, c) < 0)
                return false;
        }
        return ret->len > 0;
    }
    return false;
}

/* Results stand as //duckduckgo.com/l/?uddg=<the URL>; what leads elsewhere on that host is an
 * advertisement. */
static bool target_of(const char *href, struct str *ret)
{
    if (strstr(href, "duckduckgo.com/l/?") || strncmp(href, "/l/?", 4) == 0)
        return query_member(href, "uddg", ret);
    if (strstr(href, "duckduckgo.com/"))
        return false;
    return strncmp(href, "http", 4) == 0 && str_puts(ret, href) == 0;
}

struct found { /* the result that is being read */
    struct str target;
    const char *title, *snippet;
    size_t n_title, n_snippet;
};

static void found_put(struct out *o, struct found *f)
{
    if (f->target.len > 0 && f->title)
        result_put(o, f->title, f->n_title, str_c(&f->target), f->snippet ? f->snippet : "",
                   f->n_snippet);
    str_clear(&f->target);
    f->title = f->snippet = NULL;
    f->n_title = f->n_snippet = 0;
}

/* From behind the start tag to the next end tag of that name: markup and all. */
static size_t inner_length(const struct html *h, const char *name)
{
    struct html inner = *h;
    struct html_token t;
    if (inner.end - inner.at > INNER_MAX)
        inner.end = inner.at + INNER_MAX;
    const char *from = h->at, *before = from;
    while (html_next(&inner, &t) != HTML_END_OF_INPUT) {
        if (t.kind == HTML_CLOSE && strcmp(t.name, name) == 0)
            return (size_t)(before - from);
        before = inner.at;
    }
    return (size_t)(before - from);
}

static void tag_read(struct out *o, struct found *f, const struct html *h,
                     const struct html_token *t)
{
    if (html_has_class(t, "result__a")) {
        CLEANUP(str_done) struct str href = {.max = 16384};
        found_put(o, f);
        if (html_attr(t, "href", &href) && target_of(str_c(&href), &f->target)) {
            f->title = h->at;
            f->n_title = inner_length(h, t->name);
        }
    } else if (f->title && !f->snippet && html_has_class(t, "result__snippet")) {
        f->snippet = h->at;
        f->n_snippet = inner_length(h, t->name);
    }
}

static int page_read(struct out *o, const char *bytes, size_t n)
{
    CLEANUP(str_done) struct str page = {0};
    struct found f = {.target = {.max = 16384}};
    struct html h;
    struct html_token t;
    bool is_page = false;
    if (charset_decode("", bytes, n, true, &page) < 0)
        return -ENOMEM;
    html_open(&h, str_c(&page), page.len);
    while (o->n < o->max && html_next(&h, &t) != HTML_END_OF_INPUT) {
        if (t.kind != HTML_START)
            continue;
        is_page |= html_has_class(&t, "results") || html_has_class(&t, "no-results");
        tag_read(o, &f, &h, &t);
    }
    found_put(o, &f);
    str_done(&f.target);
    return is_page || o->n > 0 ? (int)o->n : -EBADMSG;
}

int results_read(enum fetch_form form, const char *bytes, size_t n, unsigned max, result_fn *fn,
                 void *arg)
{
    struct out o = {.max = max, .fn = fn, .arg = arg};
    if (form == FETCH_DUCKDUCKGO)
        return page_read(&o, bytes, n);
    return json_read(&o, form, bytes, n);
}
