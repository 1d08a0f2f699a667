/* HTML -> Markdown, or plain text in the same layout. Pure.
 *
 * Headings, paragraphs, lists, quotations, code, tables, emphasis, links (made absolute; other
 * schemes than http, https and mailto lose their target) and the texts of images. Scripts, styles
 * and other content that nobody reads are left out. Unbalanced tags end with the block they are in.
 */
#pragma once
#include "base/str.h"
#include "wire/url.h"

/* BASE is the page's URL. Appended to OUT; -E2BIG when it did not fit whole (what fits is there),
 * -ENOMEM. */
int markdown_make(const char *html, size_t n, const struct url *base, bool is_plain,
                  struct str *out);
