/* Is an address this host's own? Asked of the kernel's routing tables for the very address that is
 * about to be dialled, so the answer is never stale and covers local routes as well as addresses
 * (rtnetlink(7), RTM_GETROUTE). The socket is made before the lock-down. */
#pragma once
#include <sys/socket.h>

int route_open(void); /* a descriptor, or a negative errno */
/* 1: the host's own (or broadcast, or anything that is not plainly elsewhere), 0: elsewhere, and
 * also when there is no route at all, as then nothing can be reached. Negative: the kernel did not
 * answer; to be taken as 1. */
int route_is_own(int route_fd, const struct sockaddr *sa);
