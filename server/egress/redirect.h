/* Connections that were meant for elsewhere, and that the redirect inside the session's namespace
 * sent to the door (ip(7), SO_ORIGINAL_DST of netfilter). */
#pragma once
#include <stdbool.h>

/* True for one that was redirected, and for one the kernel tells nothing of. */
bool is_redirected(int fd);
