/* One client connection of the egress as a whole (conn, its doors, exchange, tunnel, hello, via),
 * with a hostile client and a hostile server. The input is a list of steps:
 *
 *   00..7f  that many bytes and one more from the client     80..bf  the same from the server
 *   c0      the client ends its side    c1  the server does    c2, c3  they close
 *
 * The daemon allows hosts that begin with 'o' and, through a proxy, 'v'; 'p' is the proof's name;
 * those with 'h' are held first, and "ho" is allowed then; all others are refused. What it is told
 * must hold together: one result for what was allowed, one end for what was opened, never anything
 * of what was refused; nothing is dialled that was not allowed. */
#include "base/fd.h"
#include "base/mem.h"
#include "egress/conn_parts.h"
#include "egress/names.h"
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- What stands in for the rest of the egress ----------------------------------------------- */

enum told { NOTHING = 0, ASKED, HELD, ALLOWED, OPENED, OVER };

static struct egress eg;
static struct conn *conn; /* the only one */
static int server = -1;   /* the far end of what was dialled last */
static struct dial {
    struct closing closing;
    uv_idle_t idle;
    dialled_fn *fn;
    void *arg;
} * dialling;

static struct asked {
    uint32_t request;
    enum told told;
    char host[HOST_MAX];
    bool is_name;
} asked[64];
static size_t n_asked;

int egress_conn_add(struct egress *e, struct conn *c, uint32_t *ret_id)
{
    conn = c;
    e->n_conns++;
    *ret_id = 7;
    return 0;
}

void egress_conn_remove(struct egress *e, uint32_t id)
{
    assert(id == 7 && e->n_conns == 1);
    e->n_conns--;
    conn = NULL;
}

static struct asked *asked_find(uint32_t request)
{
    for (size_t i = 0; i < n_asked; i++)
        if (asked[i].request == request)
            return &asked[i];
    return NULL;
}

static void told_check(struct unpack *u, uint32_t request)
{
    size_t n;
    assert(n_asked < ARRAY_LEN(asked) && asked_find(request) == NULL);
    struct asked *a = &asked[n_asked++];
    *a = (struct asked){.request = request, .told = ASKED};
    a->is_name = unpack_u8(u) == EG_DOOR_TLS_NAME;
    const uint8_t *host = unpack_bytes(u, HOST_MAX - 1, &n);
    memcpy(a->host, host, n);
    assert(a->is_name == ((request & EG_NAME_REQUEST) != 0));
    assert(host_canonical(a->host, n, false, a->host) != HOST_BAD);
}

/* As the daemon would: nonsense is the end of the egress. */
void link_send(struct link *l, enum msg_kind kind, struct pack *take_p)
{
    struct unpack u = unpack_from(take_p->out.data, take_p->out.len);
    uint32_t id = unpack_u32(&u), request = kind == M_EG_REFUSED ? 0 : unpack_u32(&u);
    struct asked *a = asked_find(request);
    (void)l;
    assert(take_p->r == 0 && id == 7);
    if (kind == M_EG_CHECK) {
        told_check(&u, request);
    } else if (kind == M_EG_RESULT) {
        assert(a != NULL && a->told == ALLOWED && !a->is_name);
        a->told = unpack_u8(&u) == EG_OPENED && a->host[0] != 'p' ? OPENED : OVER;
    } else if (kind == M_EG_CLOSED) {
        assert(a != NULL && (a->told == OPENED || a->told == HELD) && !a->is_name);
        a->told = OVER;
    } else {
        assert(kind == M_EG_REFUSED);
    }
    pack_done(take_p);
}

static void dial_freed(struct closing *closing)
{
    free(container_of(closing, struct dial, closing));
}

bool dial_is_refused(const struct dial_deps *deps, const char *host, uint16_t port,
                     bool allow_private, struct dialled *ret)
{
    (void)deps, (void)port, (void)allow_private;
    *ret = (struct dialled){.outcome = EG_ADDRESS_CLASS, .fd = -1};
    return host[0] == 'v' && host[1] == 'x';
}

int dial_new(const struct dial_deps *deps, const char *host, uint16_t port, bool allow_private,
             dialled_fn *fn, void *arg, struct dial **ret)
{
    (void)port, (void)allow_private;
    assert(host[0] == 'o' || strcmp(host, "proxy") == 0 || (host[0] == 'h' && host[1] == 'o'));
    struct dial *d = calloc(1, sizeof *d);
    closing_init(&d->closing, dial_freed);
    uv_idle_init(deps->loop, &d->idle);
    closing_add(&d->closing, (uv_handle_t *)&d->idle);
    d->fn = fn;
    d->arg = arg;
    *ret = d;
    return 0;
}

