/* System calls that not every C library wraps (the runner is linked with a small one), and their
 * constants as linux/mount.h and linux/close_range.h have them: own copies, as those headers and
 * sys/mount.h exclude each other in some versions. As the calls: -1 and errno. Linux only. */
#pragma once
#include <fcntl.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* fsopen(2), fsconfig(2), fsmount(2) */
#define K_FSOPEN_CLOEXEC      1U
#define K_FSCONFIG_SET_FLAG   0U
#define K_FSCONFIG_SET_STRING 1U
#define K_FSCONFIG_CMD_CREATE 6U
#define K_FSMOUNT_CLOEXEC     1U
/* Attributes of a mount: fsmount(2), mount_setattr(2) */
#define K_ATTR_RDONLY 0x1ULL
#define K_ATTR_NOSUID 0x2ULL
#define K_ATTR_NODEV  0x4ULL
/* open_tree(2), move_mount(2) */
#define K_AT_RECURSIVE      0x8000U
#define K_OPEN_TREE_CLONE   1U
#define K_OPEN_TREE_CLOEXEC ((unsigned)O_CLOEXEC)
#define K_MOVE_FROM_EMPTY   0x04U
#define K_MOVE_TO_EMPTY     0x40U
/* close_range(2), renameat2(2) */
#define K_CLOSE_RANGE_CLOEXEC 4U
#define K_RENAME_NOREPLACE    1U

struct kernel_mount_attr {
    uint64_t attr_set, attr_clr, propagation, userns_fd;
};

static inline int kernel_fsopen(const char *type, unsigned flags)
{
    return (int)syscall(SYS_fsopen, type, flags);
}

static inline int kernel_fsconfig(int fs, unsigned cmd, const char *key, const char *value)
{
    return (int)syscall(SYS_fsconfig, fs, cmd, key, value, 0);
}

static inline int kernel_fsmount(int fs, unsigned flags, uint64_t attributes)
{
    return (int)syscall(SYS_fsmount, fs, flags, (unsigned)attributes);
}

/* A copy of the mount FD and of all mounts below it. */
static inline int kernel_tree_clone(int fd)
{
    return (int)syscall(SYS_open_tree, fd, "",
                        (unsigned)AT_EMPTY_PATH | K_AT_RECURSIVE | K_OPEN_TREE_CLONE |
                            K_OPEN_TREE_CLOEXEC);
}

static inline int kernel_tree_setattr(int tree, const struct kernel_mount_attr *attr)
{
    return (int)syscall(SYS_mount_setattr, tree, "", (unsigned)AT_EMPTY_PATH | K_AT_RECURSIVE, attr,
                        sizeof *attr);
}

static inline int kernel_move_mount(int tree, int target)
{
    return (int)syscall(SYS_move_mount, tree, "", target, "", K_MOVE_FROM_EMPTY | K_MOVE_TO_EMPTY);
}

static inline int kernel_close_range(unsigned first, unsigned last, unsigned flags)
{
    return (int)syscall(SYS_close_range, first, last, flags);
}

static inline int kernel_rename_new(int from_dir, const char *from, int to_dir, const char *to)
{
    return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, K_RENAME_NOREPLACE);
}
