/* Runs in: egress. Reads: trusted (the daemon); the doors' connections go to egress/conn unread.
 * May block: no. */
#include "egress/egress.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "egress/conn.h"
#include "egress/listen.h"
#include "egress/lockdown.h"
#include "egress/names.h"
#include "egress/nameserver.h"
#include "egress/route.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define ACCEPTS_A_TURN 16
#define REST_MS        50 /* how long accepting waits when there is no descriptor or no reader */
#define TEXT_MAX       4096

/* ---- Connections by their id ---------------------------------------------------------------- */

struct slot {
    uint32_t id; /* of the one that is there, or was; an old id finds nobody new */
    struct conn *conn;
};

static struct slot *slot_unused(struct egress *eg)
{
    size_t n = eg->n_slots;
    for (size_t i = 0; i < n; i++)
        if (eg->slots[(eg->turn + i) % n].conn == NULL)
            return &eg->slots[(eg->turn + i) % n];
    if (n == EGRESS_SLOTS)
        return NULL;
    n = n > 0 ? n * 2 : 16;
    struct slot *more = realloc(eg->slots, n * sizeof *more);
    if (more == NULL)
        return NULL;
    for (size_t i = eg->n_slots; i < n; i++)
        more[i] = (struct slot){.id = (uint32_t)i};
    eg->slots = more;
    eg->n_slots = n;
    return &more[n / 2];
}

int egress_conn_add(struct egress *eg, struct conn *c, uint32_t *ret_id)
{
    struct slot *slot = slot_unused(eg);
    if (slot == NULL)
        return -ENOSPC;
    eg->turn++;
    slot->conn = c;
    slot->id += EGRESS_SLOTS; /* the slot's number stays in the lower bits */
    eg->n_conns++;
    *ret_id = slot->id;
    return 0;
}

static struct slot *slot_find(struct egress *eg, uint32_t id)
{
    size_t at = id % EGRESS_SLOTS;
    return at < eg->n_slots && eg->slots[at].id == id && eg->slots[at].conn != NULL ? &eg->slots[at]
                                                                                    : NULL;
}

void egress_conn_remove(struct egress *eg, uint32_t id)
{
    struct slot *slot = slot_find(eg, id);
    if (slot == NULL)
        return;
    slot->conn = NULL;
    eg->n_conns--;
}

/* ---- The doors ------------------------------------------------------------------------------ */

static void doors_want(struct egress *eg, int events)
{
    for (size_t i = 0; i < eg->n_doors; i++)
        peer_want(eg->doors[i], events);
    listen_want(eg, events);
}

/* Connections wait in the kernel meanwhile. */
static void doors_rest(struct egress *eg)
{
    doors_want(eg, 0);
    deadline_set(&eg->rest, REST_MS);
}

static void rest_passed(struct deadline *d)
{
    struct egress *eg = container_of(d, struct egress, rest);
    if (link_is_busy(&eg->link))
        doors_rest(eg);
    else
        doors_want(eg, UV_READABLE);
}

void egress_accept(struct egress *eg, int listening, enum eg_door door, uint16_t port)
{
    for (int i = 0; i < ACCEPTS_A_TURN; i++) {
        size_t most = (size_t)eg->start.connections_max;
        if (link_is_busy(&eg->link) || eg->n_conns >= most + EGRESS_SLACK) {
            doors_rest(eg);
            return;
        }
        int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
            doors_rest(eg);
            return;
        }
        if (fd < 0 && (errno == EAGAIN || errno == EINVAL))
            return;
        if (fd >= 0)
            conn_accept(eg, fd, eg->n_conns >= most, door, port);
    }
}

static void door_ready(void *arg, struct peer *p, int events)
{
    (void)events;
    egress_accept(arg, p->fd, EG_DOOR_CONNECT, 0); /* or what its first bytes say */
}

/* ---- The daemon ----------------------------------------------------------------------------- */

static void tell_ready(struct egress *eg, const char *failure)
{
    struct pack p = {0};
    pack_str(&p, failure);
    link_send(&eg->link, M_EG_READY, &p);
}

