/* Runs in: daemon. Reads: hostile (sockets that came up from the stage). May block: no. */
#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/wall.h"
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#define DNS_PORT 53

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71 /* Linux 5.14; asm-generic/socket.h */
#endif

static int option(int fd, int name)
{
    int value = -1;
    socklen_t len = sizeof value;
    return getsockopt(fd, SOL_SOCKET, name, &value, &len) < 0 ? -1 : value;
}

static uint64_t netns_cookie(int fd)
{
    uint64_t cookie = 0;
    socklen_t len = sizeof cookie;
    return getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &len) < 0 ? 0 : cookie;
}

/* The cookie of our own network namespace, by a socket made in it. */
static uint64_t own_cookie(void)
{
    CLEANUP(fd_done) int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return fd < 0 ? 0 : netns_cookie(fd);
}

/* "127.0.0.1" and "::1", with PORT: the family, or AF_UNSPEC for anything else. */
static int loopback_family(int fd, uint16_t port)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_storage room;
    } a = {.room = {0}};
    socklen_t len = sizeof a;
    if (getsockname(fd, &a.any, &len) < 0)
        return AF_UNSPEC;
    if (a.any.sa_family == AF_INET && a.v4.sin_port == htons(port) &&
        a.v4.sin_addr.s_addr == htonl(INADDR_LOOPBACK))
        return AF_INET;
    if (a.any.sa_family == AF_INET6 && a.v6.sin6_port == htons(port) &&
        memcmp(&a.v6.sin6_addr, &in6addr_loopback, sizeof in6addr_loopback) == 0)
        return AF_INET6;
    return AF_UNSPEC;
}

static bool is_tcp(int fd)
{
    return option(fd, SO_TYPE) == SOCK_STREAM && option(fd, SO_PROTOCOL) == IPPROTO_TCP;
}

static bool is_udp(int fd)
{
    return option(fd, SO_TYPE) == SOCK_DGRAM && option(fd, SO_PROTOCOL) == IPPROTO_UDP;
}

/* What is wrong with FD as a door of FAMILY, or NULL. */
static const char *door_fault(int fd, bool is_dns, uint16_t port, int family, uint64_t own)
{
    if (is_dns ? !is_udp(fd) : !is_tcp(fd))
        return is_dns ? "no UDP socket" : "no TCP socket";
    if (!is_dns && option(fd, SO_ACCEPTCONN) != 1)
        return "not listening";
    if (loopback_family(fd, port) != family)
        return "not on the loopback address and port that was ordered";
    uint64_t cookie = netns_cookie(fd);
    if (cookie == 0 || own == 0)
        return "its network namespace is not told by this kernel";
    if (cookie == own)
        return "in the host's network namespace";
    return NULL;
}

/* In the namespace that DOOR is in, which was checked. */
static bool is_inside(int fd, int door)
{
    uint64_t cookie = netns_cookie(door);
    return cookie != 0 && netns_cookie(fd) == cookie;
}

int wall_listeners_check(const struct wall *w, const int *fds, size_t n, uint16_t port)
{
    static const int FAMILIES[] = {AF_INET, AF_INET6};
    uint64_t own = own_cookie();
    if (w->n_doors == 0 || n == 0 || n > ARRAY_LEN(FAMILIES))
        return -EBADF;
    for (size_t i = 0; i < n; i++)
        if (door_fault(fds[i], false, port, FAMILIES[i], own) || !is_inside(fds[i], w->doors[0]) ||
            fd_nonblock(fds[i], true) < 0)
            return -EBADF;
    return 0;
}

int wall_socket_check(const struct wall *w, int fd)
{
    if (w->n_doors == 0 || !is_tcp(fd) || option(fd, SO_ACCEPTCONN) != 0 ||
        !is_inside(fd, w->doors[0]))
        return -EBADF;
    return fd_nonblock(fd, true);
}

int doors_check(const int *fds, size_t n, uint16_t port, bool *ret_redirect, struct err *err)
{
    static const int FAMILIES[] = {AF_INET, AF_INET6};
    uint64_t own = own_cookie();
    *ret_redirect = n > 1 && is_udp(fds[n - 1]); /* the name server's comes last */
    size_t n_tcp = n - *ret_redirect;
    const char *fault = n == 0 || n_tcp > ARRAY_LEN(FAMILIES) ? "wrong number of doors" : NULL;
    for (size_t i = 0; i < n && !fault; i++) {
        bool is_dns = i == n_tcp;
        fault = door_fault(fds[i], is_dns, is_dns ? DNS_PORT : port, is_dns ? AF_INET : FAMILIES[i],
                           own);
        if (!fault && netns_cookie(fds[i]) != netns_cookie(fds[0]))
            fault = "in another network namespace than the first";
        if (!fault && fd_nonblock(fds[i], true) < 0)
            fault = "cannot be made non-blocking";
    }
    if (!fault)
        return 0;
    return err_set(err, -EBADF, "session_refused", "install Cordon again",
                   "a door of the session is not what was ordered: %s", fault);
}
