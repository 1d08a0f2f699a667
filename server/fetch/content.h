/* An answer's body -> what the caller asked for: as it is, as text, or HTML as Markdown. Pure.
 * Everything comes out as UTF-8 without control characters, or is said to be no text. */
#pragma once
#include "base/str.h"
#include "wire/fetch.h"
#include "wire/url.h"

struct content {
    enum fetch_form form;  /* FETCH_RAW, FETCH_TEXT, FETCH_MARKDOWN */
    const char *type;      /* Content-Type as it came, "" for none */
    const struct url *url; /* what relative links start from */
    const char *bytes;     /* N bytes, or NULL */
    size_t n;
    bool is_cut; /* the end is missing */
};
/* OUT->max bounds it: *ret_cut when something did not fit. *ret_text: OUT is UTF-8 without NUL;
 * else OUT is the bytes as they came. -ENOMEM. */
int content_make(const struct content *in, struct str *out, bool *ret_text, bool *ret_cut);
/* Is this type text that can be read? HTML is. */
bool content_type_is(const char *type, const char *wanted); /* "text/html", parameters ignored */
