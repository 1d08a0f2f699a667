/* Runs in: daemon. Reads: hostile (frames of cordon-egress, which reads the world). May block: no.
 *
 * One cordon-egress: started, given its doors, heard, ended. What it asks is answered in
 * egress_requests.c. */
#include "base/log.h"
#include "base/stop.h"
#include "session/egress_parts.h"
#include "wire/egress.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define FILE_MAX ((size_t)4 << 20) /* hosts files with long lists of unwanted sites exist */

static const uint8_t KINDS[] = {M_EG_READY, M_EG_CHECK, M_EG_RESULT, M_EG_CLOSED, M_EG_REFUSED,
                                M_EG_STALE, 0};

static void link_free(struct closing *closing)
{
    struct egress_link *l = container_of(closing, struct egress_link, closing);
    void (*closed)(void *arg) = l->closed;
    void *arg = l->closed_arg;
    requests_drop(l);
    child_done(&l->child);
    logpipe_done(&l->said);
    channel_done(&l->ch);
    free(l);
    if (closed)
        closed(arg);
}

static void way_out_is(struct egress_link *l, enum way_out state, const char *why)
{
    struct session *s = l->s;
    struct generation *g = l->g;
    if (l->is_closing || g->way_out == WAY_DEAD)
        return;
    g->way_out = state;
    if (why && *why) {
        free(g->way_out_why);
        g->way_out_why = strdup(why);
    }
    if (state == WAY_DEAD) {
        log_warn("egress.dead", "session=%s why=%s", s->id, why ? why : "");
        channel_stop(&l->ch);
        child_kill(&l->child, SIGKILL);
        requests_lost(l);
    }
    if (g->state == GEN_PROVED)
        state == WAY_DEAD ? way_out_lost(g) : way_out_back(g);
    if (state == WAY_READY)
        session_ports_follow(s);
    generation_step(g);
}

/* Its lock-down is of the files as they were: what is there by that name now is read here. */
static int take_stale(struct egress_link *l, struct unpack *u)
{
    static const char *const PATHS[EG_FILES] = {
        [EG_FILE_RESOLV] = "/etc/resolv.conf", [EG_FILE_HOSTS] = "/etc/hosts"};
    CLEANUP(freep) char *bytes = NULL;
    CLEANUP(pack_done) struct pack p = {0};
    size_t n = 0;
    uint8_t file = unpack_u8(u);
    if (unpack_end(u) < 0 || file >= EG_FILES)
        return -EBADMSG;
    int r = fd_read_file(AT_FDCWD, PATHS[file], FILE_MAX, &bytes, &n);
    CLEANUP(fd_done) int fd = fd_memfd("file", r < 0 ? "" : bytes, n);
    if (fd < 0)
        return fd;
    log_info("egress.config", "session=%s file=%s changed=%s", l->s->id, PATHS[file],
             r < 0 ? strerror(-r) : "taken over");
    pack_u8(&p, file);
    pack_u8(&p, r >= 0);
    return channel_send(&l->ch, M_EG_FILE, &p, &fd, 1);
}

static int take_ready(struct egress_link *l, struct unpack *u)
{
    CLEANUP(freep) char *failure = unpack_str(u, 1024);
    int r = unpack_end(u);
    if (r < 0 || !failure)
        return r < 0 ? r : -ENOMEM;
    if (l->is_ready)
        return -EBADMSG;
    l->is_ready = true;
    way_out_is(l, *failure ? WAY_DEAD : WAY_READY, failure);
    return 0;
}

static int link_got(struct channel *ch, const struct frame *f)
{
    struct egress_link *l = container_of(ch, struct egress_link, ch);
    struct unpack u = unpack_from(f->payload, f->len);
    if (f->kind == M_EG_READY)
        return take_ready(l, &u);
    if (!l->is_ready)
        return -EBADMSG;
    if (f->kind == M_EG_CHECK)
        return take_check(l, &u);
    if (f->kind == M_EG_RESULT)
        return take_result(l, &u);
    if (f->kind == M_EG_CLOSED)
        return take_closed(l, &u);
    if (f->kind == M_EG_STALE)
        return take_stale(l, &u);
    return take_refused(l, &u);
}

static void link_ended(struct channel *ch, int r)
{
    struct egress_link *l = container_of(ch, struct egress_link, ch);
    way_out_is(l, WAY_DEAD, r == -EBADMSG ? "the egress sent nonsense" : "the egress ended");
}

/* ---- Its life ---------------------------------------------------------------------------------
 */

static void start_closing(struct egress_link *l)
{
    channel_stop(&l->ch);
    closing_start(&l->closing);
}

