/* Runs in: egress. Reads: hostile (addresses out of DNS). May block: no. */
#include "egress/dial.h"
#include "base/fd.h"
#include "base/mem.h"
#include "egress/route.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>

#define TRIED_MAX     (2 * LOOKUP_ADDRESSES)
#define ATTEMPT_MS    200 /* RFC 8305, 5: at least 100, at most 2000 */
#define OTHER_WAIT_MS 50  /* RFC 8305, 3: what the slower family's answer is waited for */

enum { V6 = 0, V4 = 1 };

struct dial {
    struct closing closing;
    struct deadline whole, next;
    struct dial_deps deps;
    dialled_fn *fn; /* NULL once told or cancelled */
    void *arg;
    char host[HOST_MAX];
    uint16_t port;
    bool allow_private, started;
    struct lookup *lookups[2];
    unsigned n_looking; /* look-ups still to end */
    const char *lookup_why;
    struct sockaddr_storage found[2][LOOKUP_ADDRESSES]; /* checked, still to be tried */
    size_t n_found[2], n_tried[2];
    int turn; /* the family to try next */
    struct peer *attempts[TRIED_MAX];
    size_t n_attempts, n_running;
    struct dialled result; /* of what failed last */
};

static void dial_freed(struct closing *closing)
{
    free(container_of(closing, struct dial, closing));
}

/* Ends everything but the attempt KEEP. */
static void dial_stop(struct dial *d)
{
    d->fn = NULL;
    lookup_cancel(d->lookups[V6]);
    lookup_cancel(d->lookups[V4]);
    for (size_t i = 0; i < d->n_attempts; i++)
        peer_close(TAKE(d->attempts[i]), false);
    closing_start(&d->closing);
}

void dial_cancel(struct dial *d)
{
    if (d != NULL && d->fn != NULL)
        dial_stop(d);
}

static void dial_ends(struct dial *d, enum eg_outcome outcome, int fd)
{
    dialled_fn *fn = d->fn;
    void *arg = d->arg;
    struct dialled result = d->result;
    if (fn == NULL) {
        fd_close(fd);
        return;
    }
    result.outcome = outcome;
    result.fd = fd;
    if (outcome == EG_OPENED)
        result.detail[0] = '\0';
    dial_stop(d);
    fn(arg, &result);
}

static void address_put(struct dial *d, const struct sockaddr_storage *sa)
{
    char text[INET6_ADDRSTRLEN] = "";
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    memcpy(&v4, sa, sizeof v4);
    memcpy(&v6, sa, sizeof v6);
    (void)inet_ntop(sa->ss_family,
                    sa->ss_family == AF_INET ? (void *)&v4.sin_addr : (void *)&v6.sin6_addr, text,
                    sizeof text);
    snprintf(d->result.address, sizeof d->result.address,
             sa->ss_family == AF_INET ? "%s:%u" : "[%s]:%u", text, (unsigned)d->port);
}

/* ---- Checking ------------------------------------------------------------------------------- */

/* A mapped address is dialled, and judged, as the IPv4 address it is; scopes are never kept. */
static void address_settle(const struct sockaddr_storage *in, uint16_t port,
                           struct sockaddr_storage *ret)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)}, from6;
    struct sockaddr_in from4;
    memset(ret, 0, sizeof *ret);
    memcpy(&from4, in, sizeof from4);
    memcpy(&from6, in, sizeof from6);
    if (in->ss_family == AF_INET6 && !IN6_IS_ADDR_V4MAPPED(&from6.sin6_addr)) {
        v6.sin6_addr = from6.sin6_addr;
        memcpy(ret, &v6, sizeof v6);
        return;
    }
    v4.sin_addr = from4.sin_addr;
    if (in->ss_family == AF_INET6)
        memcpy(&v4.sin_addr, from6.sin6_addr.s6_addr + 12, 4);
    memcpy(ret, &v4, sizeof v4);
}

/* A kernel that does not answer is taken for "own". */
static bool is_own(const struct dial *d, const struct sockaddr_storage *sa)
{
    static const uint8_t NAT64[12] = {0x00, 0x64, 0xff, 0x9b}; /* 64:ff9b::/96, RFC 6052 */
    struct sockaddr_in6 v6;
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    if (route_is_own(d->deps.route_fd, (const struct sockaddr *)sa) != 0)
        return true;
    memcpy(&v6, sa, sizeof v6);
    if (sa->ss_family != AF_INET6 || memcmp(&v6.sin6_addr, NAT64, sizeof NAT64) != 0)
        return false;
    /* A translator would lead it back here. */
    memcpy(&v4.sin_addr, v6.sin6_addr.s6_addr + 12, 4);
    return route_is_own(d->deps.route_fd, (const struct sockaddr *)&v4) != 0;
}

