/* One byte range (RFC 9110, 14.1.2): bytes=A-B, bytes=A-, bytes=-N. Pure. */
#pragma once
#include <stdint.h>

/* 1 with both ends, inclusive; 0 when there is none, or one to be passed over; -ERANGE beyond
 * SIZE. */
int range_parse(const char *text, uint64_t size, uint64_t *ret_from, uint64_t *ret_to);
