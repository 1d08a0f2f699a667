/* Runs in: runner (stage). Reads: trusted. May block: yes. */
#include "runner/doors.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "wire/frame.h"
#include "wire/msg.h"
#include "wire/pack.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static socklen_t loopback(int family, uint16_t port, union address *ret)
{
    *ret = (union address){0};
    if (family == AF_INET) {
        ret->v4 = (struct sockaddr_in){.sin_family = AF_INET,
                                       .sin_port = htons(port),
                                       .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        return sizeof ret->v4;
    }
    ret->v6 = (struct sockaddr_in6){
        .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    return sizeof ret->v6;
}

static int door_make(int family, int type, uint16_t port)
{
    union address a;
    socklen_t len = loopback(family, port, &a);
    CLEANUP(fd_done) int fd = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (bind(fd, &a.any, len) < 0 || (type == SOCK_STREAM && listen(fd, SOMAXCONN) < 0))
        return -errno;
    int made = fd;
    fd = -1;
    return made;
}

int doors_make(uint16_t port, int ret_fds[static DOORS_MAX], size_t *ret_n, struct err *err)
{
    int v4 = door_make(AF_INET, SOCK_STREAM, port);
    if (v4 < 0)
        return err_set(err, v4, "doors", NULL, "door on 127.0.0.1:%u", port);
    int v6 = door_make(AF_INET6, SOCK_STREAM, port);
    if (v6 < 0 && v6 != -EAFNOSUPPORT && v6 != -EADDRNOTAVAIL) { /* a kernel without IPv6 */
        fd_close(v4);
        return err_set(err, v6, "doors", NULL, "door on [::1]:%u", port);
    }
    ret_fds[0] = v4;
    ret_fds[1] = v6;
    *ret_n = v6 < 0 ? 1 : 2;
    return 0;
}

int doors_make_dns(void)
{
    return door_make(AF_INET, SOCK_DGRAM, DOOR_DNS_PORT);
}

int doors_send(int control, const int *fds, size_t n)
{
    struct pack p = {.r = 0};
    struct str frame = {0};
    pack_u8(&p, (uint8_t)n);
    int r = p.r;
    if (r >= 0)
        r = frame_put(&frame, M_DOORS, p.out.data, p.out.len);
    if (r >= 0) {
        ssize_t sent = fd_send(control, frame.data, frame.len, fds, n);
        r = sent < 0 ? (int)sent : (size_t)sent == frame.len ? 0 : -EIO;
    }
    str_done(&frame);
    pack_done(&p);
    return r;
}