static enum addr_class address_judge(const struct dial *d, const struct sockaddr_storage *sa)
{
    enum addr_class class = addr_class((const struct sockaddr *)sa);
    if (d->deps.is_proxy && class != ADDR_UNSPECIFIED && class != ADDR_MULTICAST)
        return ADDR_PUBLIC;
    if (class != ADDR_PUBLIC && class != ADDR_PRIVATE)
        return class;
    if (is_own(d, sa))
        return ADDR_OWN;
    return class == ADDR_PRIVATE && d->allow_private ? ADDR_PUBLIC : class;
}

static void address_add(struct dial *d, int family, const struct sockaddr_storage *found)
{
    struct sockaddr_storage sa;
    address_settle(found, d->port, &sa);
    enum addr_class class = address_judge(d, &sa);
    if (class == ADDR_PUBLIC) {
        d->found[family][d->n_found[family]++] = sa;
        return;
    }
    address_put(d, &sa);
    d->result.outcome = EG_ADDRESS_CLASS;
    snprintf(d->result.detail, sizeof d->result.detail, "%.90s resolves to %s address %.60s",
             d->host,
             class == ADDR_PRIVATE   ? "a private"
             : class == ADDR_OWN     ? "this host's own"
             : class == ADDR_UNKNOWN ? "an unknown"
                                     : addr_class_name(class),
             d->result.address);
}

/* ---- Trying --------------------------------------------------------------------------------- */

static void dial_step(struct dial *d);

static void attempt_failed(struct dial *d, const struct sockaddr_storage *sa, int error)
{
    if (sa != NULL)
        address_put(d, sa);
    d->result.error = error;
    d->result.outcome = error == ETIMEDOUT ? EG_TIMED_OUT : EG_CONNECT_FAILED;
    snprintf(d->result.detail, sizeof d->result.detail, "%.60s: %.100s", d->result.address,
             strerror(error));
}

static void attempt_ready(void *arg, struct peer *p, int events)
{
    struct dial *d = arg;
    struct sockaddr_storage sa = {0};
    int error = 0;
    socklen_t n = sizeof error, n_sa = sizeof sa;
    (void)events;
    if (getsockopt(p->fd, SOL_SOCKET, SO_ERROR, &error, &n) < 0)
        error = errno;
    if (error == 0 && getpeername(p->fd, (struct sockaddr *)&sa, &n_sa) < 0)
        error = errno;
    if (error == 0) {
        address_put(d, &sa);
        int fd = fcntl(p->fd, F_DUPFD_CLOEXEC, 0);
        dial_ends(d, fd >= 0 ? EG_OPENED : EG_FAILED, fd);
        return;
    }
    for (size_t i = 0; i < d->n_attempts; i++)
        if (d->attempts[i] == p)
            d->attempts[i] = NULL;
    peer_close(p, false);
    d->n_running--;
    attempt_failed(d, NULL, error);
    deadline_clear(&d->next); /* the next one's turn is now */
    dial_step(d);
}

