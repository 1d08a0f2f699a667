/* Is the first head on a connection one that the library can be trusted with? What it would answer
 * with pages of its own, or read leniently, is refused here, before it sees a byte (RFC 9112):
 * bare CR or LF, folded lines, a space before the colon, control bytes, a length that is none, a
 * coding other than chunked, more than API_HEAD_MAX bytes or API_FIELDS_MAX fields. Pure.
 *
 * What stays the library's: a later head on the same connection, one in more than a few
 * pieces, and faults of a chunked body. Its
 * answers to those are short HTML pages with the same status, and it closes the connection. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum head_state { HEAD_REFUSED = -1, HEAD_PARTIAL = 0, HEAD_WHOLE = 1 };
/* The bytes that came so far. With HEAD_REFUSED, *ret_code is a code of api/problem.c, and
 * *ret_why says what is wrong; constants. */
enum head_state head_judge(const char *bytes, size_t n, const char **ret_code,
                           const char **ret_why);
