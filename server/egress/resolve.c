/* Runs in: egress. Reads: hostile (DNS answers, by c-ares). May block: no. */
#include "egress/resolve.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include <ares.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RANDOM_PATH "/dev/urandom" /* where c-ares takes its query ids from */
#define HOSTS_NAME  "CARES_HOSTS"  /* where ARES_AI_ENVHOSTS finds the path of the hosts file */
#define TRY_MS      2000
#define TRIES       3
#define SOCKETS_MAX 16

/* A socket of c-ares, watched; c-ares opens and closes it. */
struct watched_socket {
    struct closing closing;
    uv_poll_t poll;
    struct channel *channel; /* NULL when forgotten */
    int fd, events;
};

/* One c-ares channel; a new one is made when resolv.conf changed, the old one ends its queries. */
struct channel {
    struct closing closing;
    struct deadline timer;
    uv_loop_t *loop;
    ares_channel ares;
    struct watched_socket *sockets[SOCKETS_MAX];
    size_t n_pending;
    struct channel *next;
};

/* A file of the host as it was when last looked at. */
struct watched_file {
    const char *path;
    struct stat seen; /* zeros: it was not there */
    int fd;           /* the daemon's copy of what it held last, or -1 */
    bool is_asked;    /* the daemon has not told yet */
};

struct resolver {
    uv_loop_t *loop;
    struct channel *channels; /* the first is the present one */
    struct watched_file files[EG_FILES];
    struct lookup *waiting; /* for the daemon to tell what changed */
    stale_fn *stale;
    void *arg;
};

struct lookup {
    struct channel *channel; /* NULL while it waits */
    lookup_fn *fn;           /* NULL once nobody waits for it */
    void *arg;
    int family;
    bool starting, ended; /* not to be freed yet; ended meanwhile */
    struct lookup *next;  /* of those that wait */
    char name[HOST_MAX];  /* of those too */
};

/* ---- A channel on the loop ------------------------------------------------------------------ */

static void timer_follow(struct channel *ch)
{
    struct timeval most = {.tv_sec = TRY_MS / 1000}, tv;
    if (ch->n_pending == 0) {
        deadline_clear(&ch->timer);
        return;
    }
    const struct timeval *left = ares_timeout(ch->ares, &most, &tv);
    deadline_set(&ch->timer, (uint64_t)left->tv_sec * 1000 + (uint64_t)left->tv_usec / 1000 + 1);
}

