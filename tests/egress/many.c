/* Many requests at once, allowed and refused by turns, for test_many.py and tests/long.
 *
 *   many far PORT FILE          servers on every address; FILE is an array of two uint64_t for each
 *                               last byte of the address it was reached at: connections, and
 *                               requests (by their right form) on them
 *   many near ROUNDS N OK NO PORT WAYS
 *                               N connections at once, ROUNDS times: OK is to be allowed and NO
 *                               refused, in turn by each of WAYS: c CONNECT, g GET, 5 SOCKS5,
 *                               4 SOCKS4a through $http_proxy, r as a program that knows no proxy.
 *                               Prints "allowed refused wrong"; wrong ones on standard error
 *
 * A request is "GET /WORD …", answered with the word, or "PING WORD\n", sent back. The far side
 * closes first, so that no port here has to rest. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define BUF        4096
#define N_MAX      1000
#define WRONG_MAX  20
#define SILENCE_MS 30000

struct conn {
    int fd;
    unsigned n;
    bool is_allowed, has_pinged;
    char way;
    char word[32];
    char in[BUF];
    size_t len;
    uint64_t *counts; /* far */
};

_Noreturn static void die(const char *what)
{
    fprintf(stderr, "many: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void watch(int ep, int fd, void *p)
{
    struct epoll_event e = {.events = EPOLLIN, .data = {.ptr = p}};
    if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e) < 0)
        die("epoll_ctl");
}

/* ---- The far side ---------------------------------------------------------------------------- */

static void far_accept(int ep, int listener, uint64_t *counts)
{
    struct sockaddr_in6 at;
    socklen_t n = sizeof at;
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    struct conn *c = calloc(1, sizeof *c);
    if (c == NULL || getsockname(fd, (struct sockaddr *)&at, &n) < 0)
        die("accept");
    c->fd = fd;
    c->counts = counts + 2 * at.sin6_addr.s6_addr[15];
    c->counts[0]++;
    watch(ep, fd, c);
}

/* True when it is answered, or is to be ended. */
static bool far_answer(struct conn *c)
{
    char out[BUF + 128], word[32];
    int n = -1;
    c->in[c->len] = '\0';
    if (sscanf(c->in, "PING %31[0-9.]\n", word) == 1 && c->in[c->len - 1] == '\n')
        n = snprintf(out, sizeof out, "%s", c->in);
    else if (sscanf(c->in, "GET /%31[0-9.] HTTP/1.1\r\n", word) == 1 && strstr(c->in, "\r\n\r\n"))
        n = snprintf(out, sizeof out,
                     "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s",
                     strlen(word), word);
    if (n < 0)
        return c->len + 1 >= BUF;
    c->counts[1]++;
    if (send(c->fd, out, (size_t)n, MSG_NOSIGNAL) != n)
        return true;
    return true;
}

static void far_read(struct conn *c)
{
    ssize_t n = recv(c->fd, c->in + c->len, BUF - 1 - c->len, 0);
    if (n > 0) {
        c->len += (size_t)n;
        if (!far_answer(c))
            return;
    }
    close(c->fd);
    free(c);
}

static int do_far(const char *port, const char *file)
{
    struct sockaddr_in6 sa = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)atoi(port))};
    const size_t size = 2 * 256 * sizeof(uint64_t);
    int on = 1, off = 0, listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int ep = epoll_create1(EPOLL_CLOEXEC), fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (ftruncate(fd, (off_t)size) < 0)
        die(file);
    uint64_t *counts = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (counts == MAP_FAILED || bind(listener, (struct sockaddr *)&sa, sizeof sa) < 0 ||
        listen(listener, 4096) < 0)
        die("far");
    watch(ep, listener, NULL);
    for (;;) {
        struct epoll_event events[64];
        int n = epoll_wait(ep, events, 64, -1);
        for (int i = 0; i < n; i++)
            if (events[i].data.ptr == NULL)
                far_accept(ep, listener, counts);
            else
                far_read(events[i].data.ptr);
    }
}

