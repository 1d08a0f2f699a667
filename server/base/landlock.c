/* Runs in: egress, runner, daemon (landlock_abi only). Reads: trusted. May block: no. */
#include "base/landlock.h"
#include <errno.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* linux/landlock.h, own copy: see the header. The kernel takes shorter and longer attributes, as
 * long as what it does not know is zero. */
struct ruleset_attr {
    uint64_t handled_access_fs, handled_access_net, scoped;
};
struct path_beneath_attr {
    uint64_t allowed_access;
    int32_t parent_fd;
} __attribute__((packed));
#define CREATE_RULESET_VERSION 1U
#define RULE_PATH_BENEATH      1

#define LL_FILE_RIGHTS (LL_EXECUTE | LL_WRITE_FILE | LL_READ_FILE | LL_TRUNCATE | LL_IOCTL_DEV)

int landlock_abi(void)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, CREATE_RULESET_VERSION);
    return abi < 1 ? 0 : (int)abi;
}

static uint64_t fs_rights_of(int abi)
{
    uint64_t rights = LL_REFER - 1; /* ABI 1: everything below it */
    if (abi >= 2)
        rights |= LL_REFER;
    if (abi >= 3)
        rights |= LL_TRUNCATE;
    if (abi >= 5)
        rights |= LL_IOCTL_DEV;
    return rights;
}

int landlock_new(int abi, uint64_t fs_rights, uint64_t scopes)
{
    struct ruleset_attr attr = {.handled_access_fs = fs_rights & fs_rights_of(abi),
                                .scoped = abi >= 6 ? scopes : 0};
    size_t size = abi >= 6 ? sizeof(attr) : abi >= 4 ? 16 : 8;
    long fd = syscall(SYS_landlock_create_ruleset, &attr, size, 0U);
    return fd < 0 ? -errno : (int)fd; /* close-on-exec by the kernel */
}

int landlock_allow(int ruleset, int fd, uint64_t rights)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISDIR(st.st_mode))
        rights &= LL_FILE_RIGHTS;
    rights &= fs_rights_of(landlock_abi());
    if (rights == 0)
        return 0; /* the kernel refuses an empty rule */
    struct path_beneath_attr attr = {.allowed_access = rights, .parent_fd = fd};
    if (syscall(SYS_landlock_add_rule, ruleset, RULE_PATH_BENEATH, &attr, 0U) < 0)
        return -errno;
    return 0;
}

int landlock_enter(int ruleset)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    if (syscall(SYS_landlock_restrict_self, ruleset, 0U) < 0)
        return -errno;
    return 0;
}
