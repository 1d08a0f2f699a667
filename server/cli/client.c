/* Runs in: cli. Reads: trusted (0600 files of this user, the daemon's answers). May block: yes. */
#include "cli/client.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "cli/cli.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#define SERVER_FILE_MAX 8192
#define HEALTH_MS       5000

/* server.json holds no secret, but who writes it says where we send the token. */
static int read_server_file(const char *dir, json_t **ret)
{
    int r = home_is_ours(dir);
    if (r < 0)
        return r;
    CLEANUP(fd_done) int at = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (at < 0)
        return -errno;
    CLEANUP(freep) char *text = NULL;
    size_t n;
    r = fd_read_file(at, "server.json", SERVER_FILE_MAX, &text, &n);
    if (r < 0)
        return r;
    *ret = json_loadb(text, n, 0, NULL);
    return *ret ? 0 : -EBADMSG;
}

static int take_server_file(struct client *c, const json_t *doc)
{
    const char *url = json_text(doc, "url"), *socket = json_text(doc, "socket");
    const char *colon = strrchr(url, ':');
    uint64_t port;
    if (!str_starts(url, "http://127.0.0.1:") || parse_u64(colon + 1, 1, 65535, &port) < 0)
        return -EBADMSG;
    snprintf(c->instance_id, sizeof c->instance_id, "%s", json_text(doc, "instance_id"));
    snprintf(c->version, sizeof c->version, "%s", json_text(doc, "version"));
    c->pid = json_int(doc, "pid");
    c->port = (uint16_t)port;
    c->url = strdup(url);
    c->socket = strdup(socket);
    return c->url && c->socket && c->instance_id[0] ? 0 : -EBADMSG;
}

/* The process behind the socket must be this user's. */
static int check_peer(int fd)
{
#ifdef SO_PEERCRED
    struct ucred peer;
    socklen_t n = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) < 0)
        return -errno;
    return peer.uid == geteuid() ? 0 : -EPERM;
#else
    uid_t uid;
    gid_t gid;
    if (getpeereid(fd, &uid, &gid) < 0)
        return -errno;
    return uid == geteuid() ? 0 : -EPERM;
#endif
}

/* Asked without a token: only the instance that wrote server.json gets one. */
static int check_instance(struct client *c, struct httpc *h)
{
    struct httpc_request rq = {.method = "GET", .target = "/v1/health", .if_match = -1};
    int r = httpc_send(h, &rq);
    if (r < 0 || (r = httpc_wait(h, HEALTH_MS)) < 0)
        return r;
    json_t *doc = json_loadb(str_c(&h->body), h->body.len, 0, NULL);
    bool same = h->status == 200 && strcmp(json_text(doc, "instance_id"), c->instance_id) == 0;
    json_decref(doc);
    return same ? 0 : -ESTALE;
}

/* Anybody may listen on the port of a daemon that was killed, and knows its instance from before;
 * the lock of the state folder is held by a daemon alone, for life. */