/* ---- The near side --------------------------------------------------------------------------- */

static struct sockaddr_in door;
static unsigned n_allowed, n_refused, n_wrong;

static void door_find(void)
{
    const char *proxy = getenv("http_proxy"), *colon = proxy ? strrchr(proxy, ':') : NULL;
    if (!colon)
        die("no http_proxy");
    door = (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)atoi(colon + 1)),
                                .sin_addr = {htonl(INADDR_LOOPBACK)}};
}

/* Where a program that knows no proxy goes: what the session's own resolver says. */
static struct sockaddr_storage straight[2];
static socklen_t straight_len[2];

static void straight_find(int at, const char *host, const char *port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    if (getaddrinfo(host, port, &hints, &found) != 0)
        die(host);
    memcpy(&straight[at], found->ai_addr, found->ai_addrlen);
    straight_len[at] = found->ai_addrlen;
    freeaddrinfo(found);
}

static int request_put(const struct conn *c, char *out, size_t size, const char *host,
                       const char *port)
{
    unsigned p = (unsigned)atoi(port), n_host = (unsigned)strlen(host);
    switch (c->way) {
    case 'c':
        return snprintf(out, size, "CONNECT %s:%s HTTP/1.1\r\nHost: x\r\n\r\n", host, port);
    case 'g':
        return snprintf(out, size,
                        "GET http://%s:%s/%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
                        host, port, c->word);
    case '5':
        return snprintf(out, size, "\5\1%c\5\1%c\3%c%s%c%c", 0, 0, (int)n_host, host, (int)(p >> 8),
                        (int)(p & 255));
    case '4':
        return snprintf(out, size, "\4\1%c%c%c%c%c\1%c%s%c", (int)(p >> 8), (int)(p & 255), 0, 0, 0,
                        0, host, 0);
    default:
        return 0;
    }
}

static void ping(struct conn *c)
{
    char out[48];
    int n = snprintf(out, sizeof out, "PING %s\n", c->word);
    c->has_pinged = true;
    (void)!send(c->fd, out, (size_t)n, MSG_NOSIGNAL);
}

