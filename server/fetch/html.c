/* Runs in: fetch. Reads: hostile (pages). May block: no. */
#include "fetch/html.h"
#include "base/mem.h"
#include "fetch/charset.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* ---- Tokens --------------------------------------------------------------------------------- */

/* Elements whose content is no markup. */
static const char *const RAW[] = {"script",  "style",    "textarea", "title",   "iframe",
                                  "noembed", "noframes", "xmp",      "template"};

void html_open(struct html *h, const char *bytes, size_t n)
{
    *h = (struct html){.at = bytes, .end = bytes + n};
}

static size_t name_take(const char *at, const char *end, char ret[static 16])
{
    size_t n = 0;
    while (at + n < end && !is_space(at[n]) && at[n] != '>' && at[n] != '/') {
        if (n < 15)
            ret[n] = at[n] >= 'A' && at[n] <= 'Z' ? (char)(at[n] + 32) : at[n];
        n++;
    }
    ret[n < 15 ? n : 15] = '\0';
    return n;
}

/* Where the tag that AT is in ends: behind its '>', which does not count inside quotes that follow
 * a '='. */
static const char *tag_end(const char *at, const char *end)
{
    char quote = '\0', before = '\0';
    for (; at < end; at++) {
        if (quote) {
            quote = *at == quote ? '\0' : quote;
        } else if ((*at == '"' || *at == '\'') && before == '=') {
            quote = *at;
        } else if (*at == '>') {
            return at + 1;
        }
        if (!is_space(*at))
            before = *at;
    }
    return end;
}

/* A comment or declaration at AT ("<!" or "<?"): where it ends. */
static const char *passed_over(const char *at, const char *end)
{
    if (end - at >= 4 && memcmp(at, "<!--", 4) == 0) {
        const char *close = memmem(at + 4, (size_t)(end - at) - 4, "-->", 3);
        return close ? close + 3 : end;
    }
    const char *close = memchr(at, '>', (size_t)(end - at));
    return close ? close + 1 : end;
}

static bool raw_ends(const struct html *h, const char *at)
{
    size_t n = strlen(h->raw);
    return (size_t)(h->end - at) > n + 2 && at[1] == '/' && strncasecmp(at + 2, h->raw, n) == 0 &&
           (is_space(at[n + 2]) || at[n + 2] == '>' || at[n + 2] == '/');
}

/* Is what stands at AT ('<') a tag, a comment or a declaration? Else it is text. */
static bool is_markup(const struct html *h, const char *at)
{
    if (h->end - at < 2)
        return false;
    if (h->raw[0])
        return raw_ends(h, at);
    return is_letter(at[1]) || at[1] == '!' || at[1] == '?' ||
           (at[1] == '/' && h->end - at > 2 && is_letter(at[2]));
}

static enum html_kind tag_take(struct html *h, struct html_token *ret)
{
    bool closes = h->at[1] == '/';
    const char *from = h->at + (closes ? 2 : 1);
    const char *behind = from + name_take(from, h->end, ret->name);
    h->at = tag_end(behind, h->end);
    ret->kind = closes ? HTML_CLOSE : HTML_START;
    ret->bytes = behind;
    ret->n = (size_t)(h->at - behind);
    if (closes)
        h->raw[0] = '\0';
    for (size_t i = 0; !closes && i < ARRAY_LEN(RAW); i++)
        if (strcmp(ret->name, RAW[i]) == 0)
            memcpy(h->raw, ret->name, sizeof h->raw);
    return ret->kind;
}

enum html_kind html_next(struct html *h, struct html_token *ret)
{
    *ret = (struct html_token){.kind = HTML_END_OF_INPUT};
    while (h->at < h->end && *h->at == '<' && is_markup(h, h->at)) {
        if (h->at[1] != '!' && h->at[1] != '?')
            return tag_take(h, ret);
        h->at = passed_over(h->at, h->end);
    }
    if (h->at == h->end)
        return HTML_END_OF_INPUT;
    ret->kind = HTML_TEXT;
    ret->bytes = h->at;
    for (h->at++; h->at < h->end; h->at++) {
        h->at = memchr(h->at, '<', (size_t)(h->end - h->at));
        if (!h->at)
            h->at = h->end;
        if (h->at == h->end || is_markup(h, h->at))
            break;
    }
    ret->n = (size_t)(h->at - ret->bytes);
    return HTML_TEXT;
}

/* ---- Attributes ----------------------------------------------------------------------------- */

struct attr {
    const char *name, *value;
    size_t n_name, n_value;
};

