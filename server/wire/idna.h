/* Names as people type them -> A-labels (RFC 5890, IDNA2008 by libidn2, UTS 46 non-transitional).
 */
#pragma once
#include "wire/host.h"

/* TEXT is UTF-8, a host without port. HOST_BAD when it cannot be one. */
enum host_kind host_from_typed(const char *text, char ret[static HOST_MAX]);
/* For showing: U-labels, but the A-label form where scripts are mixed. */
void host_to_unicode(const char *host, char *ret, size_t size);
