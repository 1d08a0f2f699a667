/* One byte range of a Range field (RFC 9110, 14.1.2): "bytes=A-B", "bytes=A-", "bytes=-N". Several
 * ranges, other units and what cannot be read are passed over, as the RFC wants: the whole is sent.
 */
#pragma once
#include <stdint.h>

/* 1 = *ret_from and *ret_n within SIZE; 0 = no range to honour; -ERANGE = beyond SIZE (416). */
int range_parse(const char *field, uint64_t size, uint64_t *ret_from, uint64_t *ret_n);
