/* Runs in: fetch. Reads: hostile (pages). May block: no.
 *
 * A pen that writes blocks and inline marks. What is asked for is remembered (a blank line, a
 * space, an opening mark) and written only before the next visible character, so that empty
 * elements leave nothing. */
#include "fetch/markdown.h"
#include "base/mem.h"
#include "fetch/html.h"
#include "fetch/link_to.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LISTS_MAX 16
#define MARKS_MAX 12
#define TAG_MAX   32

struct list {
    bool is_ordered;
    unsigned n;
};
struct mark { /* an inline element that is open */
    char tag[TAG_MAX];
    const char *text; /* "**" …; "[" for a link */
    char *target;     /* of a link; owned */
    bool is_written;
};
struct pen {
    struct str *out;
    const struct url *base;
    bool is_plain, has_text; /* anything was written at all */
    int r;                   /* the first failure: nothing is written behind it */
    unsigned breaks;         /* line ends to write before what comes next: 1 or 2 */
    bool space;
    enum { PRE_NOT = 0, PRE_FRESH, PRE_INSIDE } pre;
    unsigned quotes, skipped;
    struct list lists[LISTS_MAX];
    unsigned n_lists;
    const char *lead; /* what the next line begins with: "- ", "## " …; NULL = nothing */
    char number[16];
    struct mark marks[MARKS_MAX];
    unsigned n_marks;
    unsigned cells, row; /* of the table's row at hand; rows so far */
};

/* ---- Writing -------------------------------------------------------------------------------- */

static void put(struct pen *p, const char *bytes, size_t n)
{
    if (p->r >= 0)
        p->r = str_add(p->out, bytes, n);
}

static void puts_(struct pen *p, const char *text)
{
    put(p, text, strlen(text));
}

static void line_begin(struct pen *p)
{
    for (unsigned i = 0; i < p->quotes; i++)
        puts_(p, "> ");
    for (unsigned i = 1; i < p->n_lists; i++)
        puts_(p, "  ");
    if (p->n_lists > 0 && !p->lead)
        puts_(p, "  ");
    if (p->lead)
        puts_(p, TAKE(p->lead));
}

/* Before anything that can be seen. */
static void settle(struct pen *p)
{
    if (p->breaks > 0 || !p->has_text || p->lead) {
        for (unsigned i = 0; p->has_text && i < (p->breaks > 0 ? p->breaks : 1); i++)
            puts_(p, "\n");
        line_begin(p);
        p->space = false;
    }
    if (p->space)
        puts_(p, " ");
    p->breaks = 0;
    p->space = false;
    p->has_text = true;
    for (unsigned i = 0; i < p->n_marks; i++)
        if (!p->marks[i].is_written) {
            p->marks[i].is_written = true;
            puts_(p, p->marks[i].text);
        }
}

static void mark_close(struct pen *p)
{
    struct mark *m = &p->marks[--p->n_marks];
    if (m->is_written && m->target) {
        puts_(p, "](");
        puts_(p, m->target);
        puts_(p, ")");
    } else if (m->is_written) {
        puts_(p, m->text);
    }
    free(TAKE(m->target));
}

static void marks_close(struct pen *p)
{
    while (p->n_marks > 0)
        mark_close(p);
}

/* What was written is closed; what was opened and waits for its first character goes on waiting. */
static void marks_pass_block(struct pen *p)
{
    struct mark waiting[MARKS_MAX];
    unsigned n = 0;
    while (p->n_marks > 0 && !p->marks[p->n_marks - 1].is_written)
        waiting[n++] = p->marks[--p->n_marks];
    marks_close(p);
    while (n > 0)
        p->marks[p->n_marks++] = waiting[--n];
}

static void block(struct pen *p, unsigned breaks)
{
    marks_pass_block(p);
    p->breaks = p->breaks > breaks ? p->breaks : breaks;
    p->space = false;
}

static void mark_open(struct pen *p, const char *tag, const char *text, char *take_target)
{
    if (p->is_plain || p->pre || p->n_marks == MARKS_MAX) {
        free(take_target);
        return;
    }
    struct mark *m = &p->marks[p->n_marks++];
    *m = (struct mark){.text = text, .target = take_target};
    (void)snprintf(m->tag, sizeof m->tag, "%s", tag);
}

