/* Runs in: daemon. Reads: hostile. May block: no. */
#include "api/range.h"
#include "base/str.h"
#include <errno.h>
#include <string.h>

static int number(const char *text, size_t n, uint64_t *ret)
{
    char buf[24];
    if (n == 0 || n >= sizeof buf)
        return -EINVAL;
    memcpy(buf, text, n);
    buf[n] = '\0';
    return parse_u64(buf, 0, INT64_MAX, ret);
}

static int suffix(const char *text, uint64_t size, uint64_t *ret_from, uint64_t *ret_n)
{
    uint64_t n;
    if (number(text, strlen(text), &n) < 0)
        return 0;
    if (n == 0 || size == 0)
        return -ERANGE;
    *ret_n = n < size ? n : size;
    *ret_from = size - *ret_n;
    return 1;
}

int range_parse(const char *field, uint64_t size, uint64_t *ret_from, uint64_t *ret_n)
{
    uint64_t from, last = UINT64_MAX;
    if (!field || !str_starts(field, "bytes=") || strchr(field, ','))
        return 0;
    field += strlen("bytes=");
    const char *dash = strchr(field, '-');
    if (!dash)
        return 0;
    if (dash == field)
        return suffix(dash + 1, size, ret_from, ret_n);
    if (number(field, (size_t)(dash - field), &from) < 0 ||
        (dash[1] && (number(dash + 1, strlen(dash + 1), &last) < 0 || last < from)))
        return 0;
    if (from >= size)
        return -ERANGE;
    *ret_from = from;
    *ret_n = last < size ? last - from + 1 : size - from;
    return 1;
}
