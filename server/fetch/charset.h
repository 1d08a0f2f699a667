/* Bytes of a page -> UTF-8 without control characters. Pure.
 *
 * The encoding is the byte order mark's, else that of Content-Type, else that of a <meta> in the
 * first kilobyte, else UTF-8 where the bytes are that, else windows-1252 (Encoding Standard, 4.2:
 * what is labelled iso-8859-1 or us-ascii is windows-1252). UTF-16 in both orders is known too;
 * anything else is read as UTF-8, and what is none becomes U+FFFD. */
#pragma once
#include "base/str.h"

/* Appended to OUT; -E2BIG when it did not fit whole (what fits is there), -ENOMEM. */
int charset_decode(const char *type, const char *bytes, size_t n, bool is_html, struct str *out);
/* One code point, U+FFFD for what is none. */
int charset_put(struct str *out, uint32_t c);
