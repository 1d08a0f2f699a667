/* Runs in: runner. Reads: hostile. May block: no. */
#include "runner/pattern.h"
#include "base/mem.h"
#include <errno.h>
#include <string.h>

/* Length of the character at S, at least 1, not past END; bytes that are no UTF-8 stand alone. */
static size_t char_length(const char *s, const char *end)
{
    unsigned char c = (unsigned char)*s;
    size_t n = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 1;
    if (n > (size_t)(end - s) || !utf8_is_valid(s, n))
        return 1;
    return n;
}

static bool char_in_range(const char *first, size_t n_first, const char *last, size_t n_last,
                          const char *c, size_t n)
{
    /* UTF-8 sorts as its code points do, once the shorter sequence counts as smaller. */
    bool is_low = n < n_first || (n == n_first && memcmp(c, first, n) < 0);
    bool is_high = n > n_last || (n == n_last && memcmp(c, last, n) > 0);
    return !is_low && !is_high;
}

/* One character of a set, an escaped one without its backslash. */
static const char *set_char(const char **p, const char *end, size_t *ret_n)
{
    if (**p == '\\' && *p + 1 < end)
        (*p)++;
    const char *at = *p;
    *ret_n = char_length(at, end);
    *p += *ret_n;
    return at;
}

/* P stands behind '['. Returns what follows the set, NULL when it does not close. */
static const char *set_match(const char *p, const char *end, const char *c, size_t n, bool *ret)
{
    bool is_negated = p < end && (*p == '!' || *p == '^'), is_in = false;
    p += is_negated;
    for (bool is_first = true; p < end && (*p != ']' || is_first); is_first = false) {
        size_t n_first, n_last;
        const char *first = set_char(&p, end, &n_first), *last = first;
        n_last = n_first;
        if (p + 1 < end && p[0] == '-' && p[1] != ']') {
            p++;
            last = set_char(&p, end, &n_last);
        }
        is_in |= char_in_range(first, n_first, last, n_last, c, n);
    }
    *ret = is_in != is_negated;
    return p < end ? p + 1 : NULL;
}

/* One element of the pattern against the character at S; *P moves on when it fits. '*' is not for
 * here. */
static bool element_match(const char **p, const char *p_end, const char *s, size_t n)
{
    const char *at = *p;
    bool fits;
    if (*at == '?') {
        *p = at + 1;
        return true;
    }
    if (*at == '[') {
        const char *behind = set_match(at + 1, p_end, s, n, &fits);
        if (behind) {
            *p = fits ? behind : at;
            return fits;
        }
    } else if (*at == '\\' && at + 1 < p_end) {
        at++;
    }
    size_t len = char_length(at, p_end);
    if (len != n || memcmp(at, s, n) != 0)
        return false;
    *p = at + len;
    return true;
}

/* One component. After a '*' only the last one is ever gone back to. */
static bool component_match(const char *p, const char *p_end, const char *s, const char *s_end)
{
    const char *star = NULL, *retry = NULL;
    while (s < s_end) {
        size_t n = char_length(s, s_end);
        if (p < p_end && *p == '*') {
            star = ++p;
            retry = s;
        } else if (p < p_end && element_match(&p, p_end, s, n)) {
            s += n;
        } else if (star) {
            retry += char_length(retry, s_end);
            s = retry;
            p = star;
        } else {
            return false;
        }
    }
    while (p < p_end && *p == '*')
        p++;
    return p == p_end;
}

static const char *component_end(const char *s)
{
    return s + strcspn(s, "/");
}

static const char *component_next(const char *end)
{
    return *end == '/' ? end + 1 : end;
}

static bool is_any_depth(const char *p, const char *end)
{
    return end - p == 2 && p[0] == '*' && p[1] == '*';
}

/* Components as component_match treats characters: "**" is the star. With IS_PREFIX it is enough
 * that PATH ends before the pattern does. */
static bool components_match(const char *p, const char *s, bool is_prefix)
{
    const char *star = NULL, *retry = NULL;
    while (*s) {
        const char *p_end = component_end(p), *s_end = component_end(s);
        if (*p && is_any_depth(p, p_end)) {
            star = p = component_next(p_end);
            retry = s;
            if (!*p)
                return true;
        } else if (*p && component_match(p, p_end, s, s_end)) {
            p = component_next(p_end);
            s = component_next(s_end);
        } else if (star) {
            if (is_prefix) /* anything may follow below */
                return true;
            retry = component_next(component_end(retry));
            s = retry;
            p = star;
        } else {
            return false;
        }
    }
    if (is_prefix)
        return *p != '\0' || star;
    while (*p && is_any_depth(p, component_end(p)))
        p = component_next(component_end(p));
    return *p == '\0';
}

bool pattern_match(const char *pattern, const char *path)
{
    return components_match(pattern, path, false);
}

bool pattern_may_lead(const char *pattern, const char *dir)
{
    return components_match(pattern, dir, true);
}

/* ---- Braces -----------------------------------------------------------------------------------
 */
/* The brace that closes the one at OPEN, and how many commas stand between at its own level. */
static const char *brace_end(const char *open, unsigned *ret_commas)
{
    unsigned depth = 0;
    *ret_commas = 0;
    for (const char *p = open; *p; p++) {
        if (*p == '\\' && p[1])
            p++;
        else if (*p == '{')
            depth++;
        else if (*p == ',' && depth == 1)
            ++*ret_commas;
        else if (*p == '}' && --depth == 0)
            return p;
    }
    return NULL;
}

static const char *find_brace(const char *p, const char **ret_end)
{
    for (; *p; p++) {
        unsigned commas;
        if (*p == '\\' && p[1])
            p++;
        else if (*p == '{' && (*ret_end = brace_end(p, &commas)) && commas > 0)
            return p;
    }
    return NULL;
}

static const char *alternative_end(const char *p)
{
    for (unsigned depth = 0; *p; p++) {
        if (*p == '\\' && p[1])
            p++;
        else if (*p == '{')
            depth++;
        else if (depth == 0 && (*p == ',' || *p == '}'))
            break;
        else if (*p == '}')
            depth--;
    }
    return p;
}

/* BUDGET bounds the work, not only the results: nested braces make many half-made texts. */
static int expand(const char *pattern, struct strv *ret, unsigned *budget)
{
    if ((*budget)-- == 0)
        return -E2BIG;
    const char *close = NULL, *open = find_brace(pattern, &close);
    if (!open)
        return ret->n < PATTERN_ALTERNATIVES_MAX ? strv_add(ret, pattern) : -E2BIG;
    int r = 0;
    for (const char *p = open + 1; r == 0 && p <= close;) {
        const char *end = alternative_end(p);
        CLEANUP(str_done) struct str one = {0};
        r = str_add(&one, pattern, (size_t)(open - pattern));
        if (r == 0)
            r = str_add(&one, p, (size_t)(end - p));
        if (r == 0)
            r = str_puts(&one, close + 1);
        if (r == 0)
            r = expand(str_c(&one), ret, budget);
        p = end + 1;
    }
    return r;
}

int pattern_expand(const char *pattern, struct strv *ret)
{
    unsigned budget = 4 * PATTERN_ALTERNATIVES_MAX;
    return expand(pattern, ret, &budget);
}
