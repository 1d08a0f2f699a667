/* The target of a link on a page, made absolute. Pure. */
#pragma once
#include "base/str.h"
#include "wire/url.h"

/* REF as it stands in the page, N bytes. Appended to OUT; false, and nothing appended, when it
 * leads nowhere that may be shown: another scheme, a place on the same page, an empty one. */
bool link_resolve(const struct url *base, const char *ref, size_t n, struct str *out);
