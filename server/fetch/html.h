/* HTML, token by token: start tags, end tags, text. Pure; takes any bytes of UTF-8, never fails.
 * Not a tree: what a reader makes of unbalanced tags is the reader's. Comments, declarations and
 * what is inside script, style and the like are passed over; text is not decoded (html_text). */
#pragma once
#include "base/str.h"

enum html_kind { HTML_END_OF_INPUT = 0, HTML_TEXT, HTML_START, HTML_CLOSE };
struct html_token {
    enum html_kind kind;
    char name[16];     /* of a tag, lower case, cut */
    const char *bytes; /* the text; of a start tag what stands behind its name */
    size_t n;
};
struct html {
    const char *at, *end;
    char raw[16]; /* inside such an element only its end tag is one */
};
void html_open(struct html *h, const char *bytes, size_t n);
enum html_kind html_next(struct html *h, struct html_token *ret);
/* The value of an attribute of a start tag, decoded; false when it has none. */
bool html_attr(const struct html_token *t, const char *name, struct str *ret);
/* Does attribute class hold WORD? */
bool html_has_class(const struct html_token *t, const char *word);
/* Character references decoded (HTML, 13.2.5.72: those of Latin-1 and the common ones). */
int html_text(const char *bytes, size_t n, struct str *out);
/* The text of a piece of HTML on one line: tags gone, spaces folded. */
int html_flat(const char *bytes, size_t n, struct str *out);
