/* Runs in: any. Reads: hostile. May block: fd_write_all, fd_read_all, files. */
#include "base/fd.h"
#include "base/clock.h"
#include "base/kernel.h"
#include "base/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

void fd_close(int fd)
{
    if (fd < 0)
        return;
    int saved = errno;
    (void)close(fd);
    errno = saved;
}

int fd_pair(int ret_fds[2])
{
    return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ret_fds) < 0 ? -errno : 0;
}

int fd_pipe(int ret_fds[2])
{
    return pipe2(ret_fds, O_CLOEXEC) < 0 ? -errno : 0;
}

int fd_memfd(const char *name, const void *bytes, size_t n)
{
    CLEANUP(fd_done) int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    int r = fd_write_all(fd, bytes, n);
    if (r < 0)
        return r;
    if (lseek(fd, 0, SEEK_SET) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return -errno;
    int ret = fd;
    fd = -1;
    return ret;
}

int fd_nonblock(int fd, bool on)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0)
        return -errno;
    flags = on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
    return fcntl(fd, F_SETFL, flags) < 0 ? -errno : 0;
}

int fd_cloexec(int fd, bool on)
{
    return fcntl(fd, F_SETFD, on ? FD_CLOEXEC : 0) < 0 ? -errno : 0;
}

int fd_write_all(int fd, const void *bytes, size_t n)
{
    const char *p = bytes;
    while (n > 0) {
        ssize_t w = write(fd, p, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            return -errno;
        p += w;
        n -= (size_t)w;
    }
    return 0;
}

ssize_t fd_read_all(int fd, void *buf, size_t n)
{
    size_t got = 0;
    while (got < n) {
        ssize_t r = read(fd, (char *)buf + got, n - got);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return -errno;
        if (r == 0)
            break;
        got += (size_t)r;
    }
    return (ssize_t)got;
}

int fd_read_file(int at, const char *path, size_t max, char **ret, size_t *ret_n)
{
    CLEANUP(fd_done) int fd = openat(at, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return -errno;
    size_t cap = max < 4096 ? max : 4096, len = 0;
    CLEANUP(freep) char *buf = malloc(cap + 1);
    if (!buf)
        return -ENOMEM;
    for (;;) { /* the size is not asked for: files of /proc have none */
        ssize_t got = fd_read_all(fd, buf + len, cap + 1 - len);
        if (got < 0)
            return (int)got;
        len += (size_t)got;
        if (len <= cap)
            break;
        if (cap >= max)
            return -EFBIG;
        cap = cap > max / 2 ? max : cap * 2;
        char *more = realloc(buf, cap + 1);
        if (!more)
            return -ENOMEM;
        buf = more;
    }
    buf[len] = '\0';
    *ret = TAKE(buf);
    if (ret_n)
        *ret_n = len;
    return 0;
}

static int write_and_sync(int at, const char *path, const void *bytes, size_t n, mode_t mode)
{
    CLEANUP(fd_done)
    int fd = openat(at, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    if (fchmod(fd, mode) < 0)
        return -errno;
    int r = fd_write_all(fd, bytes, n);
    if (r == 0 && fsync(fd) < 0)
        r = -errno;
    return r;
}

int fd_write_file(int at, const char *path, const void *bytes, size_t n, mode_t mode)
{
    unsigned char raw[12];
    char text[20];
    CLEANUP(freep) char *temporary = NULL;
    int r = random_bytes(raw, sizeof(raw));
    if (r < 0)
        return r;
    base64url(raw, sizeof(raw), text);
    if (asprintf(&temporary, "%s.%s.tmp", path, text) < 0) {
        temporary = NULL;
        return -ENOMEM;
    }
    r = write_and_sync(at, temporary, bytes, n, mode);
    if (r == 0 && renameat(at, temporary, at, path) < 0)
        r = -errno;
    if (r < 0 && r != -EEXIST)
        (void)unlinkat(at, temporary, 0);
    return r;
}

union fd_control {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int) * FDS_PER_MESSAGE)];
};

ssize_t fd_send(int sock, const void *bytes, size_t n, const int *fds, size_t n_fds)
{
    if (n_fds > FDS_PER_MESSAGE || (n_fds > 0 && n == 0))
        return -EINVAL;
    union fd_control control;
    struct iovec iov = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = n};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (n_fds > 0) {
        memset(&control, 0, sizeof(control));
        msg.msg_control = control.bytes;
        msg.msg_controllen = (socklen_t)CMSG_SPACE(sizeof(int) * n_fds);
        struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = (socklen_t)CMSG_LEN(sizeof(int) * n_fds);
        memcpy(CMSG_DATA(head), fds, sizeof(int) * n_fds);
    }
    ssize_t sent;
    do
        sent = sendmsg(sock, &msg, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : sent;
}

/* Takes descriptors over into RET; -EBADMSG when there are more than it holds. */
static int collect_fds(struct msghdr *msg, int *ret, size_t *n)
{
    int r = msg->msg_flags & MSG_CTRUNC ? -EBADMSG : 0;
    for (struct cmsghdr *h = CMSG_FIRSTHDR(msg); h; h = CMSG_NXTHDR(msg, h)) {
        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof(fd));
            if (*n < FDS_PER_MESSAGE) {
                ret[(*n)++] = fd;
            } else {
                fd_close(fd);
                r = -EBADMSG;
            }
        }
    }
    return r;
}

ssize_t fd_recv(int sock, void *buf, size_t n, int *ret_fds, size_t *ret_n_fds)
{
    union fd_control control;
    struct iovec iov = {.iov_base = buf, .iov_len = n};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.bytes,
                         .msg_controllen = sizeof(control.bytes)};
    int fds[FDS_PER_MESSAGE];
    size_t n_fds = 0;
    ssize_t got;
    do
        got = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return -errno;
    if (collect_fds(&msg, fds, &n_fds) < 0) {
        for (size_t i = 0; i < n_fds; i++)
            fd_close(fds[i]);
        return -EBADMSG;
    }
    memcpy(ret_fds, fds, n_fds * sizeof(int));
    *ret_n_fds = n_fds;
    return got;
}

int fd_cloexec_from(int from)
{
    return kernel_close_range((unsigned)from, ~0U, K_CLOSE_RANGE_CLOEXEC) < 0 ? -errno : 0;
}