static void near_start(int ep, struct conn *c, const char *host, const char *port)
{
    char out[512];
    int on = 1, n = request_put(c, out, sizeof out, host, port);
    const void *to = c->way == 'r' ? (const void *)&straight[c->is_allowed] : (const void *)&door;
    socklen_t to_len = c->way == 'r' ? straight_len[c->is_allowed] : sizeof door;
    c->fd = socket(c->way == 'r' ? straight[c->is_allowed].ss_family : AF_INET,
                   SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0 || connect(c->fd, to, to_len) < 0)
        die("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (n > 0 && send(c->fd, out, (size_t)n, MSG_NOSIGNAL) != n)
        die("send");
    if (c->way == 'r')
        ping(c);
    watch(ep, c->fd, c);
}

/* How long what stands before the server's bytes is; 0: it is not all here. */
static size_t opened_len(const struct conn *c)
{
    const char *end;
    switch (c->way) {
    case '5':
        return c->len >= 12 ? 12 : 0;
    case '4':
        return c->len >= 8 ? 8 : 0;
    default:
        end = strstr(c->in, "\r\n\r\n");
        return end ? (size_t)(end - c->in) + 4 : 0;
    }
}

static bool says(const struct conn *c, const void *what, size_t n)
{
    return c->len >= n && memcmp(c->in, what, n) == 0;
}

static bool opened_is_right(const struct conn *c)
{
    bool yes = c->is_allowed;
    switch (c->way) {
    case '5':
        return says(c, yes ? "\5\0\5\0\0\1\0\0\0\0\0\0" : "\5\0\5\2\0\1\0\0\0\0\0\0", 12);
    case '4':
        return says(c, yes ? "\0\x5a\0\0\0\0\0\0" : "\0\x5b\0\0\0\0\0\0", 8);
    default:
        return says(c, yes ? "HTTP/1.1 200 " : "HTTP/1.1 403 ", 13);
    }
}

/* Is what came until the end what had to come? */
static bool near_is_right(const struct conn *c)
{
    char echoed[48];
    size_t at = c->way == 'r' ? 0 : opened_len(c), rest = c->len - at;
    if (c->way != 'r' && (at == 0 || !opened_is_right(c)))
        return false;
    if (!c->is_allowed)
        return c->way == 'c' || c->way == 'g' ? !strstr(c->in + at, c->word) : rest == 0;
    snprintf(echoed, sizeof echoed, c->way == 'g' ? "%s" : "PING %s\n", c->word);
    return rest == strlen(echoed) && memcmp(c->in + at, echoed, rest) == 0;
}

/* True at the end. */
static bool near_read(struct conn *c)
{
    ssize_t n = recv(c->fd, c->in + c->len, BUF - 1 - c->len, 0);
    if (n > 0) {
        c->len += (size_t)n;
        c->in[c->len] = '\0';
        if (c->is_allowed && c->way != 'g' && !c->has_pinged && opened_len(c) > 0)
            ping(c);
        return false;
    }
    if (!near_is_right(c)) {
        if (n_wrong++ < WRONG_MAX)
            fprintf(stderr, "%s %c %s: %zd, %zu bytes: %.300s\n", c->word, c->way,
                    c->is_allowed ? "allowed" : "refused", n, c->len, c->in);
    } else if (c->is_allowed) {
        n_allowed++;
    } else {
        n_refused++;
    }
    close(c->fd);
    c->fd = -1;
    return true;
}

_Noreturn static void near_stuck(const struct conn *conns, unsigned n, unsigned left)
{
    fprintf(stderr, "many: silence, %u left\n", left);
    for (unsigned i = 0, told = 0; i < n && told < WRONG_MAX; i++)
        if (conns[i].fd >= 0 && ++told)
            fprintf(stderr, "%s %c %s: %.300s\n", conns[i].word, conns[i].way,
                    conns[i].is_allowed ? "allowed" : "refused", conns[i].in);
    exit(1);
}

static int do_near(unsigned rounds, unsigned n, char **argv)
{
    static struct conn conns[N_MAX];
    const char *ways = argv[3];
    int ep = epoll_create1(EPOLL_CLOEXEC);
    door_find();
    for (int i = 0; strchr(ways, 'r') && i < 2; i++)
        straight_find(i, argv[1 - i], argv[2]);
    for (unsigned round = 0; round < rounds; round++) {
        unsigned left = n;
        for (unsigned i = 0; i < n; i++) {
            struct conn *c = &conns[i];
            *c = (struct conn){.n = i, .is_allowed = i % 2 == 0, .way = ways[i / 2 % strlen(ways)]};
            snprintf(c->word, sizeof c->word, "%u.%u", round, i);
            near_start(ep, c, c->is_allowed ? argv[0] : argv[1], argv[2]);
        }
        while (left > 0) {
            struct epoll_event events[64];
            int got = epoll_wait(ep, events, 64, SILENCE_MS);
            if (got <= 0)
                near_stuck(conns, n, left);
            for (int i = 0; i < got; i++)
                left -= near_read(events[i].data.ptr);
        }
    }
    printf("%u %u %u\n", n_allowed, n_refused, n_wrong);
    return 0;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    if (argc == 4 && strcmp(argv[1], "far") == 0)
        return do_far(argv[2], argv[3]);
    if (argc == 8 && *argv[7] != '\0' && strcmp(argv[1], "near") == 0 && atoi(argv[3]) <= N_MAX)
        return do_near((unsigned)atoi(argv[2]), (unsigned)atoi(argv[3]), argv + 4);
    fputs("many: usage, see the first lines of many.c\n", stderr);
    return 2;
}
