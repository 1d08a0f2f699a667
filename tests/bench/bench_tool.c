/* Clients and servers of tests/bench/run, where Python would be slower than what is measured.
 *
 *   spawn N -- CMD…                 N times, one after the other: "p50 p99" in microseconds
 *   post SOCKET BODY N < TARGETS    N POSTs on one connection, targets in turn: "p50 p99" in us
 *   parallel SOCKET TARGET BODY N   N POSTs at once, a connection each: "ms", then a body a line
 *   rate PORT|SOCKET TARGET C S     C connections, one thread, S seconds: answers a second
 *   far BULK_PORT HTTP_PORT         zeros for ever; a small answer on kept connections
 *   pull HOST PORT BYTES            through $http_proxy (CONNECT) when set: "GB/s"
 *   gets HOST PORT N                N small requests on one connection, same: "p50 p99" in us */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BUFFER ((size_t)1 << 20)
extern char **environ;

static void die(const char *what)
{
    fprintf(stderr, "bench_tool: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void print_stats(double *us, size_t n)
{
    qsort(us, n, sizeof *us, by_value);
    printf("%.1f %.1f\n", us[n / 2], us[n * 99 / 100]);
}

static size_t number(const char *text)
{
    return (size_t)strtoull(text, NULL, 10);
}

/* ---- Connections
 * -------------------------------------------------------------------------------*/

static int connect_unix(const char *path)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    snprintf(sa.sun_path, sizeof sa.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof sa) < 0)
        die(path);
    return fd;
}

static int connect_tcp(const char *host, const char *port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
    int on = 1, r = getaddrinfo(host, port, &hints, &list);
    if (r != 0) {
        fprintf(stderr, "bench_tool: %s: %s\n", host, gai_strerror(r));
        exit(1);
    }
    for (const struct addrinfo *a = list; a; a = a->ai_next) {
        int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) == 0) {
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            freeaddrinfo(list);
            return fd;
        }
        close(fd);
    }
    die(host);
    return -1;
}

static int connect_any(const char *where)
{
    return where[0] == '/' ? connect_unix(where) : connect_tcp("127.0.0.1", where);
}

static void send_all(int fd, const char *bytes, size_t n)
{
    while (n) {
        ssize_t r = write(fd, bytes, n);
        if (r <= 0)
            die("write");
        bytes += r;
        n -= (size_t)r;
    }
}

/* How long the answer at the start of BUF is, once its head is there; 0 before. */
static size_t answer_length(const char *buf, size_t n)
{
    const char *end = memmem(buf, n, "\r\n\r\n", 4), *p;
    if (!end)
        return 0;
    size_t head = (size_t)(end - buf) + 4;
    for (p = buf; p < end; p = (const char *)memchr(p, '\n', (size_t)(end - p) + 2) + 1)
        if (strncasecmp(p, "content-length:", 15) == 0)
            return head + number(p + 15 + strspn(p + 15, " "));
    return head;
}

/* One answer into BUF; returns its length. */
static size_t read_answer(int fd, char *buf, size_t size)
{
    size_t n = 0, want = 0;
    while (!want || n < want) {
        ssize_t r = read(fd, buf + n, size - 1 - n);
        if (r <= 0)
            die("answer");
        n += (size_t)r;
        if (!want)
            want = answer_length(buf, n);
    }
    buf[n] = '\0';
    return n;
}

static void expect_2xx(const char *answer)
{
    if (strncmp(answer, "HTTP/1.1 2", 10) == 0)
        return;
    fprintf(stderr, "bench_tool: %s\n", answer);
    exit(1);
}

static size_t make_post(char *ret, size_t size, const char *target, const char *body)
{
    return (size_t)snprintf(ret, size,
                            "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                            "application/json\r\nContent-Length: %zu\r\n\r\n%s",
                            target, strlen(body), body);
}

/* ---- Measures
 * ----------------------------------------------------------------------------------*/

static int do_spawn(int argc, char **argv)
{
    size_t n = number(argv[0]);
    double *us = calloc(n, sizeof *us);
    if (argc < 3 || !us)
        return 2;
    for (size_t i = 0; i < n; i++) {
        pid_t pid;
        int status;
        double begin = now_us();
        if (posix_spawnp(&pid, argv[2], NULL, NULL, argv + 2, environ) != 0)
            die(argv[2]);
        if (waitpid(pid, &status, 0) < 0 || status != 0)
            die("the command failed");
        us[i] = now_us() - begin;
    }
    print_stats(us, n);
    return 0;
}

