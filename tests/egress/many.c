/* Many requests at once, allowed and refused by turns, for test_many.py and tests/long.
 *
 *   many far PORT FILE          servers on every address; FILE is an array of two uint64_t for each
 *                               last byte of the address it was reached at: connections, and
 *                               requests (by their right form) on them
 *   many near ROUNDS N OK NO PORT
 *                               N connections at once, ROUNDS times, through $http_proxy: OK is to
 *                               be allowed and NO refused, by CONNECT and by GET in turn. Prints
 *                               "allowed refused wrong"; wrong ones on standard error
 *
 * A request is "GET /WORD …", answered with the word, or "PING WORD\n", sent back. The far side
 * closes first, so that no port here has to rest. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
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
    bool is_allowed, is_connect, has_pinged;
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

static void near_start(int ep, struct conn *c, const char *host, const char *port)
{
    char out[512];
    int n, on = 1;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&door, sizeof door) < 0)
        die("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (c->is_connect)
        n = snprintf(out, sizeof out, "CONNECT %s:%s HTTP/1.1\r\nHost: x\r\n\r\n", host, port);
    else
        n = snprintf(out, sizeof out,
                     "GET http://%s:%s/%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", host,
                     port, c->word);
    if (send(c->fd, out, (size_t)n, MSG_NOSIGNAL) != n)
        die("send");
    watch(ep, c->fd, c);
}

/* Is what came until the end what had to come? */
static bool near_is_right(const struct conn *c)
{
    const char *body = strstr(c->in, "\r\n\r\n");
    char echoed[48];
    if (!body)
        return false;
    body += 4;
    if (!c->is_allowed)
        return strncmp(c->in, "HTTP/1.1 403 ", 13) == 0 && !strstr(body, c->word);
    snprintf(echoed, sizeof echoed, c->is_connect ? "PING %s\n" : "%s", c->word);
    return strncmp(c->in, "HTTP/1.1 200 ", 13) == 0 && strcmp(body, echoed) == 0;
}

/* True at the end. */
static bool near_read(struct conn *c)
{
    ssize_t n = recv(c->fd, c->in + c->len, BUF - 1 - c->len, 0);
    if (n > 0) {
        char out[48];
        c->len += (size_t)n;
        c->in[c->len] = '\0';
        if (c->is_allowed && c->is_connect && !c->has_pinged && strstr(c->in, "\r\n\r\n")) {
            int len = snprintf(out, sizeof out, "PING %s\n", c->word);
            c->has_pinged = true;
            (void)!send(c->fd, out, (size_t)len, MSG_NOSIGNAL);
        }
        return false;
    }
    if (!near_is_right(c)) {
        if (n_wrong++ < WRONG_MAX)
            fprintf(stderr, "%s %s %s: %zd %.300s\n", c->word, c->is_connect ? "CONNECT" : "GET",
                    c->is_allowed ? "allowed" : "refused", n, c->in);
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
            fprintf(stderr, "%s %s %s: %.300s\n", conns[i].word,
                    conns[i].is_connect ? "CONNECT" : "GET",
                    conns[i].is_allowed ? "allowed" : "refused", conns[i].in);
    exit(1);
}

static int do_near(unsigned rounds, unsigned n, char **argv)
{
    static struct conn conns[N_MAX];
    int ep = epoll_create1(EPOLL_CLOEXEC);
    door_find();
    for (unsigned round = 0; round < rounds; round++) {
        unsigned left = n;
        for (unsigned i = 0; i < n; i++) {
            struct conn *c = &conns[i];
            *c = (struct conn){.n = i, .is_allowed = i % 2 == 0, .is_connect = i % 4 < 2};
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
    if (argc == 7 && strcmp(argv[1], "near") == 0 && atoi(argv[3]) <= N_MAX)
        return do_near((unsigned)atoi(argv[2]), (unsigned)atoi(argv[3]), argv + 4);
    fputs("many: usage, see the first lines of many.c\n", stderr);
    return 2;
}
