/* JSON in one form only, so that its hash can be computed again by anybody: members sorted by the
 * bytes of their names, no blanks, strings escaped as RFC 8785 (section 3.2.2.2) has it, that is
 * \" \\ \b \f \n \r \t, other controls as \u00xx in lower case, everything else as it is. Python's
 * json.dumps(x, sort_keys=True, separators=(",", ":"), ensure_ascii=False) writes the same. */
#pragma once
#include "base/str.h"
#include <jansson.h>

int canonical_add(struct str *out, const json_t *value);     /* -ENOMEM, -E2BIG */
int canonical_add_string(struct str *out, const char *text); /* with its quotes; TEXT is UTF-8 */