static int do_post(int argc, char **argv)
{
    char targets[512][160], request[4096], *answer = malloc(BUFFER);
    size_t n_targets = 0, n = argc == 3 ? number(argv[2]) : 0;
    double *us = calloc(n + 1, sizeof *us);
    while (n_targets < 512 && fgets(targets[n_targets], sizeof targets[0], stdin))
        targets[n_targets][strcspn(targets[n_targets], "\n")] = '\0', n_targets++;
    if (!n || !n_targets || !us || !answer)
        return 2;
    int fd = connect_unix(argv[0]);
    for (size_t i = 0; i < n + 20; i++) { /* the first 20 are not counted */
        size_t len = make_post(request, sizeof request, targets[i % n_targets], argv[1]);
        double begin = now_us();
        send_all(fd, request, len);
        read_answer(fd, answer, BUFFER);
        if (i >= 20)
            us[i - 20] = now_us() - begin;
        expect_2xx(answer);
    }
    print_stats(us, n);
    return 0;
}

static int do_parallel(int argc, char **argv)
{
    char request[8192], **answers;
    size_t n = argc == 4 ? number(argv[3]) : 0, left = n;
    struct pollfd *p = calloc(n, sizeof *p);
    size_t *got = calloc(n, sizeof *got);
    answers = calloc(n, sizeof *answers);
    if (!n || !p || !got || !answers)
        return 2;
    size_t len = make_post(request, sizeof request, argv[1], argv[2]);
    for (size_t i = 0; i < n; i++) {
        p[i] = (struct pollfd){.fd = connect_unix(argv[0]), .events = POLLIN};
        answers[i] = calloc(1, 65536);
    }
    double begin = now_us();
    for (size_t i = 0; i < n; i++)
        send_all(p[i].fd, request, len);
    while (left) {
        if (poll(p, n, 60000) <= 0)
            die("poll");
        for (size_t i = 0; i < n; i++) {
            if (!p[i].revents)
                continue;
            ssize_t r = read(p[i].fd, answers[i] + got[i], 65535 - got[i]);
            if (r <= 0)
                die("answer");
            got[i] += (size_t)r;
            size_t want = answer_length(answers[i], got[i]);
            if (want && got[i] >= want) {
                p[i].fd = -p[i].fd - 1; /* poll passes over it; stays open */
                left--;
            }
        }
    }
    printf("%.1f\n", (now_us() - begin) / 1e3);
    for (size_t i = 0; i < n; i++) {
        expect_2xx(answers[i]);
        printf("%s\n", strstr(answers[i], "\r\n\r\n") + 4);
    }
    return 0;
}

static int do_rate(int argc, char **argv)
{
    char request[512], buf[65536];
    size_t n = argc == 4 ? number(argv[2]) : 0, done = 0;
    struct {
        int fd;
        size_t got;
        char buf[8192];
    } *c = calloc(n, sizeof *c);
    if (!n || !c)
        return 2;
    int ep = epoll_create1(EPOLL_CLOEXEC);
    int len =
        snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: %s%s\r\n\r\n", argv[1],
                 argv[0][0] == '/' ? "localhost" : "127.0.0.1:", argv[0][0] == '/' ? "" : argv[0]);
    for (size_t i = 0; i < n; i++) {
        c[i].fd = connect_any(argv[0]);
        struct epoll_event ev = {.events = EPOLLIN, .data.u64 = i};
        epoll_ctl(ep, EPOLL_CTL_ADD, c[i].fd, &ev);
        send_all(c[i].fd, request, (size_t)len);
    }
    double begin = now_us(), end = begin + (double)number(argv[3]) * 1e6;
    while (now_us() < end) {
        struct epoll_event evs[64];
        int k = epoll_wait(ep, evs, 64, 1000);
        for (int e = 0; e < k; e++) {
            size_t i = (size_t)evs[e].data.u64;
            ssize_t r = read(c[i].fd, buf, sizeof c[i].buf - c[i].got);
            if (r <= 0)
                die("answer");
            memcpy(c[i].buf + c[i].got, buf, (size_t)r);
            c[i].got += (size_t)r;
            size_t want = answer_length(c[i].buf, c[i].got);
            if (want && c[i].got >= want) {
                if (done == 0) {
                    c[i].buf[c[i].got < 8191 ? c[i].got : 8191] = '\0';
                    expect_2xx(c[i].buf);
                }
                c[i].got = 0;
                done++;
                send_all(c[i].fd, request, (size_t)len);
            }
        }
    }
    printf("%.0f\n", (double)done / (now_us() - begin) * 1e6);
    return 0;
}

/* ---- The far side
 * ------------------------------------------------------------------------------*/

static int listen_on(const char *port)
{
    struct sockaddr_in6 sa = {.sin6_family = AF_INET6,
                              .sin6_port = htons((uint16_t)number(port)),
                              .sin6_addr = IN6ADDR_ANY_INIT};
    int on = 1, off = 0, fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, (struct sockaddr *)&sa, sizeof sa) < 0 || listen(fd, 64) < 0)
        die("listen");
    return fd;
}

static void serve_bulk(int fd)
{
    static char zeros[BUFFER];
    while (write(fd, zeros, sizeof zeros) > 0) {
    }
}

