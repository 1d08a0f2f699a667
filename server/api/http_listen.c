/* Runs in: daemon. Reads: trusted. May block: no. */
#include "api/http_parts.h"
#include "base/fd.h"
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 128

static int listen_on(const struct sockaddr *address, socklen_t n)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), r;
    int one = 1;

    if (fd < 0)
        return -errno;
    if (address->sa_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    if (address->sa_family != AF_UNIX)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, address, n) < 0 || listen(fd, BACKLOG) < 0) {
        r = -errno;
        fd_close(fd);
        return r;
    }
    return fd;
}

/* Both families on PORT, or none: 0 with descriptors (v6 -1 where the machine has no IPv6). */
static int listen_both(uint16_t port, int *ret_v4, int *ret_v6)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    int four, six;

    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    v6.sin6_addr = in6addr_loopback;
    four = listen_on((const struct sockaddr *)&v4, sizeof v4);
    if (four < 0)
        return four;
    six = listen_on((const struct sockaddr *)&v6, sizeof v6);
    if (six == -EADDRINUSE || six == -EACCES) {
        fd_close(four);
        return six;
    }
    *ret_v4 = four;
    *ret_v6 = six < 0 ? -1 : six;
    return 0;
}

int listen_tcp(int first, bool fixed, uint16_t *ret_port, int *ret_v4, int *ret_v6, struct err *err)
{
    int last = fixed || first > 7430 ? first : 7430, port, r = -EADDRINUSE;

    for (port = first; port <= last; port++) {
        r = listen_both((uint16_t)port, ret_v4, ret_v6);
        if (r != -EADDRINUSE)
            break;
    }
    if (r < 0)
        return err_set(err, r, "port_taken", "Choose another port: cordon serve --port N.",
                       "no port of %d..%d is free on 127.0.0.1 and ::1: %s", first, last,
                       strerror(-r));
    *ret_port = (uint16_t)port;
    return 0;
}

int listen_unix(const char *path, struct err *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    mode_t mask;
    int fd;

    if (strlen(path) >= sizeof a.sun_path)
        return err_set(err, -ENAMETOOLONG, "path_invalid", NULL,
                       "the path of the socket is too long: %s", path);
    (void)snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    /* The caller holds the lock of this state folder: what lies there is left over. */
    (void)unlink(path);
    mask = umask(0177);
    fd = listen_on((const struct sockaddr *)&a, sizeof a);
    (void)umask(mask);
    if (fd < 0)
        return err_set(err, fd, "internal", NULL, "cannot listen on %s: %s", path, strerror(-fd));
    return fd;
}
