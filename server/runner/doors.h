/* The session's doors: listening sockets made inside its network namespace and handed out, so that
 * cordon-egress accepts on them from outside without a relay. */
#pragma once
#include "base/err.h"
#include <stddef.h>
#include <stdint.h>

/* TCP on 127.0.0.1, TCP on ::1 where the kernel has IPv6, and with a redirect the name server's UDP
 * on 127.0.0.1, in this order. */
#define DOORS_MAX     3
#define DOOR_DNS_PORT 53

/* Makes them in the calling process's namespace; negative errno with ERR. The caller closes. */
int doors_make(uint16_t port, int ret_fds[static DOORS_MAX], size_t *ret_n, struct err *err);
/* The name server's door, which goes last; the caller closes. */
int doors_make_dns(void);
/* M_DOORS with the N sockets on CONTROL. */
int doors_send(int control, const int *fds, size_t n);