static void serve_http(int fd)
{
    static const char ANSWER[] = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n";
    char buf[8192];
    size_t n = 0;
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    for (;;) {
        ssize_t r = read(fd, buf + n, sizeof buf - n);
        if (r <= 0)
            return;
        n += (size_t)r;
        if (n >= 4 && memcmp(buf + n - 4, "\r\n\r\n", 4) == 0) {
            send_all(fd, ANSWER, sizeof ANSWER - 1);
            n = 0;
        }
    }
}

static int do_far(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    struct pollfd p[2] = {{.fd = listen_on(argv[0]), .events = POLLIN},
                          {.fd = listen_on(argv[1]), .events = POLLIN}};
    signal(SIGCHLD, SIG_IGN);
    signal(SIGPIPE, SIG_DFL);
    puts("up");
    fflush(stdout);
    while (poll(p, 2, -1) >= 0) {
        for (int i = 0; i < 2; i++) {
            int fd = p[i].revents ? accept4(p[i].fd, NULL, NULL, SOCK_CLOEXEC) : -1;
            if (fd >= 0 && fork() == 0) {
                if (i == 0)
                    serve_bulk(fd);
                else
                    serve_http(fd);
                _exit(0);
            }
            close(fd);
        }
    }
    return 0;
}

/* Through the proxy of the environment by CONNECT, else directly. */
static int connect_out(const char *host, const char *port)
{
    const char *proxy = getenv("http_proxy");
    char request[512], answer[4096], name[256];
    if (!proxy || !*proxy)
        return connect_tcp(host, port);
    snprintf(name, sizeof name, "%s", strstr(proxy, "//") ? strstr(proxy, "//") + 2 : proxy);
    char *colon = strrchr(name, ':');
    if (!colon)
        return -1;
    *colon = '\0';
    int fd = connect_tcp(name, colon + 1 /* "1234/" is read as digits */);
    int len = snprintf(request, sizeof request, "CONNECT %s:%s HTTP/1.1\r\nHost: %s:%s\r\n\r\n",
                       host, port, host, port);
    send_all(fd, request, (size_t)len);
    size_t n = 0;
    while (n < 12 || !memmem(answer, n, "\r\n\r\n", 4)) { /* not a byte beyond the head */
        if (n == sizeof answer || read(fd, answer + n, 1) != 1)
            die("CONNECT");
        n++;
    }
    if (memcmp(answer + 8, " 200", 4) != 0) {
        fprintf(stderr, "bench_tool: %.*s\n", (int)n, answer);
        exit(1);
    }
    return fd;
}

static int do_pull(int argc, char **argv)
{
    char *buf = malloc(BUFFER);
    if (argc != 3 || !buf)
        return 2;
    double begin = now_us();
    int fd = connect_out(argv[0], argv[1]);
    size_t left = number(argv[2]), all = left;
    while (left) {
        ssize_t r = read(fd, buf, left < BUFFER ? left : BUFFER);
        if (r <= 0)
            die("read");
        left -= (size_t)r;
    }
    printf("%.3f\n", (double)all / (now_us() - begin) / 1e3);
    return 0;
}

/* Plain HTTP: to a proxy in absolute form, on one kept connection. */
static int do_gets(int argc, char **argv)
{
    const char *proxy = getenv("http_proxy");
    char request[512], answer[8192], name[256] = "";
    size_t n = argc == 3 ? number(argv[2]) : 0;
    double *us = calloc(n + 1, sizeof *us);
    if (!n || !us)
        return 2;
    int fd = -1;
    if (proxy && *proxy) {
        snprintf(name, sizeof name, "%s", strstr(proxy, "//") ? strstr(proxy, "//") + 2 : proxy);
        char *colon = strrchr(name, ':');
        name[colon ? (size_t)(colon - name) : 0] = '\0';
        fd = connect_tcp(name, colon ? colon + 1 : "");
    } else {
        fd = connect_tcp(argv[0], argv[1]);
    }
    int len = snprintf(request, sizeof request, "GET %s%s%s%s/ HTTP/1.1\r\nHost: %s:%s\r\n\r\n",
                       name[0] ? "http://" : "", name[0] ? argv[0] : "", name[0] ? ":" : "",
                       name[0] ? argv[1] : "", argv[0], argv[1]);
    for (size_t i = 0; i < n + 20; i++) {
        double begin = now_us();
        send_all(fd, request, (size_t)len);
        read_answer(fd, answer, sizeof answer);
        if (i >= 20)
            us[i - 20] = now_us() - begin;
        expect_2xx(answer);
    }
    print_stats(us, n);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } TABLE[] = {{"spawn", do_spawn}, {"post", do_post}, {"parallel", do_parallel},
                 {"rate", do_rate},   {"far", do_far},   {"pull", do_pull},
                 {"gets", do_gets}};
    for (size_t i = 0; argc > 2 && i < sizeof TABLE / sizeof TABLE[0]; i++)
        if (strcmp(argv[1], TABLE[i].name) == 0)
            return TABLE[i].run(argc - 2, argv + 2);
    fprintf(stderr, "bench_tool: usage, see the first lines of bench_tool.c\n");
    return 2;
}
