/* Wildcard patterns for paths, as bytes with '/' between components. Pure.
 *
 *   *  any bytes but '/'     ?  one character (UTF-8) but '/'     [a-z] [!a] [^a]  one of a set
 *   **  as a whole component: any number of components, none too     \x  x itself
 * A leading dot is no special case. Takes time proportional to the product of the two lengths at
 * worst, whatever the pattern (no exponential backtracking). */
#pragma once
#include "base/str.h"
#include <stdbool.h>

/* Does all of PATH match? PATH and DIR are relative and have no empty component. */
bool pattern_match(const char *pattern, const char *path);
/* Could something below the folder DIR ("" for the start) match? */
bool pattern_may_lead(const char *pattern, const char *dir);

#define PATTERN_ALTERNATIVES_MAX 64
/* "a{b,c}d" -> "abd", "acd"; nested braces too. -E2BIG beyond PATTERN_ALTERNATIVES_MAX. Braces that
 * do not close stand for themselves. */
int pattern_expand(const char *pattern, struct strv *ret);
