/* Connections that were meant for elsewhere, and that the redirect inside the session's namespace
 * sent to the door (ip(7), SO_ORIGINAL_DST of netfilter). */
#pragma once
#include <sys/socket.h>

enum redirected {
    REDIRECTED_UNKNOWN = 0, /* the kernel does not tell: served by nobody */
    REDIRECTED_NO,          /* it was made to the door itself: a client of the proxy */
    REDIRECTED_YES
};
/* With REDIRECTED_YES, *ret_wanted is the address and port it was made to. */
enum redirected redirected_from(int fd, struct sockaddr_storage *ret_wanted);