/* A process that is not locked down as ordered does not serve. */
_Noreturn static void start_failed(struct egress *eg, const char *what, int r)
{
    char text[160];
    snprintf(text, sizeof text, "cordon-egress: %s: %s", what, strerror(-r));
    tell_ready(eg, text);
    link_lost(text);
}

/* Takes FD; without one (-1) the names last as long as this process. */
static int names_take(struct egress *eg, int take_fd)
{
    CLEANUP(fd_done) int fd = take_fd;
    uint64_t seed = 0;
    struct stat st;
    if (fd >= 0 && (fstat(fd, &st) < 0 || (size_t)st.st_size < NAMES_BYTES))
        return -EBADMSG;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed)
        return -EIO;
    void *memory = mmap(NULL, NAMES_BYTES, PROT_READ | PROT_WRITE,
                        fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
    return memory == MAP_FAILED ? -errno : names_new(seed, memory, &eg->names);
}

/* One that listens is a door, one of UDP the name server's. */
static int door_take(struct egress *eg, int take_fd)
{
    int type = 0, family = 0;
    socklen_t n = sizeof type;
    if (getsockopt(take_fd, SOL_SOCKET, SO_TYPE, &type, &n) < 0 ||
        getsockopt(take_fd, SOL_SOCKET, SO_DOMAIN, &family, &n) < 0) {
        int r = -errno;
        fd_close(take_fd);
        return r;
    }
    if (type == SOCK_DGRAM && eg->nameserver == NULL)
        return nameserver_new(eg, take_fd, &eg->nameserver);
    eg->has_ipv6 |= family == AF_INET6;
    int r = peer_new(eg->loop, take_fd, door_ready, eg, &eg->doors[eg->n_doors]);
    eg->n_doors += r == 0;
    return r;
}

static int got_start(struct egress *eg, struct unpack *u, const int *take_fds, size_t n)
{
    const char *what = "";
    if (eg->is_started || n == 0 || n > EGRESS_DOORS_MAX || egress_start_get(u, &eg->start) < 0)
        return -EBADMSG;
    eg->is_started = true;
    int r = eg->names == NULL ? names_take(eg, -1) : 0;
    if (r < 0)
        start_failed(eg, "no memory for names", r);
    for (size_t i = 0; i < n; i++) {
        r = door_take(eg, take_fds[i]);
        if (r < 0)
            start_failed(eg, "a door cannot be used", r);
    }
    r = lockdown_apply(&eg->start.rules, &what);
    if (r < 0)
        start_failed(eg, what, r);
    rules_done(&eg->start.rules);
    tell_ready(eg, "");
    doors_want(eg, UV_READABLE);
    if (eg->nameserver != NULL)
        peer_want(eg->nameserver, UV_READABLE);
    return 0;
}

/* Allowed, or held, for one that is gone by now: the daemon waits for its end all the same. */
static void verdict_orphaned(struct egress *eg, uint32_t id, uint32_t request, uint8_t verdict)
{
    struct pack p = {0};
    if (verdict == EG_DENY || (request & EG_NAME_REQUEST) != 0)
        return;
    pack_u32(&p, id);
    pack_u32(&p, request);
    if (verdict == EG_HOLD) {
        pack_u64(&p, 0);
        pack_u64(&p, 0);
        pack_u8(&p, 0);
        link_send(&eg->link, M_EG_CLOSED, &p);
        return;
    }
    pack_u8(&p, EG_FAILED);
    pack_str(&p, "");
    pack_str(&p, "the client went away");
    link_send(&eg->link, M_EG_RESULT, &p);
}

static int got_verdict(struct egress *eg, struct unpack *u)
{
    struct verdict_in v;
    uint32_t id = unpack_u32(u), request = unpack_u32(u);
    v.verdict = unpack_u8(u);
    v.flags = unpack_u8(u);
    CLEANUP(freep) char *reason = unpack_str(u, TEXT_MAX);
    CLEANUP(freep) char *rule = unpack_str(u, TEXT_MAX);
    CLEANUP(freep) char *hint = unpack_str(u, TEXT_MAX);
    CLEANUP(freep) char *via = unpack_str(u, TEXT_MAX);
    CLEANUP(freep) char *authorization = unpack_str(u, TEXT_MAX);
    if (unpack_end(u) < 0 || reason == NULL || rule == NULL || hint == NULL || via == NULL ||
        authorization == NULL)
        return -EBADMSG;
    v.reason = reason;
    v.rule = rule;
    v.hint = hint;
    v.via = via;
    v.authorization = authorization;
    struct slot *slot = slot_find(eg, id);
    if (slot == NULL || !conn_verdict(slot->conn, request, &v))
        verdict_orphaned(eg, id, request, v.verdict);
    return 0;
}