static void child_exited(struct child *c, int status)
{
    struct egress_link *l = container_of(c, struct egress_link, child);
    (void)status;
    logpipe_read(&l->said); /* its last words */
    if (l->is_closing)
        start_closing(l);
    else
        way_out_is(l, WAY_DEAD, "the egress ended");
}

static int spawn_it(struct egress_link *l, int child_end)
{
    const struct machine *m = l->s->ss->deps.machine;
    char *argv[] = {m->egress, NULL};
    char *envp[] = {NULL};
    CLEANUP(fd_done) int said = -1;
    int r =
        logpipe_open(&l->said, l->s->ss->deps.loop, &l->closing, "egress.said", l->s->id, &said);
    if (r < 0)
        return r;
    int fds[] = {-1, -1, said, child_end};
    struct spawn sp = {
        .file = m->egress, .argv = argv, .envp = envp, .fds = fds, .n_fds = ARRAY_LEN(fds)};
    pid_t pid = fd_spawn(&sp);
    if (pid < 0)
        return (int)pid;
    return child_watch(l->s->ss->deps.loop, &l->child, &l->closing, pid, child_exited);
}

int egress_link_new(struct generation *g, struct egress_link **ret, struct err *err)
{
    int pair[2] = {-1, -1};
    struct session *s = g->s;
    struct egress_link *l = calloc(1, sizeof *l);
    if (!l)
        return err_set(err, -ENOMEM, "session_refused", NULL, "out of memory");
    closing_init(&l->closing, link_free);
    channel_init(&l->ch);
    child_init(&l->child);
    logpipe_init(&l->said);
    l->s = s;
    l->g = g;
    int r = fd_pair(pair);
    if (r == 0) {
        r = spawn_it(l, pair[1]);
        fd_close(pair[1]);
        if (r == 0)
            r = channel_open(&l->ch, s->ss->deps.loop, &l->closing, pair[0], KINDS, link_got,
                             link_ended);
        else
            fd_close(pair[0]);
    }
    if (r < 0) {
        l->is_closing = true;
        closing_start(&l->closing);
        return err_set(err, r, "session_refused",
                       "are Cordon's programs where they were installed?",
                       "cordon-egress could not be started: %s", strerror(-r));
    }
    stop_point("egress-spawned");
    g->way_out = WAY_STARTING;
    g->is_egress_told = false;
    *ret = l;
    return 0;
}

/* What an address inside stands for does not change when an egress dies. */
static int send_names(struct egress_link *l)
{
    if (!wall_has_redirect(l->g->wall))
        return 0;
    int fd = way_out_names(l->g);
    return fd < 0 ? fd : channel_send(&l->ch, M_EG_NAMES, NULL, &fd, 1);
}

int egress_link_doors(struct egress_link *l, const int *doors, size_t n)
{
    const struct sessions_deps *deps = &l->s->ss->deps;
    CLEANUP(pack_done) struct pack p = {0};
    struct egress_start start = {.session = l->s->id,
                                 .door_port = SESSION_DOOR_PORT,
                                 .connections_max = EGRESS_CONNECTIONS,
                                 .head_max = EGRESS_HEAD_BYTES,
                                 .dial_ms = EGRESS_DIAL_MS};
    memcpy(start.own_ports, deps->api_ports, sizeof start.own_ports);
    int r = send_names(l);
    if (r == 0)
        r = provider_egress_rules(deps->machine, &start.rules);
    if (r == 0) {
        egress_start_put(&p, &start);
        r = channel_send(&l->ch, M_EG_START, &p, doors, n);
    }
    rules_done(&start.rules);
    return r;
}

int egress_link_listen(struct egress_link *l, enum eg_door door, uint16_t port, int fd)
{
    CLEANUP(pack_done) struct pack p = {0};
    pack_u8(&p, (uint8_t)door);
    pack_u16(&p, port);
    return channel_send(&l->ch, M_EG_LISTEN, &p, &fd, 1);
}

int egress_link_unlisten(struct egress_link *l, enum eg_door door, uint16_t port)
{
    CLEANUP(pack_done) struct pack p = {0};
    pack_u8(&p, (uint8_t)door);
    pack_u16(&p, port);
    return channel_send(&l->ch, M_EG_UNLISTEN, &p, NULL, 0);
}

void egress_link_close(struct egress_link *l, void (*closed)(void *arg), void *arg)
{
    if (!l || l->is_closing) {
        if (closed)
            closed(arg);
        return;
    }
    l->is_closing = true;
    l->closed = closed;
    l->closed_arg = arg;
    if (l->child.pid > 0)
        child_kill(&l->child, SIGKILL); /* child_exited goes on */
    else
        start_closing(l);
}

pid_t egress_link_pid(const struct egress_link *l)
{
    return l ? l->child.pid : 0;
}