/* The next attribute at *AT. */
static bool attr_next(const char **at, const char *end, struct attr *ret)
{
    const char *p = *at;
    *ret = (struct attr){0};
    while (p < end && (is_space(*p) || *p == '/'))
        p++;
    if (p == end || *p == '>')
        return false;
    for (ret->name = p++; p < end && !is_space(*p) && *p != '=' && *p != '>' && *p != '/'; p++)
        ;
    ret->n_name = (size_t)(p - ret->name);
    while (p < end && is_space(*p))
        p++;
    if (p < end && *p == '=') {
        for (p++; p < end && is_space(*p); p++)
            ;
        char quote = p < end && (*p == '"' || *p == '\'') ? *p++ : '\0';
        for (ret->value = p; p < end && (quote ? *p != quote : !is_space(*p) && *p != '>'); p++)
            ;
        ret->n_value = (size_t)(p - ret->value);
        p += quote && p < end;
    }
    *at = p;
    return true;
}

bool html_attr(const struct html_token *t, const char *name, struct str *ret)
{
    const char *at = t->bytes, *end = t->bytes + t->n;
    struct attr a;
    size_t n = strlen(name);
    while (attr_next(&at, end, &a))
        if (a.n_name == n && strncasecmp(a.name, name, n) == 0)
            return html_text(a.value ? a.value : "", a.n_value, ret) >= 0;
    return false;
}

bool html_has_class(const struct html_token *t, const char *word)
{
    CLEANUP(str_done) struct str value = {.max = 4096};
    size_t n = strlen(word);
    if (!html_attr(t, "class", &value))
        return false;
    for (const char *at = str_c(&value); *at;) {
        size_t len = strcspn(at, " \t\r\n\f");
        if (len == n && memcmp(at, word, n) == 0)
            return true;
        at += len;
        at += strspn(at, " \t\r\n\f");
    }
    return false;
}

/* ---- Character references ------------------------------------------------------------------- */

/* 160 to 255, in order. */
static const char *const LATIN[] = {
    "nbsp",   "iexcl",  "cent",   "pound",  "curren", "yen",    "brvbar", "sect",   "uml",
    "copy",   "ordf",   "laquo",  "not",    "shy",    "reg",    "macr",   "deg",    "plusmn",
    "sup2",   "sup3",   "acute",  "micro",  "para",   "middot", "cedil",  "sup1",   "ordm",
    "raquo",  "frac14", "frac12", "frac34", "iquest", "Agrave", "Aacute", "Acirc",  "Atilde",
    "Auml",   "Aring",  "AElig",  "Ccedil", "Egrave", "Eacute", "Ecirc",  "Euml",   "Igrave",
    "Iacute", "Icirc",  "Iuml",   "ETH",    "Ntilde", "Ograve", "Oacute", "Ocirc",  "Otilde",
    "Ouml",   "times",  "Oslash", "Ugrave", "Uacute", "Ucirc",  "Uuml",   "Yacute", "THORN",
    "szlig",  "agrave", "aacute", "acirc",  "atilde", "auml",   "aring",  "aelig",  "ccedil",
    "egrave", "eacute", "ecirc",  "euml",   "igrave", "iacute", "icirc",  "iuml",   "eth",
    "ntilde", "ograve", "oacute", "ocirc",  "otilde", "ouml",   "divide", "oslash", "ugrave",
    "uacute", "ucirc",  "uuml",   "yacute", "thorn",  "yuml"};
static const struct {
    const char *name;
    uint32_t c;
} NAMED[] = {{"amp", '&'},       {"lt", '<'},        {"gt", '>'},        {"quot", '"'},
             {"apos", '\''},     {"ndash", 0x2013},  {"mdash", 0x2014},  {"lsquo", 0x2018},
             {"rsquo", 0x2019},  {"sbquo", 0x201a},  {"ldquo", 0x201c},  {"rdquo", 0x201d},
             {"bdquo", 0x201e},  {"dagger", 0x2020}, {"bull", 0x2022},   {"hellip", 0x2026},
             {"permil", 0x2030}, {"prime", 0x2032},  {"lsaquo", 0x2039}, {"rsaquo", 0x203a},
             {"euro", 0x20ac},   {"trade", 0x2122},  {"larr", 0x2190},   {"uarr", 0x2191},
             {"rarr", 0x2192},   {"darr", 0x2193},   {"harr", 0x2194},   {"rArr", 0x21d2},
             {"minus", 0x2212},  {"infin", 0x221e},  {"asymp", 0x2248},  {"ne", 0x2260},
             {"le", 0x2264},     {"ge", 0x2265},     {"OElig", 0x152},   {"oelig", 0x153},
             {"Scaron", 0x160},  {"scaron", 0x161},  {"ensp", 0x2002},   {"emsp", 0x2003},
             {"thinsp", 0x2009}, {"zwnj", 0x200c},   {"zwj", 0x200d},    {"check", 0x2713},
             {"alpha", 0x3b1},   {"beta", 0x3b2},    {"gamma", 0x3b3},   {"delta", 0x3b4},
             {"lambda", 0x3bb},  {"mu", 0x3bc},      {"pi", 0x3c0},      {"sigma", 0x3c3},
             {"omega", 0x3c9},   {"lbrace", '{'},    {"rbrace", '}'},    {"lbrack", '['},
             {"rbrack", ']'},    {"num", '#'},       {"colon", ':'},     {"comma", ','},
             {"period", '.'},    {"sol", '/'},       {"lowbar", '_'},    {"NewLine", '\n'},
             {"Tab", '\t'},      {"excl", '!'},      {"quest", '?'},     {"equals", '='}};