/* The innermost open one of this name, and what is open inside it. */
static void mark_end(struct pen *p, const char *tag)
{
    unsigned at = p->n_marks;
    while (at > 0 && strcmp(p->marks[at - 1].tag, tag) != 0)
        at--;
    while (at > 0 && p->n_marks >= at)
        mark_close(p);
}

static void text_pre(struct pen *p, const char *text, size_t n)
{
    if (p->pre == PRE_FRESH && n > 0 && text[0] == '\n') { /* HTML, 13.2.6.4.7: it does not count */
        text++;
        n--;
    }
    p->pre = PRE_INSIDE;
    while (n > 0) {
        size_t len = strcspn(text, "\n");
        len = len < n ? len : n;
        if (len > 0) {
            settle(p);
            put(p, text, len);
        }
        if (len == n)
            return;
        if (p->breaks > 0) /* an empty line inside */
            settle(p);
        p->breaks = 1;
        text += len + 1;
        n -= len + 1;
    }
}

static void text_flow(struct pen *p, const char *text, size_t n)
{
    for (size_t at = 0; at < n;) {
        size_t len = 0;
        while (at + len < n && !strchr(" \t\n\r\f", text[at + len]))
            len++;
        if (len > 0) {
            settle(p);
            put(p, text + at, len);
            at += len;
            continue;
        }
        p->space = p->has_text;
        at++;
    }
}

static void text(struct pen *p, const struct html_token *t)
{
    CLEANUP(str_done) struct str decoded = {0};
    if (html_text(t->bytes, t->n, &decoded) < 0)
        p->r = p->r < 0 ? p->r : -ENOMEM;
    else if (p->pre)
        text_pre(p, str_c(&decoded), decoded.len);
    else
        text_flow(p, str_c(&decoded), decoded.len);
}

/* ---- Elements ------------------------------------------------------------------------------- */

static void heading(struct pen *p, const char *name, bool opens)
{
    static const char *const LEADS[] = {"# ", "## ", "### ", "#### ", "##### ", "###### "};
    block(p, 2);
    p->lead = opens && !p->is_plain ? LEADS[name[1] - '1'] : NULL;
}

static void list(struct pen *p, const char *name, bool opens)
{
    block(p, p->n_lists > 0 ? 1 : 2);
    p->lead = NULL;
    if (!opens) {
        p->n_lists -= p->n_lists > 0;
        p->breaks = p->n_lists > 0 ? 1 : 2;
    } else if (p->n_lists < LISTS_MAX) {
        p->lists[p->n_lists++] = (struct list){.is_ordered = name[0] == 'o'};
    }
}

static void item(struct pen *p, bool opens)
{
    block(p, 1);
    if (!opens || p->n_lists == 0) {
        p->lead = opens ? "- " : NULL;
        return;
    }
    struct list *l = &p->lists[p->n_lists - 1];
    (void)snprintf(p->number, sizeof p->number, "%u. ", ++l->n);
    p->lead = l->is_ordered ? p->number : "- ";
}

static void quotation(struct pen *p, bool opens)
{
    block(p, 2);
    if (opens && p->quotes < LISTS_MAX)
        p->quotes++;
    else if (!opens)
        p->quotes -= p->quotes > 0;
}

static void preformatted(struct pen *p, bool opens)
{
    if (!opens && p->pre == 0)
        return;
    block(p, opens ? 2 : 1);
    if (!p->is_plain) {
        settle(p);
        puts_(p, "```");
    }
    p->pre = opens ? PRE_FRESH : PRE_NOT;
    p->breaks = opens ? 1 : 2;
}

/* Behind the first row stands the line that makes a table of it. */
static void row_close(struct pen *p)
{
    marks_close(p);
    if (p->cells > 0 && !p->is_plain) {
        puts_(p, " |");
        if (p->row++ == 0) {
            p->breaks = 1;
            settle(p);
            for (unsigned i = 0; i < p->cells; i++)
                puts_(p, i == 0 ? "| ---" : " | ---");
            puts_(p, " |");
        }
    }
    p->cells = 0;
}