static int check_lives(int state)
{
    CLEANUP(fd_done)
    int lock = openat(state, "lock", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (lock < 0)
        return -errno;
    if (flock(lock, LOCK_SH | LOCK_NB) == 0)
        return -ESTALE;
    return errno == EWOULDBLOCK ? 0 : -errno;
}

static int read_token(struct client *c)
{
    CLEANUP(fd_done) int at = open(c->state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CLEANUP(freep) char *text = NULL;
    size_t n;
    if (at < 0)
        return -errno;
    int r = check_lives(at);
    if (r < 0)
        return r;
    r = fd_read_file(at, "token", sizeof c->token - 1, &text, &n);
    if (r < 0)
        return r;
    snprintf(c->token, sizeof c->token, "%.*s", (int)strcspn(text, "\r\n"), text);
    return 0;
}

static int open_socket(struct client *c, struct httpc *ret)
{
    int r = httpc_open_unix(ret, c->socket);
    if (r < 0)
        return r;
    if ((r = check_peer(ret->fd)) < 0)
        httpc_close(ret);
    return r;
}

int client_connect(struct client *c, struct httpc *ret)
{
    return c->token[0] ? httpc_open_tcp(ret, c->port) : open_socket(c, ret);
}

static int connect_checked(struct client *c)
{
    int r = open_socket(c, &c->main);
    bool tcp = r < 0;
    if (tcp && (r = httpc_open_tcp(&c->main, c->port)) < 0)
        return r;
    r = check_instance(c, &c->main);
    if (r >= 0 && tcp)
        r = read_token(c);
    if (r < 0)
        httpc_close(&c->main);
    return r;
}

static int try_place(const struct places *places, const char *dir, struct client **ret)
{
    json_t *doc = NULL;
    int r = read_server_file(dir, &doc);
    if (r < 0)
        return r;
    struct client *c = calloc(1, sizeof *c);
    if (!c) {
        json_decref(doc);
        return -ENOMEM;
    }
    c->main.fd = -1;
    c->state = strdup(places->state);
    r = c->state ? take_server_file(c, doc) : -ENOMEM;
    json_decref(doc);
    if (r >= 0)
        r = connect_checked(c);
    if (r < 0)
        client_close(c);
    else
        *ret = c;
    return r;
}

int client_open(const struct places *places, struct client **ret, struct err *err)
{
    int r = try_place(places, places->state, ret);
    /* The copies are for callers whose environment names another state folder. One that has its
     * own server.json has had a daemon of its own: that one is started again, not another used. */
    for (size_t i = 0; r == -ENOENT && i < places->n_run; i++)
        r = try_place(places, places->run[i], ret);
    if (r >= 0)
        return 0;
    if (r == -ENOMEM)
        return err_set(err, r, "internal", NULL, "out of memory");
    return err_set(err, -ENOENT, "not_running", "cordon serve",
                   "no cordond of this user is running");
}

void client_close(struct client *c)
{
    if (!c)
        return;
    httpc_close(&c->main);
    free(c->socket);
    free(c->url);
    free(c->state);
    explicit_bzero(c->token, sizeof c->token);
    free(c);
}

int client_send(struct client *c, struct httpc *h, struct httpc_request *rq)
{
    rq->token = c->token[0] ? c->token : NULL;
    return httpc_send(h, rq);
}

int client_call(struct client *c, struct httpc_request *rq, struct err *err)
{
    int r = c->main.fd < 0 ? client_connect(c, &c->main) : 0;
    if (r >= 0)
        r = client_send(c, &c->main, rq);
    int (*awaits)(void *, struct httpc *) = TAKE(c->awaits);
    if (r >= 0 && !awaits) /* who awaits reads all of it, also what is there by now */
        r = httpc_step(&c->main);
    if (r >= 0 && c->main.is_busy)
        r = awaits ? awaits(c->awaits_arg, &c->main) : httpc_wait(&c->main, CLIENT_WAIT_MS);
    if (r >= 0 && !c->main.keep_alive) { /* the next call gets a connection of its own */
        struct str body = c->main.body;
        int status = c->main.status;
        c->main.body = (struct str){0};
        httpc_close(&c->main);
        c->main.body = body;
        c->main.status = status;
    }
    if (r < 0)
        return err_set(err, r, "daemon_gone", "its log is cordond.log in the state folder",
                       "the connection to cordond was lost: %s", strerror(-r));
    return 0;
}

int client_problem(int status, const struct str *body, struct err *err)
{
    json_t *doc = json_loadb(str_c(body), body->len, 0, NULL);
    const char *code = json_text(doc, "code"), *detail = json_text(doc, "detail");
    const json_t *first = json_array_get(json_object_get(doc, "errors"), 0);
    if (first && !strstr(detail, json_text(first, "detail")))
        err_set(err, -EPROTO, code, json_text(doc, "hint"), "%s %s", json_text(first, "pointer"),
                json_text(first, "detail"));
    else
        err_set(err, -EPROTO, code[0] ? code : "internal", json_text(doc, "hint"), "%s",
                detail[0] ? detail : "the daemon answered with an error");
    if (!code[0] && err)
        snprintf(err->detail, sizeof err->detail, "the daemon answered %d", status);
    json_decref(doc);
    return -EPROTO;
}