/* 0 when an attempt is under way. */
static int attempt_start(struct dial *d, const struct sockaddr_storage *sa)
{
    struct peer *p;
    int on = 1;
    int fd = socket(sa->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
    if (fd < 0)
        return -errno;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    socklen_t n =
        sa->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    if (connect(fd, (const struct sockaddr *)sa, n) < 0 && errno != EINPROGRESS) {
        int r = -errno;
        fd_close(fd);
        return r;
    }
    int r = peer_new(d->deps.loop, fd, attempt_ready, d, &p);
    if (r < 0)
        return r;
    d->attempts[d->n_attempts++] = p;
    d->n_running++;
    peer_want(p, UV_WRITABLE);
    return 0;
}

/* The next address to try, families in turn; NULL when none is left. */
static const struct sockaddr_storage *address_next(struct dial *d)
{
    for (int i = 0; i < 2; i++) {
        int family = (d->turn + i) % 2;
        if (d->n_tried[family] == d->n_found[family])
            continue;
        d->turn = 1 - family;
        return &d->found[family][d->n_tried[family]++];
    }
    return NULL;
}

static void whole_passed(struct deadline *deadline)
{
    struct dial *d = container_of(deadline, struct dial, whole);
    if (d->n_looking == 2 || (d->n_looking > 0 && d->n_attempts == 0))
        snprintf(d->result.detail, sizeof d->result.detail, "the name server did not answer");
    else
        snprintf(d->result.detail, sizeof d->result.detail, "no connection within %u ms",
                 (unsigned)d->deps.dial_ms);
    dial_ends(d, EG_TIMED_OUT, -1);
}

static void next_passed(struct deadline *deadline)
{
    dial_step(container_of(deadline, struct dial, next));
}

/* Nothing runs and nothing is left to try. */
static void dial_exhausted(struct dial *d)
{
    if (d->n_attempts == 0 && d->result.outcome == EG_FAILED) {
        snprintf(d->result.detail, sizeof d->result.detail, "%s",
                 d->lookup_why != NULL ? d->lookup_why : "no address");
        d->result.outcome = EG_RESOLVE_FAILED;
    }
    dial_ends(d, d->result.outcome, -1);
}

static void dial_step(struct dial *d)
{
    const struct sockaddr_storage *sa;
    while ((sa = address_next(d)) != NULL) {
        int r = attempt_start(d, sa);
        if (r == 0) {
            deadline_set(&d->next, ATTEMPT_MS);
            return;
        }
        attempt_failed(d, sa, -r);
    }
    if (d->n_running == 0 && d->n_looking == 0)
        dial_exhausted(d);
}

static void looked_up(void *arg, int family, enum lookup_end end, const char *why,
                      const struct sockaddr_storage *addresses, size_t n)
{
    struct dial *d = arg;
    int at = family == AF_INET6 ? V6 : V4;
    d->lookups[at] = NULL;
    d->n_looking--;
    if (end != LOOKUP_FOUND && (d->lookup_why == NULL || end == LOOKUP_FAILED))
        d->lookup_why = why;
    for (size_t i = 0; i < n; i++)
        address_add(d, at, &addresses[i]);
    if (!d->started) /* within dial_start */
        return;
    if (d->n_looking == 0 || d->n_attempts > 0) {
        if (!uv_is_active((uv_handle_t *)&d->next.timer) || d->n_attempts == 0)
            dial_step(d);
    } else if (d->n_found[at] > 0) {
        deadline_set(&d->next, OTHER_WAIT_MS);
    }
}

/* A service of this host that a person opened: the one thing no class stands against. */
static void loopback_add(struct dial *d)
{
    const struct sockaddr_in v4 = {.sin_family = AF_INET,
                                   .sin_port = htons(d->port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct sockaddr_in6 v6 = {
        .sin6_family = AF_INET6, .sin6_port = htons(d->port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    memcpy(&d->found[V4][d->n_found[V4]++], &v4, sizeof v4);
    memcpy(&d->found[V6][d->n_found[V6]++], &v6, sizeof v6);
    d->turn = V4;
}

static bool literal_add(struct dial *d)
{
    struct sockaddr_storage sa = {0};
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, d->host, &v4.sin_addr) == 1)
        memcpy(&sa, &v4, sizeof v4);
    else if (inet_pton(AF_INET6, d->host, &v6.sin6_addr) == 1)
        memcpy(&sa, &v6, sizeof v6);
    else
        return false;
    address_add(d, sa.ss_family == AF_INET6 ? V6 : V4, &sa);
    return true;
}

bool dial_is_refused(const struct dial_deps *deps, const char *host, uint16_t port,
                     bool allow_private, struct dialled *ret)
{
    struct dial d = {.deps = *deps, .port = port, .allow_private = allow_private};
    snprintf(d.host, sizeof d.host, "%s", host);
    if (!literal_add(&d) || d.n_found[V4] + d.n_found[V6] > 0)
        return false;
    *ret = d.result;
    ret->fd = -1;
    return true;
}

int dial_new(const struct dial_deps *deps, const char *host, uint16_t port, bool allow_private,
             dialled_fn *fn, void *arg, struct dial **ret)
{
    struct dial *d = calloc(1, sizeof *d);
    if (d == NULL)
        return -ENOMEM;
    closing_init(&d->closing, dial_freed);
    deadline_init(deps->loop, &d->whole, &d->closing, whole_passed);
    deadline_init(deps->loop, &d->next, &d->closing, next_passed);
    d->deps = *deps;
    d->fn = fn;
    d->arg = arg;
    d->port = port;
    d->allow_private = allow_private;
    d->result.fd = -1;
    snprintf(d->host, sizeof d->host, "%s", host);
    *ret = d;
    return 0;
}

void dial_start(struct dial *d)
{
    deadline_set(&d->whole, d->deps.dial_ms);
    if (d->deps.loopback && strcmp(d->host, "localhost") == 0) {
        loopback_add(d);
    } else if (!literal_add(d)) {
        static const int FAMILIES[] = {[V6] = AF_INET6, [V4] = AF_INET};
        for (int i = 0; i < 2; i++) {
            d->n_looking++;
            if (lookup_start(d->deps.resolver, d->host, FAMILIES[i], looked_up, d, &d->lookups[i]) <
                0) {
                d->n_looking--;
                d->lookup_why = "out of memory";
            }
        }
    }
    d->started = true;
    if (d->n_looking == 0)
        dial_step(d);
    else if (d->n_found[V4] + d->n_found[V6] > 0)
        deadline_set(&d->next, OTHER_WAIT_MS);
}