static bool name_is(const char *at, size_t n, const char *name)
{
    return strlen(name) == n && memcmp(at, name, n) == 0;
}

static uint32_t named_find(const char *at, size_t n)
{
    for (size_t i = 0; i < ARRAY_LEN(NAMED); i++)
        if (name_is(at, n, NAMED[i].name))
            return NAMED[i].c;
    for (size_t i = 0; i < ARRAY_LEN(LATIN); i++)
        if (name_is(at, n, LATIN[i]))
            return (uint32_t)(160 + i);
    return 0;
}

/* Digits behind "&#" or "&#x"; the bytes they took. */
static size_t number_take(const char *at, size_t n, unsigned base, uint32_t *ret)
{
    size_t i = 0;
    uint32_t c = 0;
    for (; i < n; i++) {
        char d = at[i];
        unsigned v = d >= '0' && d <= '9' ? (unsigned)(d - '0')
                     : base == 16 && (d | 32) >= 'a' && (d | 32) <= 'f'
                         ? (unsigned)((d | 32) - 'a' + 10)
                         : base;
        if (v >= base)
            break;
        c = c > 0x110000 ? c : c * base + v;
    }
    *ret = c == 0 ? 0xfffd : c;
    return i;
}

/* A reference at AT ('&'): its code point and the bytes it took, or 0. */
static size_t reference_take(const char *at, size_t n, uint32_t *ret)
{
    size_t len = 1, from = 1;
    if (n > 2 && at[1] == '#') {
        bool hex = at[2] == 'x' || at[2] == 'X';
        from = hex ? 3 : 2;
        len = number_take(at + from, n - from, hex ? 16 : 10, ret);
        if (len == 0)
            return 0;
        len += from;
        return len < n && at[len] == ';' ? len + 1 : len;
    }
    while (len < n && len < 10 && (is_letter(at[len]) || (at[len] >= '0' && at[len] <= '9')))
        len++;
    if (len == n || at[len] != ';' || !(*ret = named_find(at + 1, len - 1)))
        return 0;
    return len + 1;
}

int html_text(const char *bytes, size_t n, struct str *out)
{
    int r = 0;
    for (size_t at = 0; at < n && r >= 0;) {
        const char *amp = memchr(bytes + at, '&', n - at);
        size_t plain = amp ? (size_t)(amp - bytes) - at : n - at;
        uint32_t c;
        r = str_add(out, bytes + at, plain);
        at += plain;
        if (at == n || r < 0)
            break;
        size_t len = reference_take(bytes + at, n - at, &c);
        r = len > 0 ? charset_put(out, c) : str_putc(out, '&');
        at += len > 0 ? len : 1;
    }
    return r;
}

int html_flat(const char *bytes, size_t n, struct str *out)
{
    CLEANUP(str_done) struct str text = {.max = out->max};
    struct html h;
    struct html_token t;
    bool space = false;
    int r = 0;
    html_open(&h, bytes, n);
    while (html_next(&h, &t) != HTML_END_OF_INPUT && r >= 0)
        if (t.kind == HTML_TEXT && !h.raw[0])
            r = html_text(t.bytes, t.n, &text);
        else if (strcmp(t.name, "br") == 0)
            r = str_putc(&text, ' ');
    for (size_t i = 0; i < text.len && r >= 0; i++) {
        if (is_space(text.data[i])) {
            space = out->len > 0;
            continue;
        }
        if (space)
            r = str_putc(out, ' ');
        space = false;
        if (r >= 0)
            r = str_putc(out, text.data[i]);
    }
    return r;
}
