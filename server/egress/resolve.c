/* Runs in: egress. Reads: hostile (DNS answers, by c-ares). May block: no. */
#include "egress/resolve.h"
#include "base/log.h"
#include "base/mem.h"
#include <ares.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONFIG_PATH "/etc/resolv.conf"
#define RANDOM_PATH "/dev/urandom" /* where c-ares takes its query ids from */
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

struct resolver {
    uv_loop_t *loop;
    struct channel *channels; /* the first is the present one */
    struct stat config;
};

struct lookup {
    struct channel *channel;
    lookup_fn *fn; /* NULL once nobody waits */
    void *arg;
    int family;
    bool starting, ended; /* ended within lookup_start */
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
static int channel_new(uv_loop_t *loop, struct channel **ret)
{
    struct ares_options options = {.flags = ARES_FLAG_NOALIASES | ARES_FLAG_NOSEARCH,
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
                                  ARES_OPT_DOMAINS | ARES_OPT_SOCK_STATE_CB);
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

static bool config_changed(struct resolver *r)
{
    struct stat now;
    if (stat(CONFIG_PATH, &now) < 0)
        return false;
    bool changed = now.st_mtim.tv_sec != r->config.st_mtim.tv_sec ||
                   now.st_mtim.tv_nsec != r->config.st_mtim.tv_nsec ||
                   now.st_ino != r->config.st_ino || now.st_dev != r->config.st_dev ||
                   now.st_size != r->config.st_size;
    r->config = now;
    return changed;
}

int resolver_new(uv_loop_t *loop, struct resolver **ret)
{
    struct resolver *r = calloc(1, sizeof *r);
    if (r == NULL)
        return -ENOMEM;
    r->loop = loop;
    (void)config_changed(r);
    int n = ares_library_init(ARES_LIB_INIT_ALL) == ARES_SUCCESS ? 0 : -EIO;
    if (n == 0)
        n = channel_new(loop, &r->channels);
    if (n < 0) {
        free(r);
        return n;
    }
    *ret = r;
    return 0;
}

void resolver_free(struct resolver *r)
{
    if (r == NULL)
        return;
    while (r->channels != NULL) {
        struct channel *ch = r->channels;
        r->channels = ch->next;
        channel_close(ch);
    }
    free(r);
}

/* Old channels go once they are idle; a new one only where its ids can be random and the new
 * configuration can be read, else the old one stays. */
static void resolver_follow(struct resolver *r)
{
    struct channel *fresh;
    for (struct channel **at = &r->channels->next; *at != NULL;) {
        struct channel *ch = *at;
        if (ch->n_pending > 0) {
            at = &ch->next;
            continue;
        }
        *at = ch->next;
        channel_close(ch);
    }
    if (!config_changed(r))
        return;
    if (access(RANDOM_PATH, R_OK) < 0 || access(CONFIG_PATH, R_OK) < 0 ||
        channel_new(r->loop, &fresh) < 0) {
        log_warn("egress.resolver", "the changed %s could not be taken over", CONFIG_PATH);
        return;
    }
    fresh->next = r->channels;
    r->channels = fresh;
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

int lookup_start(struct resolver *r, const char *name, int family, lookup_fn *fn, void *arg,
                 struct lookup **ret)
{
    const struct ares_addrinfo_hints hints = {
        .ai_family = family, .ai_socktype = SOCK_STREAM, .ai_flags = ARES_AI_NOSORT};
    struct lookup *l = calloc(1, sizeof *l);
    *ret = NULL;
    if (l == NULL)
        return -ENOMEM;
    resolver_follow(r);
    *l = (struct lookup){r->channels, fn, arg, family, true, false};
    l->channel->n_pending++;
    ares_getaddrinfo(l->channel->ares, name, NULL, &hints, lookup_ended, l);
    l->starting = false;
    if (l->ended) {
        free(l);
        return 0;
    }
    timer_follow(l->channel);
    *ret = l;
    return 0;
}

void lookup_cancel(struct lookup *l)
{
    if (l != NULL)
        l->fn = NULL; /* c-ares ends it in its own time */
}
