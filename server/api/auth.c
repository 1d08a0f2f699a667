/* Runs in: daemon. Reads: hostile. May block: no, but for the token's file at start. */
#include "api/auth.h"
#include "api/route.h"
#include "api/state.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORDS_A_MINUTE 60

struct code {
    unsigned char hash[32];
    int64_t expires_at;
    bool used;
};
struct minute { /* at most MAX events in any minute: the times of the last ones */
    int64_t at[RECORDS_A_MINUTE];
    unsigned n;
};
struct auth {
    struct db *db;
    unsigned char owner[32]; /* SHA-256 of the owner's token */
    char hosts[3][32];       /* "127.0.0.1:7411" … */
    char origins[3][40];
    struct code codes[AUTH_CODES_MAX];
    unsigned n_codes; /* ever made; the ring's next place */
    struct minute failures, records;
};

/* ---- The owner's token ------------------------------------------------------------------------
 */

static int owner_make(const char *path, char text[static TOKEN_TEXT_MAX], struct err *err)
{
    unsigned char bytes[32];
    int r = random_bytes(bytes, sizeof bytes);

    if (r < 0)
        return err_set(err, r, "internal", NULL, "no random bytes: %s", strerror(-r));
    (void)snprintf(text, TOKEN_TEXT_MAX, "cordon_");
    base64url(bytes, sizeof bytes, text + strlen(text));
    r = fd_write_file(AT_FDCWD, path, text, strlen(text), 0600);
    return r < 0 ? err_set(err, r, "internal", NULL, "cannot write %s: %s", path, strerror(-r)) : 0;
}

