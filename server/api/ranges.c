/* Runs in: daemon. Reads: hostile. May block: no. */
#include "api/ranges.h"
#include "base/str.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

int range_parse(const char *text, uint64_t size, uint64_t *ret_from, uint64_t *ret_to)
{
    char copy[64], *dash;
    uint64_t from = 0, to = size ? size - 1 : 0;

    if (!text || strncasecmp(text, "bytes=", 6) != 0 || strchr(text, ',') ||
        strlen(text + 6) >= sizeof copy)
        return 0;
    (void)snprintf(copy, sizeof copy, "%s", text + 6);
    dash = strchr(copy, '-');
    if (!dash)
        return 0;
    *dash++ = '\0';
    if (copy[0] == '\0') {
        if (parse_u64(dash, 0, INT64_MAX, &from) < 0)
            return 0;
        if (from == 0)
            return -ERANGE;
        from = from < size ? size - from : 0;
    } else if (parse_u64(copy, 0, INT64_MAX, &from) < 0 ||
               (*dash && (parse_u64(dash, 0, INT64_MAX, &to) < 0 || to < from))) {
        return 0;
    }
    if (from >= size)
        return -ERANGE;
    *ret_from = from;
    *ret_to = to < size ? to : size - 1;
    return 1;
}