static void row(struct pen *p)
{
    row_close(p);
    block(p, 1);
}

static void table(struct pen *p)
{
    row_close(p);
    block(p, 2);
    p->row = 0;
}

/* A cell stays on its line, whatever is in it. */
static void cell(struct pen *p, bool opens)
{
    marks_close(p);
    if (!opens)
        return;
    if (p->cells > 0)
        p->breaks = 0;
    p->space = false;
    settle(p);
    puts_(p, p->is_plain ? (p->cells ? "\t" : "") : p->cells ? " | " : "| ");
    p->cells++;
}

static void anchor(struct pen *p, const struct html_token *t, bool opens)
{
    CLEANUP(str_done) struct str href = {.max = 16384}, target = {.max = 65536};
    mark_end(p, "a");
    if (opens && html_attr(t, "href", &href) &&
        link_resolve(p->base, str_c(&href), href.len, &target))
        mark_open(p, "a", "[", TAKE(target.data));
}

static void image(struct pen *p, const struct html_token *t)
{
    CLEANUP(str_done) struct str alt = {.max = 2000}, src = {.max = 16384}, target = {.max = 65536};
    if (!html_attr(t, "alt", &alt) || alt.len == 0)
        return;
    if (p->is_plain || !html_attr(t, "src", &src) ||
        !link_resolve(p->base, str_c(&src), src.len, &target)) {
        text_flow(p, str_c(&alt), alt.len);
        return;
    }
    settle(p);
    puts_(p, "![");
    text_flow(p, str_c(&alt), alt.len);
    puts_(p, "](");
    puts_(p, str_c(&target));
    puts_(p, ")");
}

static void rule(struct pen *p)
{
    block(p, 2);
    if (!p->is_plain) {
        settle(p);
        puts_(p, "---");
    }
    p->breaks = 2;
}

enum shape { BLOCK, PARAGRAPH, MARKED, SKIPPED };
static const struct {
    const char *name;
    enum shape shape;
    const char *mark;
} ELEMENTS[] = {
    {"p", PARAGRAPH, NULL},      {"section", PARAGRAPH, NULL}, {"article", PARAGRAPH, NULL},
    {"main", PARAGRAPH, NULL},   {"header", PARAGRAPH, NULL},  {"footer", PARAGRAPH, NULL},
    {"nav", PARAGRAPH, NULL},    {"aside", PARAGRAPH, NULL},   {"figure", PARAGRAPH, NULL},
    {"form", PARAGRAPH, NULL},   {"dl", PARAGRAPH, NULL},      {"body", PARAGRAPH, NULL},
    {"div", BLOCK, NULL},        {"dt", BLOCK, NULL},          {"dd", BLOCK, NULL},
    {"figcaption", BLOCK, NULL}, {"address", BLOCK, NULL},     {"details", BLOCK, NULL},
    {"summary", BLOCK, NULL},    {"fieldset", BLOCK, NULL},    {"option", BLOCK, NULL},
    {"caption", BLOCK, NULL},    {"legend", BLOCK, NULL},      {"strong", MARKED, "**"},
    {"b", MARKED, "**"},         {"em", MARKED, "*"},          {"i", MARKED, "*"},
    {"code", MARKED, "`"},       {"kbd", MARKED, "`"},         {"samp", MARKED, "`"},
    {"del", MARKED, "~~"},       {"s", MARKED, "~~"},          {"svg", SKIPPED, NULL},
    {"math", SKIPPED, NULL},     {"noscript", SKIPPED, NULL},  {"object", SKIPPED, NULL},
    {"canvas", SKIPPED, NULL},   {"select", SKIPPED, NULL},    {"button", SKIPPED, NULL},
};

