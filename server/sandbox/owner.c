/* Runs in: daemon. Reads: trusted. May block: no. */
#include "sandbox/owner.h"
#include "base/fd.h"
#include "base/mem.h"
#include <fcntl.h>
#include <stdio.h>

#define OVERFLOW_UID 65534
#define ALL_UIDS     4294967295UL

static bool has_unmapped_owners(void)
{
    CLEANUP(freep) char *map = NULL;
    unsigned long inside, outside, count;
    return fd_read_file(AT_FDCWD, "/proc/self/uid_map", 4096, &map, NULL) >= 0 &&
           (sscanf(map, "%lu %lu %lu", &inside, &outside, &count) != 3 || count < ALL_UIDS);
}

bool owner_is_system(uid_t uid)
{
    return uid == 0 || (uid == OVERFLOW_UID && has_unmapped_owners());
}
