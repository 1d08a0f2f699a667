/* Runs in: runner (a command's own helper, inside the wall). Reads: hostile (the server's bytes are
 * passed on unread). May block: yes. */
#include "runner/connect.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "runner/relay.h"
#include "wire/host.h"
#include "wire/order.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEAD_BYTES ((size_t)16 << 10)
#define BODY_BYTES ((size_t)8 << 10)

/* ---- What a person reads --------------------------------------------------------------------- */

/* One line, whatever is in WHY. */
static void say(const char *target, const char *why)
{
    CLEANUP(str_done) struct str line = {0};
    (void)str_puts(&line, "cordon: ");
    if (!str_starts(why, target)) {
        (void)str_put_escaped(&line, target, strlen(target));
        (void)str_puts(&line, ": ");
    }
    (void)str_put_escaped(&line, why, strlen(why));
    (void)str_putc(&line, '\n');
    (void)fd_write_all(STDERR_FILENO, str_c(&line), line.len);
}

/* The body of our own answers: the title, the reason, then "Rule: …" and "What to do: …", each a
 * line (egress/reply.c). */
static void body_say(const char *target, char *body)
{
    CLEANUP(str_done) struct str why = {0};
    char *rest = NULL;
    size_t n = 0;
    for (char *line = strtok_r(body, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (n++ == 0)
            continue;
        (void)str_printf(&why, "%s%s", why.len ? ". " : "", line);
    }
    say(target, why.len ? str_c(&why) : "the way out gave no reason");
}

/* ---- The tunnel ------------------------------------------------------------------------------ */

static int dial(int family, const void *address, uint16_t port)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    const struct sockaddr *sa = family == AF_INET ? (void *)&v4 : (void *)&v6;
    memcpy(family == AF_INET ? (void *)&v4.sin_addr : (void *)&v6.sin6_addr, address,
           family == AF_INET ? sizeof v4.sin_addr : sizeof v6.sin6_addr);
    CLEANUP(fd_done) int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, sa, family == AF_INET ? sizeof v4 : sizeof v6) < 0)
        return -errno;
    int connected = fd;
    fd = -1;
    return connected;
}

static int dial_loopback(uint16_t port)
{
    const struct in_addr v4 = {.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = dial(AF_INET, &v4, port);
    return fd >= 0 ? fd : dial(AF_INET6, &in6addr_loopback, port);
}

/* Not through the door: what is on loopback is inside. -EADDRNOTAVAIL when HOST is elsewhere. */
static int dial_inside(const char *host, uint16_t port)
{
    struct in_addr v4;
    if (strcmp(host, "localhost") == 0)
        return dial_loopback(port);
    if (strcmp(host, "::1") == 0)
        return dial(AF_INET6, &in6addr_loopback, port);
    if (inet_pton(AF_INET, host, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127)
        return dial(AF_INET, &v4, port);
    return -EADDRNOTAVAIL;
}

/* Up to the empty line, and not a byte of what follows: a server may speak first. */
static int head_read(int door, char *head)
{
    size_t have = 0;
    while (have < HEAD_BYTES - 1) {
        ssize_t n = recv(door, head + have, 1, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EPIPE;
        head[++have] = '\0';
        if (have >= 4 && memcmp(head + have - 4, "\r\n\r\n", 4) == 0)
            return 0;
    }
    return -EMSGSIZE;
}

/* 0 when the tunnel is open; what else the door said has then been told. */
static int tunnel_ask(int door, const char *target)
{
    CLEANUP(str_done) struct str ask = {0};
    char head[HEAD_BYTES], body[BODY_BYTES];
    int r = str_printf(&ask, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target);
    if (r >= 0)
        r = fd_write_all(door, ask.data, ask.len);
    if (r >= 0)
        r = head_read(door, head);
    if (r < 0) {
        say(target, "the session's way out ended without an answer");
        return r;
    }
    if (str_starts(head, "HTTP/1.1 200 "))
        return 0;
    ssize_t n = fd_read_all(door, body, sizeof body - 1);
    body[n > 0 ? n : 0] = '\0';
    body_say(target, body);
    return -EACCES;
}

static int tunnel_open(const char *host, uint16_t port, const char *target)
{
    int fd = dial_inside(host, port);
    if (fd != -EADDRNOTAVAIL) {
        if (fd < 0)
            say(target, strerror(-fd));
        return fd;
    }
    fd = dial_loopback(DOOR_PORT);
    if (fd < 0) {
        say(target, "this session has no way out (network none, or its egress is not up)");
        return fd;
    }
    int r = tunnel_ask(fd, target);
    if (r < 0)
        fd_close(fd);
    return r < 0 ? r : fd;
}

/* With one byte, as a message without any carries no descriptor. */
static int pass_on(int tunnel)
{
    ssize_t n = fd_send(STDOUT_FILENO, "", 1, &tunnel, 1);
    return n < 0 ? (int)n : 0;
}

int connect_main(int argc, char **argv)
{
    char host[HOST_MAX], target[HOST_MAX + 10];
    CLEANUP(str_done) struct str typed = {0};
    uint16_t port = 0;
    bool pass = argc == 3 && strcmp(argv[2], "pass") == 0;
    if (argc != 2 && !pass)
        return CHILD_USAGE;
    bool v6 = strchr(argv[0], ':') && argv[0][0] != '[';
    if (str_printf(&typed, v6 ? "[%s]:%s" : "%s:%s", argv[0], argv[1]) < 0 ||
        host_port_parse(str_c(&typed), typed.len, 0, host, &port) == HOST_BAD) {
        say(str_c(&typed), "not a host and a port");
        return 1;
    }
    host_port_text(host, port, target);
    CLEANUP(fd_done) int tunnel = tunnel_open(host, port, target);
    if (tunnel < 0)
        return 1;
    int r = pass ? pass_on(tunnel) : relay(tunnel, STDIN_FILENO, STDOUT_FILENO);
    if (r < 0)
        say(target, strerror(-r));
    return r < 0;
}