static void element_plain(struct pen *p, const struct html_token *t, bool opens)
{
    for (size_t i = 0; i < ARRAY_LEN(ELEMENTS); i++) {
        if (strcmp(ELEMENTS[i].name, t->name) != 0)
            continue;
        switch (ELEMENTS[i].shape) {
        case PARAGRAPH:
        case BLOCK:
            if (p->cells == 0) /* not inside a row of a table */
                block(p, ELEMENTS[i].shape == PARAGRAPH ? 2 : 1);
            else
                p->space = true;
            break;
        case MARKED:
            opens ? mark_open(p, t->name, ELEMENTS[i].mark, NULL) : mark_end(p, t->name);
            break;
        case SKIPPED:
            break;
        }
        return;
    }
}

static void element(struct pen *p, const struct html_token *t, bool opens)
{
    const char *name = t->name;
    if (name[0] == 'h' && name[1] >= '1' && name[1] <= '6' && !name[2])
        heading(p, name, opens);
    else if (strcmp(name, "ul") == 0 || strcmp(name, "ol") == 0)
        list(p, name, opens);
    else if (strcmp(name, "li") == 0)
        item(p, opens);
    else if (strcmp(name, "blockquote") == 0)
        quotation(p, opens);
    else if (strcmp(name, "pre") == 0)
        preformatted(p, opens);
    else if (strcmp(name, "tr") == 0)
        row(p);
    else if (strcmp(name, "table") == 0)
        table(p);
    else if (strcmp(name, "td") == 0 || strcmp(name, "th") == 0)
        cell(p, opens);
    else if (strcmp(name, "a") == 0)
        anchor(p, t, opens);
    else if (strcmp(name, "img") == 0)
        image(p, t);
    else if (strcmp(name, "hr") == 0)
        rule(p);
    else if (strcmp(name, "br") == 0 && p->cells == 0)
        block(p, 1);
    else
        element_plain(p, t, opens);
}

static bool is_skipped(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(ELEMENTS); i++)
        if (ELEMENTS[i].shape == SKIPPED && strcmp(ELEMENTS[i].name, name) == 0)
            return true;
    return false;
}

/* The page's title stands first, where no heading will say it. */
static void title(struct pen *p, const char *html, size_t n)
{
    struct html h;
    struct html_token t;
    const char *found = NULL;
    size_t n_found = 0;
    html_open(&h, html, n);
    while (html_next(&h, &t) != HTML_END_OF_INPUT) {
        if (t.kind == HTML_START && strcmp(t.name, "h1") == 0)
            return;
        if (t.kind == HTML_TEXT && !found && strcmp(h.raw, "title") == 0) {
            found = t.bytes;
            n_found = t.n;
        }
    }
    if (!found)
        return;
    heading(p, "h1", true);
    text(p, &(struct html_token){.kind = HTML_TEXT, .bytes = found, .n = n_found});
    heading(p, "h1", false);
}

/* Of what is left out only its own end counts. */
static bool skip_step(struct pen *p, const struct html_token *t, char skipping[static 16])
{
    if (!skipping[0] && t->kind == HTML_START && is_skipped(t->name)) {
        memcpy(skipping, t->name, 16);
        p->skipped = 1;
        return true;
    }
    if (!skipping[0])
        return false;
    if (strcmp(t->name, skipping) == 0)
        p->skipped += t->kind == HTML_START ? 1U : -1U;
    if (p->skipped == 0)
        skipping[0] = '\0';
    return true;
}

int markdown_make(const char *html, size_t n, const struct url *base, bool is_plain,
                  struct str *out)
{
    struct pen p = {.out = out, .base = base, .is_plain = is_plain};
    struct html h;
    struct html_token t;
    char skipping[16] = "";
    title(&p, html, n);
    html_open(&h, html, n);
    while (html_next(&h, &t) != HTML_END_OF_INPUT && p.r >= 0) {
        if (skip_step(&p, &t, skipping))
            continue;
        if (t.kind != HTML_TEXT)
            element(&p, &t, t.kind == HTML_START);
        else if (!h.raw[0] || strcmp(h.raw, "textarea") == 0)
            text(&p, &t);
    }
    marks_close(&p);
    if (p.pre)
        preformatted(&p, false);
    if (p.has_text)
        puts_(&p, "\n");
    return p.r;
}
