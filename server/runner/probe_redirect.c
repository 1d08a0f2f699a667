/* Runs in: runner. Reads: hostile (what comes back). May block: at most some seconds.
 *
 * The probes of the redirect: a program that knows nothing of a proxy. */
#include "base/fd.h"
#include "base/mem.h"
#include "runner/probe_parts.h"
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

enum { HEADER = 12, TYPE_A = 1, TYPE_AAAA = 28, CLASS_IN = 1, DNS_PORT = 53 };

/* ---- By name ----------------------------------------------------------------------------------
 */

/* A question of TYPE for HOST (RFC 1035, 4.1); its length, or 0 when it does not fit. */
static size_t question_put(const char *host, uint16_t type, uint8_t ret[static 300])
{
    static const uint8_t header[HEADER] = {0x43, 0x64, 1, 0, 0, 1}; /* recursion wanted, one */
    size_t at = HEADER;
    memcpy(ret, header, sizeof header);
    while (*host) {
        size_t n = strcspn(host, ".");
        if (n == 0 || n > 63 || at + n > 260)
            return 0;
        ret[at++] = (uint8_t)n;
        memcpy(ret + at, host, n);
        at += n;
        host += n + (host[n] == '.');
    }
    const uint8_t end[5] = {0, 0, (uint8_t)type, 0, CLASS_IN};
    memcpy(ret + at, end, sizeof end);
    return at + sizeof end;
}

/* The answer's one address: it is the last of the message that our own name server makes. */
static int address_get(const uint8_t *in, size_t n, size_t n_question, size_t n_address,
                       uint8_t *ret)
{
    size_t at = n_question + 12 + n_address; /* name, type, class, TTL, length; the address */
    if (n < HEADER || (in[3] & 15) != 0)
        return -EHOSTUNREACH;
    if (n < at || in[6] != 0 || in[7] != 1)
        return -ENODATA;
    memcpy(ret, in + at - n_address, n_address);
    return 0;
}

/* Asks the name server inside for HOST. */
static int look_up(const char *host, int family, uint8_t ret[static 16])
{
    const struct sockaddr_in server = {.sin_family = AF_INET,
                                       .sin_port = htons(DNS_PORT),
                                       .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    uint8_t question[300], answer[512];
    size_t n = question_put(host, family == AF_INET ? TYPE_A : TYPE_AAAA, question);
    CLEANUP(fd_done) int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&server, sizeof server) < 0)
        return -errno;
    if (n == 0)
        return -EINVAL;
    if (send(fd, question, n, MSG_NOSIGNAL) < 0)
        return -errno;
    int r = probe_wait(fd, POLLIN);
    ssize_t got = r < 0 ? 0 : recv(fd, answer, sizeof answer, 0);
    if (r < 0 || got < 0)
        return r < 0 ? r : -errno;
    return address_get(answer, (size_t)got, n, family == AF_INET ? 4 : 16, ret);
}

/* 0 when the other side says something or ends in order, -ECONNRESET when it resets. It is spoken
 * to first: a refusal waits for that. */
static int end_of(int fd)
{
    char byte = '\n';
    if (send(fd, &byte, 1, MSG_NOSIGNAL) < 0)
        return -errno;
    int r = probe_wait(fd, POLLIN);
    return r < 0 ? r : recv(fd, &byte, 1, 0) < 0 ? -errno : 0;
}

int probe_end(struct probe *p)
{
    struct sockaddr_storage sa;
    socklen_t n;
    int r = probe_address(p, &sa, &n);
    if (r < 0)
        return r;
    CLEANUP(fd_done) int fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    r = probe_connect(fd, (const struct sockaddr *)&sa, n);
    return r < 0 ? r : end_of(fd);
}

int probe_name(struct probe *p)
{
    char text[INET6_ADDRSTRLEN];
    uint8_t address[16];
    int family = strcmp(p->path, "v6") == 0 ? AF_INET6 : AF_INET;
    int r = look_up(p->text, family, address);
    if (r < 0) {
        (void)str_puts(&p->answer, "no address");
        return r;
    }
    if (inet_ntop(family, address, text, sizeof text) == NULL)
        return -errno;
    (void)str_puts(&p->answer, text);
    struct probe at = {.path = text, .port = p->port};
    return probe_end(&at);
}

/* ---- UDP ---------------------------------------------------------------------------------------
 */

int probe_stays(struct probe *p)
{
    struct sockaddr_storage sa, from;
    socklen_t n, n_from = sizeof from;
    const int on = 1;
    char in[8] = "";
    int r = probe_address(p, &sa, &n);
    if (r < 0)
        return r;
    CLEANUP(fd_done) int to = socket(sa.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    CLEANUP(fd_done) int fd = socket(sa.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* IPv6 binds to an address that is its own by a route alone only when asked to. */
    (void)setsockopt(to, SOL_IPV6, IPV6_FREEBIND, &on, sizeof on);
    if (to < 0 || fd < 0 || bind(to, (const struct sockaddr *)&sa, n) < 0 ||
        getsockname(to, (struct sockaddr *)&from, &n_from) < 0)
        return -errno;
    if (connect(fd, (const struct sockaddr *)&from, n_from) < 0 ||
        send(fd, "cordon", 6, MSG_NOSIGNAL) < 0)
        return -errno;
    r = probe_wait(to, POLLIN);
    if (r < 0)
        return r;
    return recv(to, in, sizeof in, 0) == 6 && memcmp(in, "cordon", 6) == 0 ? 0 : -EBADMSG;
}