static void dial_ends(uv_idle_t *idle)
{
    struct dial *d = container_of(idle, struct dial, idle);
    struct dialled result = {.outcome = EG_OPENED, .address = "203.0.113.1:1"};
    int pair[2];
    uv_idle_stop(idle);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0)
        return;
    if (server >= 0)
        close(server);
    server = pair[1];
    result.fd = pair[0];
    dialling = NULL;
    dialled_fn *fn = d->fn;
    void *arg = d->arg;
    closing_start(&d->closing);
    fn(arg, &result);
}

void dial_start(struct dial *d)
{
    dialling = d;
    uv_idle_start(&d->idle, dial_ends);
}

void dial_cancel(struct dial *d)
{
    if (d == NULL)
        return;
    dialling = NULL;
    closing_start(&d->closing);
}

/* ---- The run --------------------------------------------------------------------------------- */

static void waste(int fd)
{
    char bytes[65536];
    while (fd >= 0 && recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;
}

static uint8_t verdict_of(const struct asked *a)
{
    if (a->host[0] == 'h' && a->told == ASKED && !a->is_name)
        return EG_HOLD;
    if (a->host[0] == 'o' || a->host[0] == 'v' || (a->host[0] == 'h' && a->host[1] == 'o'))
        return EG_ALLOW;
    return a->host[0] == 'p' ? EG_ANSWER_SELF : EG_DENY;
}

/* What is held is answered a step later, so that the client may leave meanwhile. */
static void verdicts_give(bool answers)
{
    for (size_t i = 0; i < n_asked; i++) {
        struct asked *a = &asked[i];
        if (a->told != ASKED && (a->told != HELD || !answers))
            continue;
        bool through = a->host[0] == 'v';
        struct verdict_in v = {.verdict = verdict_of(a),
                               .reason = "not_listed",
                               .rule = "none",
                               .hint = "",
                               .via = through ? "proxy:3128" : "",
                               .authorization = through ? "Basic eDp5" : ""};
        a->told = v.verdict == EG_DENY || a->is_name ? OVER : v.verdict == EG_HOLD ? HELD : ALLOWED;
        if ((conn == NULL || !conn_verdict(conn, a->request, &v)) && a->told != OVER)
            a->told = OVER; /* the egress tells of it by itself */
    }
}

static void run(int client)
{
    for (int i = 0; i < 6; i++) {
        (void)uv_run(eg.loop, UV_RUN_NOWAIT);
        verdicts_give(i == 0);
        waste(client);
        waste(server);
    }
}

static void say(int fd, const uint8_t *bytes, size_t n)
{
    if (fd >= 0)
        (void)!send(fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void shut(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void steps(int *client, const uint8_t *data, size_t size)
{
    for (size_t at = 0; at < size;) {
        uint8_t op = data[at++];
        size_t n = (size_t)(op & 0x7f) + 1;
        if (op >= 0x80)
            n = (size_t)(op & 0x3f) + 1;
        if (n > size - at)
            n = size - at;
        if (op < 0xc0) {
            say(op < 0x80 ? *client : server, data + at, n);
            at += n;
        } else if (op == 0xc0 && *client >= 0) {
            (void)shutdown(*client, SHUT_WR);
        } else if (op == 0xc1 && server >= 0) {
            (void)shutdown(server, SHUT_WR);
        } else if (op == 0xc2) {
            shut(client);
        } else if (op == 0xc3) {
            shut(&server);
        }
        run(*client);
    }
}

static int start(void)
{
    static uv_loop_t loop;
    eg.loop = &loop;
    eg.start.head_max = 4096;
    eg.start.dial_ms = 10000;
    eg.start.own_ports[0] = 7411;
    static char memory[NAMES_BYTES];
    int r = uv_loop_init(&loop);
    if (r == 0)
        r = names_new(1, memory, &eg.names);
    return r == 0 ? pool_new(&loop, &eg.pool) : r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool is_started;
    int pair[2];
    if (size == 0)
        return 0;
    if (!is_started && start() < 0)
        return -1;
    is_started = true;
    n_asked = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    conn_accept(&eg, pair[0], data[0] == 0xff, EG_DOOR_HTTP, 0);
    steps(&pair[1], data, size);
    shut(&pair[1]);
    run(-1);
    if (conn != NULL)
        conn_cut(conn);
    run(-1);
    shut(&server);
    run(-1);
    assert(conn == NULL && dialling == NULL && eg.n_conns == 0);
    for (size_t i = 0; i < n_asked; i++)
        assert(asked[i].told == OVER);
    return 0;
}