/* The file must be a plain one of ours; a mode that lets others read is taken back. */
static int owner_check(const char *path, struct err *err)
{
    struct stat st;

    if (lstat(path, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid())
        return err_set(err, -EPERM, "internal", "Remove it; a new one is made.",
                       "%s is no plain file of this account", path);
    if ((st.st_mode & 077) && chmod(path, 0600) < 0)
        return err_set(err, -errno, "internal", NULL, "cannot make %s private: %s", path,
                       strerror(errno));
    return 0;
}

static int owner_load(struct auth *a, const char *path, struct err *err)
{
    CLEANUP(freep) char *text = NULL;
    char made[TOKEN_TEXT_MAX];
    size_t n = 0;
    int r = owner_check(path, err);

    if (r == -ENOENT) {
        r = owner_make(path, made, err);
        if (r >= 0)
            hash_sha256(made, strlen(made), a->owner);
        explicit_bzero(made, sizeof made);
        return r;
    }
    if (r < 0)
        return r;
    r = fd_read_file(AT_FDCWD, path, 256, &text, &n);
    if (r < 0)
        return err_set(err, r, "internal", NULL, "cannot read %s: %s", path, strerror(-r));
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
        text[--n] = '\0';
    if (n != TOKEN_TEXT_MAX - 2 || !str_starts(text, "cordon_"))
        return err_set(err, -EINVAL, "internal", "Remove it; a new one is made.",
                       "%s does not hold a token", path);
    hash_sha256(text, n, a->owner);
    explicit_bzero(text, n);
    return 0;
}

int auth_new(struct db *db, const char *path, struct auth **ret, struct err *err)
{
    struct auth *a = calloc(1, sizeof *a);
    int r;

    if (!a)
        return -ENOMEM;
    a->db = db;
    r = owner_load(a, path, err);
    if (r < 0) {
        auth_free(a);
        return r;
    }
    *ret = a;
    return 0;
}

void auth_free(struct auth *a)
{
    free(a);
}

void auth_port(struct auth *a, uint16_t port)
{
    static const char *const NAMES[] = {"127.0.0.1", "[::1]", "localhost"};

    for (size_t i = 0; i < ARRAY_LEN(NAMES); i++) {
        (void)snprintf(a->hosts[i], sizeof a->hosts[i], "%s:%u", NAMES[i], port);
        (void)snprintf(a->origins[i], sizeof a->origins[i], "http://%s", a->hosts[i]);
    }
}

/* ---- Counting ---------------------------------------------------------------------------------
 */

/* May one more happen now? Takes its place then. */
static bool minute_take(struct minute *m, unsigned max, int64_t *ret_wait_ms)
{
    int64_t now = clock_wall_ms(), oldest = m->at[m->n % max];

    if (m->n >= max && now >= oldest && now - oldest < 60000) {
        *ret_wait_ms = 60000 - (now - oldest);
        return false;
    }
    m->at[m->n++ % max] = now;
    return true;
}

/* Records a refusal of who asked (bounded a minute, so that nobody floods the records). */
static void auth_record(struct auth *a, struct request *rq, const char *action)
{
    struct str target = {0};
    struct audit_entry e = {.actor = &rq->caller.actor, .action = action};
    int64_t wait;

    if (!minute_take(&a->records, RECORDS_A_MINUTE, &wait))
        return;
    (void)str_printf(&target, "%s ", METHOD_NAMES[rq->method]);
    (void)str_put_escaped(&target, rq->path ? rq->path : "", rq->path ? strnlen(rq->path, 200) : 0);
    e.target = str_c(&target);
    e.take_after = json_pack("{s:s}", "code", rq->err.code);
    if (audit_add(a->db, &e) < 0)
        log_warn("api.audit_failed", "request=%s", rq->id);
    str_done(&target);
}

/* A token or code that is none of ours: 401, and 429 from the 21st of a minute on. */
static int sign_in_failed(struct auth *a, struct request *rq, const char *what)
{
    int64_t wait = 0;

    if (!minute_take(&a->failures, AUTH_FAILURES_MAX, &wait)) {
        request_extra(rq, "retry_after_ms", json_integer(wait));
        return request_refuse(rq, "rate_limited", NULL, "more than %d failed sign-ins a minute",
                              AUTH_FAILURES_MAX);
    }
    (void)request_refuse(rq, "token_invalid", NULL, "this %s is unknown, revoked or expired", what);
    auth_record(a, rq, "auth.failed");
    return -EACCES;
}

/* ---- The steps --------------------------------------------------------------------------------
 */

static bool is_one_of(const char *text, const char *list, size_t n, size_t width)
{
    for (size_t i = 0; i < n; i++)
        if (strcasecmp(text, list + i * width) == 0)
            return true;
    return false;
}

int auth_host(struct auth *a, struct request *rq)
{
    const struct head *h = &rq->head;

    if (h->n_host != 1 || h->is_old)
        return request_refuse(rq, "host_missing", NULL,
                              h->is_old ? "only HTTP/1.1 is spoken here" : "%u fields named Host",
                              h->n_host);
    if (rq->target[0] == '/' &&
        (rq->is_unix || is_one_of(h->host, a->hosts[0], ARRAY_LEN(a->hosts), sizeof a->hosts[0])))
        return 0;
    (void)request_refuse(rq, "host_not_allowed", NULL, "use http://%s", a->hosts[0]);
    auth_record(a, rq, "auth.failed");
    return -EACCES;
}

int auth_origin(struct auth *a, struct request *rq)
{
    const struct head *h = &rq->head;
    bool ok = h->n_origin == 0 && h->n_fetch_site == 0;

    if (!ok && h->n_origin <= 1 && h->n_fetch_site <= 1) {
        ok = (h->n_fetch_site == 0 || strcmp(h->fetch_site, "same-origin") == 0 ||
              strcmp(h->fetch_site, "none") == 0) &&
             (h->n_origin == 0 ||
              (!rq->is_unix &&
               is_one_of(h->origin, a->origins[0], ARRAY_LEN(a->origins), sizeof a->origins[0])));
    }
    if (ok)
        return 0;
    (void)request_refuse(rq, "origin_not_allowed", NULL, "a page of another origin asked");
    auth_record(a, rq, "auth.failed");
    return -EACCES;
}

static void caller_owner(struct request *rq)
{
    rq->caller.actor.kind = ACTOR_OWNER;
    rq->caller.actor.peer_uid = rq->peer_uid;
    rq->caller.scopes = SCOPES_ALL;
}

static void caller_token(struct request *rq, const struct token *t)
{
    struct caller *c = &rq->caller;

    c->actor.kind = t->kind == TOKEN_BROWSER ? ACTOR_BROWSER
                    : t->session_id[0]       ? ACTOR_AGENT
                                             : ACTOR_TOKEN;
    c->actor.peer_uid = rq->peer_uid;
    (void)snprintf(c->actor.id, sizeof c->actor.id, "%s", t->id);
    (void)snprintf(c->session_id, sizeof c->session_id, "%s", t->session_id);
    c->scopes = t->session_id[0] ? t->scopes & SCOPES_AGENT : t->scopes;
    c->expires_at = t->expires_at;
}

static int caller_bearer(struct auth *a, struct request *rq, const char *text)
{
    unsigned char hash[32];
    struct token t;

    if (strnlen(text, TOKEN_TEXT_MAX) != TOKEN_TEXT_MAX - 2 || !str_starts(text, "cordon_"))
        return sign_in_failed(a, rq, "token");
    rq->caller.has_token = true;
    hash_sha256(text, strlen(text), hash);
    if (hash_equal(hash, a->owner, sizeof hash)) {
        caller_owner(rq);
        return 0;
    }
    if (token_find(a->db, text, &t) < 0)
        return sign_in_failed(a, rq, "token");
    caller_token(rq, &t);
    if (t.kind == TOKEN_BROWSER)
        rq->caller.expires_at = clock_wall_ms() + AUTH_BROWSER_MS;
    (void)token_touch(a->db, t.id, t.kind == TOKEN_BROWSER ? rq->caller.expires_at : t.expires_at);
    return 0;
}

bool auth_is_valid(struct request *rq)
{
    const struct caller *c = &rq->caller;
    struct token t;

    if (c->actor.id[0] == '\0' || (rq->route->access & ACCESS_NO_TOKEN))
        return true;
    return token_get(rq->api->d.db, c->actor.id, &t) == 0 &&
           (t.expires_at == 0 || t.expires_at > clock_wall_ms());
}

int auth_caller(struct auth *a, struct request *rq)
{
    const struct head *h = &rq->head;

    rq->caller.actor.peer_uid = rq->peer_uid;
    if (rq->is_unix && rq->peer_uid != (int64_t)geteuid()) {
        (void)request_refuse(rq, "peer_not_allowed", NULL, "the peer's uid is %lld",
                             (long long)rq->peer_uid);
        auth_record(a, rq, "auth.failed");
        return -EACCES;
    }
    if (rq->route->access & ACCESS_NO_TOKEN)
        return 0;
    if (h->n_authorization == 0 && rq->is_unix) {
        caller_owner(rq);
        return 0;
    }
    if (h->n_authorization == 0)
        return request_refuse(rq, "token_missing", NULL, "the request has no Authorization");
    if (h->n_authorization != 1 || strncasecmp(h->authorization, "Bearer ", 7) != 0)
        return sign_in_failed(a, rq, "Authorization");
    return caller_bearer(a, rq, h->authorization + 7);
}

static int scope_refuse(struct request *rq, const char *why, const char *name)
{
    (void)request_refuse(rq, "scope_missing", NULL, "%s", why);
    request_extra(rq, "scope", json_string(name));
    auth_record(rq->api->auth, rq, "auth.failed");
    return -EACCES;
}

/* An agent's token: its own session's paths, and the few others that are marked. */
static int scope_agent(struct request *rq)
{
    if (str_starts(rq->route->path, "/v1/sessions/{s}")) {
        if (strcmp(rq->params[0], rq->caller.session_id) != 0)
            return request_not_found(rq, "session");
        return 0;
    }
    if (rq->route->access & (ACCESS_AGENT | ACCESS_NO_TOKEN))
        return 0;
    return scope_refuse(rq, "an agent's token reaches its own session alone", "read");
}

int auth_scope(struct request *rq)
{
    unsigned access = rq->route->access, need = access & SCOPES_ALL;
    int r = rq->caller.session_id[0] ? scope_agent(rq) : 0;

    if (r < 0)
        return r;
    if ((access & ACCESS_SOCKET) && !rq->is_unix)
        return request_refuse(rq, "socket_only", NULL, "this came over TCP");
    if (access & (ACCESS_NO_TOKEN | ACCESS_ANY_TOKEN))
        return 0;
    if (need && (rq->caller.scopes & need) == need)
        return 0;
    for (size_t i = 0; need && SCOPE_ROWS[i].name; i++)
        if (SCOPE_ROWS[i].scope == need)
            return scope_refuse(rq, "the token lacks the scope", SCOPE_ROWS[i].name);
    return scope_refuse(rq, "nobody may", "none");
}

/* ---- Sign-in codes ----------------------------------------------------------------------------
 */

int auth_code_new(struct auth *a, char ret[static AUTH_CODE_TEXT], int64_t *ret_expires_at)
{
    struct code *c = &a->codes[a->n_codes % AUTH_CODES_MAX];
    unsigned char bytes[16];
    int r = random_bytes(bytes, sizeof bytes);

    if (r < 0)
        return r;
    base64url(bytes, sizeof bytes, ret);
    hash_sha256(ret, strlen(ret), c->hash);
    c->expires_at = *ret_expires_at = clock_wall_ms() + AUTH_CODE_MS;
    c->used = false;
    a->n_codes++;
    return 0;
}

int auth_code_take(struct auth *a, struct request *rq, const char *code)
{
    unsigned char hash[32];
    struct code *c = NULL;

    hash_sha256(code, strlen(code), hash);
    for (size_t i = 0; i < AUTH_CODES_MAX; i++)
        if (a->codes[i].expires_at && hash_equal(a->codes[i].hash, hash, sizeof hash))
            c = &a->codes[i];
    if (!c)
        return sign_in_failed(a, rq, "code");
    if (c->used) {
        (void)request_refuse(rq, "code_used", NULL, "this code was exchanged before");
        auth_record(a, rq, "auth.code_reused");
        return -EACCES;
    }
    if (clock_wall_ms() > c->expires_at) {
        (void)request_refuse(rq, "code_expired", NULL, "a code is good for 60 seconds");
        auth_record(a, rq, "auth.failed");
        return -EACCES;
    }
    c->used = true;
    return 0;
}
