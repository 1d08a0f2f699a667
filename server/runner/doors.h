/* The session's doors: listening sockets made inside its network namespace and handed out, so that
 * cordon-egress accepts on them from outside without a relay. */
#pragma once
#include "base/err.h"
#include <stddef.h>
#include <stdint.h>

#define DOORS_MAX 2 /* TCP on 127.0.0.1, then TCP on ::1 where the kernel has IPv6 */

/* Makes them in the calling process's namespace; negative errno with ERR. The caller closes. */
int doors_make(uint16_t port, int ret_fds[static DOORS_MAX], size_t *ret_n, struct err *err);
/* M_DOORS with the N sockets on CONTROL. */
int doors_send(int control, const int *fds, size_t n);