static void timer_passed(struct deadline *d)
{
    struct channel *ch = container_of(d, struct channel, timer);
    ares_process_fd(ch->ares, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    timer_follow(ch);
}

static void socket_freed(struct closing *closing)
{
    free(container_of(closing, struct watched_socket, closing));
}

static void socket_ready(uv_poll_t *poll, int status, int events)
{
    struct watched_socket *s = container_of(poll, struct watched_socket, poll);
    struct channel *ch = s->channel;
    int fd = s->fd;
    if (ch == NULL)
        return;
    if (status < 0) { /* an error is pending: c-ares is to find it. The loop has stopped watching */
        events = UV_READABLE | UV_WRITABLE;
        (void)uv_poll_start(&s->poll, s->events, socket_ready);
    }
    ares_process_fd(ch->ares, events & UV_READABLE ? fd : ARES_SOCKET_BAD,
                    events & UV_WRITABLE ? fd : ARES_SOCKET_BAD);
    timer_follow(ch);
}

static struct watched_socket **socket_slot(struct channel *ch, int fd)
{
    struct watched_socket **unused = NULL;
    for (size_t i = 0; i < SOCKETS_MAX; i++) {
        if (ch->sockets[i] == NULL)
            unused = &ch->sockets[i];
        else if (ch->sockets[i]->fd == fd)
            return &ch->sockets[i];
    }
    return unused;
}

static void socket_watch(struct channel *ch, struct watched_socket **slot, int fd)
{
    struct watched_socket *s = calloc(1, sizeof *s);
    if (s == NULL || uv_poll_init(ch->loop, &s->poll, fd) < 0) {
        free(s); /* unwatched, its queries time out */
        return;
    }
    closing_init(&s->closing, socket_freed);
    closing_add(&s->closing, (uv_handle_t *)&s->poll);
    s->channel = ch;
    s->fd = fd;
    *slot = s;
}

/* c-ares: this socket is to be watched for so much; 0 0 comes before it is closed. */
static void socket_changed(void *arg, ares_socket_t fd, int readable, int writable)
{
    struct channel *ch = arg;
    struct watched_socket **slot = socket_slot(ch, fd), *s;
    if (slot == NULL)
        return;
    if (*slot == NULL && (readable || writable))
        socket_watch(ch, slot, fd);
    if ((s = *slot) == NULL)
        return;
    s->events = (readable ? UV_READABLE : 0) | (writable ? UV_WRITABLE : 0);
    if (s->events != 0) {
        (void)uv_poll_start(&s->poll, s->events, socket_ready);
        return;
    }
    *slot = NULL;
    s->channel = NULL;
    closing_start(&s->closing);
}

static void channel_freed(struct closing *closing)
{
    free(container_of(closing, struct channel, closing));
}

static void channel_close(struct channel *ch)
{
    ares_destroy(ch->ares);
    closing_start(&ch->closing);
}

/* No search domains and no aliases: what was judged is what is asked for. */
static int channel_new(uv_loop_t *loop, char *resolv_conf, struct channel **ret)
{
    struct ares_options options = {.resolvconf_path = resolv_conf,
                                   .flags = ARES_FLAG_NOALIASES | ARES_FLAG_NOSEARCH,
                                   .timeout = TRY_MS,
                                   .tries = TRIES,
                                   .ndomains = 0,
                                   .sock_state_cb = socket_changed};
    struct channel *ch = calloc(1, sizeof *ch);
    if (ch == NULL)
        return -ENOMEM;
    options.sock_state_cb_data = ch;
    int r = ares_init_options(&ch->ares, &options,
                              ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES |
                                  ARES_OPT_DOMAINS | ARES_OPT_SOCK_STATE_CB |
                                  (resolv_conf != NULL ? ARES_OPT_RESOLVCONF : 0));
    if (r != ARES_SUCCESS) {
        free(ch);
        return r == ARES_ENOMEM ? -ENOMEM : -EIO;
    }
    ch->loop = loop;
    closing_init(&ch->closing, channel_freed);
    deadline_init(loop, &ch->timer, &ch->closing, timer_passed);
    *ret = ch;
    return 0;
}

/* ---- The resolver --------------------------------------------------------------------------- */

/* Asks the name, not what is behind it: a link that leads elsewhere now, or another file by that
 * name, is a change too. */
static bool file_changed(struct watched_file *f)
{
    struct stat now;
    if (stat(f->path, &now) < 0)
        memset(&now, 0, sizeof now);
    bool changed = now.st_mtim.tv_sec != f->seen.st_mtim.tv_sec ||
                   now.st_mtim.tv_nsec != f->seen.st_mtim.tv_nsec ||
                   now.st_ctim.tv_sec != f->seen.st_ctim.tv_sec ||
                   now.st_ctim.tv_nsec != f->seen.st_ctim.tv_nsec || now.st_ino != f->seen.st_ino ||
                   now.st_dev != f->seen.st_dev || now.st_size != f->seen.st_size;
    f->seen = now;
    return changed;
}

int resolver_new(uv_loop_t *loop, stale_fn *stale, void *arg, struct resolver **ret)
{
    static const char *const PATHS[EG_FILES] = {
        [EG_FILE_RESOLV] = "/etc/resolv.conf", [EG_FILE_HOSTS] = "/etc/hosts"};
    struct resolver *r = calloc(1, sizeof *r);
    if (r == NULL)
        return -ENOMEM;
    r->loop = loop;
    r->stale = stale;
    r->arg = arg;
    for (size_t i = 0; i < EG_FILES; i++) {
        r->files[i] = (struct watched_file){.path = PATHS[i], .fd = -1};
        (void)file_changed(&r->files[i]);
    }
    int n = ares_library_init(ARES_LIB_INIT_ALL) == ARES_SUCCESS ? 0 : -EIO;
    if (n == 0)
        n = channel_new(loop, NULL, &r->channels);
    if (n < 0) {
        free(r);
        return n;
    }
    *ret = r;
    return 0;
}

/* Old channels go once they are idle. */
static void channels_sweep(struct resolver *r)
{
    for (struct channel **at = &r->channels->next; *at != NULL;) {
        struct channel *ch = *at;
        if (ch->n_pending > 0) {
            at = &ch->next;
            continue;
        }
        *at = ch->next;
        channel_close(ch);
    }
}

/* True when the daemon is to tell first what the host's files hold now. */
static bool is_stale(struct resolver *r)
{
    bool stale = false;
    for (size_t i = 0; i < EG_FILES; i++) {
        struct watched_file *f = &r->files[i];
        if (!f->is_asked && file_changed(f)) {
            f->is_asked = true;
            r->stale(r->arg, (enum eg_file)i);
        }
        stale |= f->is_asked;
    }
    return stale;
}

/* A new channel only where its ids can be random, else the old one stays. */
static bool resolv_take(struct resolver *r, char *path)
{
    struct channel *fresh;
    if (access(RANDOM_PATH, R_OK) < 0 || channel_new(r->loop, path, &fresh) < 0)
        return false;
    fresh->next = r->channels;
    r->channels = fresh;
    return true;
}

/* c-ares opens it for each name: the descriptor stays open until the next change. A file that is
 * not there is a path that leads nowhere. */
static bool hosts_take(const char *path)
{
    return setenv(HOSTS_NAME, path, 1) == 0;
}

static void waiting_start(struct resolver *r);

void resolver_file(struct resolver *r, enum eg_file file, int take_fd, bool is_readable)
{
    struct watched_file *f = &r->files[file];
    char path[32] = "/nowhere";
    bool taken;
    if (is_readable)
        snprintf(path, sizeof path, "/proc/self/fd/%d", take_fd);
    if (file == EG_FILE_RESOLV)
        taken = is_readable && resolv_take(r, path);
    else
        taken = hosts_take(path);
    if (!taken)
        log_warn("egress.resolver", "file=%s what it holds now could not be taken over", f->path);
    fd_close(taken ? f->fd : take_fd);
    if (taken)
        f->fd = take_fd;
    f->is_asked = false;
    waiting_start(r);
}

static size_t addresses_take(const struct ares_addrinfo *info, int family,
                             struct sockaddr_storage *ret)
{
    size_t n = 0;
    for (struct ares_addrinfo_node *a = info->nodes; a != NULL && n < LOOKUP_ADDRESSES;
         a = a->ai_next)
        if (a->ai_family == family && (size_t)a->ai_addrlen <= sizeof ret[0]) {
            memset(&ret[n], 0, sizeof ret[n]);
            memcpy(&ret[n++], a->ai_addr, (size_t)a->ai_addrlen);
        }
    return n;
}

static void lookup_ended(void *arg, int status, int timeouts, struct ares_addrinfo *info)
{
    struct lookup *l = arg;
    struct sockaddr_storage addresses[LOOKUP_ADDRESSES];
    size_t n = 0;
    (void)timeouts;
    l->channel->n_pending--;
    if (info != NULL) {
        n = addresses_take(info, l->family, addresses);
        ares_freeaddrinfo(info);
    }
    enum lookup_end end =
        n > 0 ? LOOKUP_FOUND
        : status == ARES_ENOTFOUND || status == ARES_ENODATA || status == ARES_SUCCESS
            ? LOOKUP_NO_NAME
            : LOOKUP_FAILED;
    if (l->fn != NULL)
        l->fn(l->arg, l->family, end, end == LOOKUP_FAILED ? ares_strerror(status) : "no such name",
              addresses, n);
    l->ended = true;
    if (!l->starting)
        free(l);
}

static void lookup_go(struct resolver *r, struct lookup *l)
{
    const struct ares_addrinfo_hints hints = {.ai_family = l->family,
                                              .ai_socktype = SOCK_STREAM,
                                              .ai_flags = ARES_AI_NOSORT | ARES_AI_ENVHOSTS};
    l->channel = r->channels;
    l->channel->n_pending++;
    ares_getaddrinfo(l->channel->ares, l->name, NULL, &hints, lookup_ended, l);
    timer_follow(l->channel);
}

int lookup_start(struct resolver *r, const char *name, int family, lookup_fn *fn, void *arg,
                 struct lookup **ret)
{
    struct lookup *l = calloc(1, sizeof *l);
    *ret = NULL;
    if (l == NULL)
        return -ENOMEM;
    channels_sweep(r);
    *l = (struct lookup){.fn = fn, .arg = arg, .family = family, .starting = true};
    snprintf(l->name, sizeof l->name, "%s", name);
    if (is_stale(r)) {
        l->next = r->waiting;
        r->waiting = l;
        *ret = l;
        return 0;
    }
    lookup_go(r, l);
    l->starting = false;
    if (l->ended)
        free(l);
    else
        *ret = l;
    return 0;
}

/* Whoever is told may start others and cancel any: nobody is freed before all were gone through. */
static void waiting_start(struct resolver *r)
{
    for (size_t i = 0; i < EG_FILES; i++)
        if (r->files[i].is_asked)
            return;
    struct lookup *list = TAKE(r->waiting), *next;
    for (struct lookup *l = list; l != NULL; l = l->next)
        if (l->fn != NULL)
            lookup_go(r, l);
        else
            l->ended = true;
    for (struct lookup *l = list; l != NULL; l = next) {
        next = l->next;
        l->starting = false;
        if (l->ended)
            free(l);
    }
}

void lookup_cancel(struct lookup *l)
{
    if (l != NULL)
        l->fn = NULL; /* c-ares ends it in its own time */
}
