/* Landlock as the kernel defines it (landlock(7), Documentation/userspace-api/landlock.rst): own
 * constants, as the distribution's header is older. Linux only. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* Access rights for files and folders; the ABI that brought each. */
#define LL_EXECUTE     (1ULL << 0)
#define LL_WRITE_FILE  (1ULL << 1)
#define LL_READ_FILE   (1ULL << 2)
#define LL_READ_DIR    (1ULL << 3)
#define LL_REMOVE_DIR  (1ULL << 4)
#define LL_REMOVE_FILE (1ULL << 5)
#define LL_MAKE_CHAR   (1ULL << 6)
#define LL_MAKE_DIR    (1ULL << 7)
#define LL_MAKE_REG    (1ULL << 8)
#define LL_MAKE_SOCK   (1ULL << 9)
#define LL_MAKE_FIFO   (1ULL << 10)
#define LL_MAKE_BLOCK  (1ULL << 11)
#define LL_MAKE_SYM    (1ULL << 12)
#define LL_REFER       (1ULL << 13) /* ABI 2 */
#define LL_TRUNCATE    (1ULL << 14) /* ABI 3 */
#define LL_IOCTL_DEV   (1ULL << 15) /* ABI 5 */
/* Scopes, ABI 6. */
#define LL_SCOPE_ABSTRACT_UNIX (1ULL << 0)
#define LL_SCOPE_SIGNAL        (1ULL << 1)

int landlock_abi(void); /* >= 1; 0 when the kernel has none or it is off */
/* A ruleset handling FS_RIGHTS and SCOPES, cut to what ABI has. A descriptor or negative errno. */
int landlock_new(int abi, uint64_t fs_rights, uint64_t scopes);
/* RIGHTS below (or of) what FD names (O_PATH); folder rights are cut when FD is no folder. */
int landlock_allow(int ruleset, int fd, uint64_t rights);
/* Sets no_new_privs and restricts the calling thread, for good. */
int landlock_enter(int ruleset);
