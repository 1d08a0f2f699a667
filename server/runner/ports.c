/* Runs in: runner. Reads: trusted (the daemon's frames). May block: 20 ms, while
 * a server inside does not accept. */
#include "runner/ports.h"
#include "base/fd.h"
#include "base/mem.h"
#include "runner/answer.h"
#include "wire/msg.h"
#include "wire/pack.h"
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#define CONNECT_MS 20

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static socklen_t loopback(int family, uint16_t port, union address *ret)
{
    memset(ret, 0, sizeof *ret);
    if (family == AF_INET) {
        ret->v4.sin_family = AF_INET;
        ret->v4.sin_port = htons(port);
        ret->v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        return sizeof ret->v4;
    }
    ret->v6.sin6_family = AF_INET6;
    ret->v6.sin6_port = htons(port);
    ret->v6.sin6_addr = in6addr_loopback;
    return sizeof ret->v6;
}

static int answer(int control, uint8_t kind, uint32_t id, int r, const int *fds, size_t n)
{
    CLEANUP(pack_done) struct pack p = {0};
    pack_u32(&p, id);
    pack_u32(&p, r < 0 ? (uint32_t)-r : 0);
    pack_u8(&p, (uint8_t)n);
    return runner_answer_fds(control, kind, &p, fds, n);
}

static int port_take(const struct frame *f, uint32_t *ret_id, uint16_t *ret_port)
{
    struct unpack u = unpack_from(f->payload, f->len);
    *ret_id = unpack_u32(&u);
    *ret_port = unpack_u16(&u);
    int r = unpack_end(&u);
    return r == 0 && *ret_port == 0 ? -EBADMSG : r;
}

/* With SO_REUSEADDR only against what a former listener left in TIME_WAIT: a live one is never
 * shared (socket(7)). */
static int listen_on(int family, uint16_t port)
{
    union address a;
    const int on = 1;
    socklen_t len = loopback(family, port, &a);
    CLEANUP(fd_done) int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        bind(fd, &a.any, len) < 0 || listen(fd, SOMAXCONN) < 0)
        return -errno;
    int made = fd;
    fd = -1;
    return made;
}

int port_listen(const struct frame *f, int control)
{
    int fds[2] = {-1, -1};
    uint32_t id;
    uint16_t port;
    int r = port_take(f, &id, &port);
    if (r < 0)
        return r;
    size_t n = 0;
    fds[0] = listen_on(AF_INET, port);
    fds[1] = fds[0] < 0 ? fds[0] : listen_on(AF_INET6, port);
    bool no_v6 = fds[1] == -EAFNOSUPPORT || fds[1] == -EADDRNOTAVAIL; /* a kernel without it */
    if (fds[0] >= 0 && (fds[1] >= 0 || no_v6))
        n = no_v6 ? 1 : 2;
    r = answer(control, M_LISTENING, id, n ? 0 : fds[1], fds, n);
    fd_close(fds[0]);
    fd_close(fds[1]);
    return r;
}

/* On loopback the answer is there at once, but where a server's queue is full: the kernel then
 * tries on, and the socket is handed out as it is, so that nothing waits here. */
static int connect_to(int family, uint16_t port)
{
    union address a;
    int error = 0;
    socklen_t len = loopback(family, port, &a), n = sizeof error;
    CLEANUP(fd_done) int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || (connect(fd, &a.any, len) < 0 && errno != EINPROGRESS))
        return -errno;
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    if (poll(&p, 1, CONNECT_MS) == 1 &&
        (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) < 0 || error != 0))
        return error ? -error : -EIO;
    int made = fd;
    fd = -1;
    return made;
}

int port_connect(const struct frame *f, int control)
{
    uint32_t id;
    uint16_t port;
    int r = port_take(f, &id, &port);
    if (r < 0)
        return r;
    int fd = connect_to(AF_INET, port);
    if (fd < 0) { /* servers that listen on ::1 alone are common */
        int v6 = connect_to(AF_INET6, port);
        fd = v6 >= 0 ? v6 : fd;
    }
    r = answer(control, M_CONNECTED, id, fd, &fd, fd >= 0);
    fd_close(fd);
    return r;
}