static int got_cut(struct egress *eg, struct unpack *u)
{
    uint32_t id = unpack_u32(u);
    if (unpack_end(u) < 0)
        return -EBADMSG;
    struct slot *slot = slot_find(eg, id);
    if (slot != NULL)
        conn_cut(slot->conn);
    return 0;
}

static int got_listen(struct egress *eg, struct unpack *u, const int *take_fds, size_t n)
{
    uint8_t door = unpack_u8(u);
    uint16_t port = unpack_u16(u);
    if (unpack_end(u) < 0 || (door != EG_DOOR_LOCAL && door != EG_DOOR_PUBLISH) || port == 0)
        return -EBADMSG;
    if (n == 0)
        listen_drop(eg, (enum eg_door)door, port);
    else if (listen_add(eg, (enum eg_door)door, port, take_fds[0]) < 0)
        log_warn("egress.listen", "port=%u not accepted on", port);
    return 0;
}

static int got_socket(struct egress *eg, struct unpack *u, const int *take_fds)
{
    uint32_t id = unpack_u32(u), request = unpack_u32(u);
    if (unpack_end(u) < 0)
        return -EBADMSG;
    struct slot *slot = slot_find(eg, id);
    if (slot == NULL)
        fd_close(take_fds[0]);
    if (slot == NULL || !conn_given(slot->conn, request, take_fds[0]))
        verdict_orphaned(eg, id, request, EG_ALLOW);
    return 0;
}

static void resolver_stale(void *arg, enum eg_file file)
{
    struct egress *eg = arg;
    struct pack p = {0};
    pack_u8(&p, (uint8_t)file);
    link_send(&eg->link, M_EG_STALE, &p);
}

static int got_file(struct egress *eg, struct unpack *u, const int *take_fds)
{
    uint8_t file = unpack_u8(u), is_readable = unpack_u8(u);
    if (unpack_end(u) < 0 || file >= EG_FILES || is_readable > 1)
        return -EBADMSG;
    resolver_file(eg->resolver, (enum eg_file)file, take_fds[0], is_readable);
    return 0;
}

static int got_frame(struct link *l, const struct frame *f, const int *take_fds, size_t n)
{
    struct egress *eg = container_of(l, struct egress, link);
    struct unpack u = unpack_from(f->payload, f->len);
    if (f->kind == M_EG_START)
        return got_start(eg, &u, take_fds, n);
    if (f->kind == M_EG_NAMES)
        return eg->is_started || eg->names != NULL ? -EBADMSG : names_take(eg, take_fds[0]);
    if (!eg->is_started)
        return -EBADMSG;
    if (f->kind == M_EG_VERDICT)
        return got_verdict(eg, &u);
    if (f->kind == M_EG_FILE)
        return got_file(eg, &u, take_fds);
    if (f->kind == M_EG_LISTEN || f->kind == M_EG_UNLISTEN)
        return got_listen(eg, &u, take_fds, n);
    if (f->kind == M_EG_SOCKET)
        return got_socket(eg, &u, take_fds);
    return f->kind == M_EG_CUT ? got_cut(eg, &u) : -EBADMSG;
}

static void egress_freed(struct closing *closing)
{
    (void)closing; /* lives as long as the process */
}

int egress_init(struct egress *eg, uv_loop_t *loop, int take_channel)
{
    memset(eg, 0, sizeof *eg);
    eg->loop = loop;
    closing_init(&eg->closing, egress_freed);
    deadline_init(loop, &eg->rest, &eg->closing, rest_passed);
    eg->route_fd = route_open();
    int r = eg->route_fd < 0 ? eg->route_fd : resolver_new(loop, resolver_stale, eg, &eg->resolver);
    if (r == 0)
        r = pool_new(loop, &eg->pool);
    return r < 0 ? r : link_open(&eg->link, loop, take_channel, got_frame);
}
