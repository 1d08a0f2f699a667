/* Runs in: fetch. Reads: hostile (servers). May block: yes. */
#include "fetch/hop.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "egress/dial.h"
#include "egress/route.h"
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CA_BYTES_MAX  ((size_t)8 << 20)
#define HEADERS_MAX   ((size_t)256 << 10)
#define REDIRECT_BODY ((size_t)64 << 10) /* read and dropped, so that the answer ends in order */
#define NOWHERE       "192.0.2.1"        /* libcurl is told this address, and never dials it */
#define USER_AGENT    "cordon-fetch/" CORDON_VERSION

static uv_loop_t loop;
static struct resolver *resolver;
static int route_fd = -1;
static CURL *curl;
static char *ca;
static size_t ca_n;

/* ---- Before the lock-down ------------------------------------------------------------------- */

/* The host's DNS changed while this call ran, a matter of seconds: what may still be read is. */
static void resolver_stale(void *arg, enum eg_file file)
{
    static const char *const PATHS[EG_FILES] = {
        [EG_FILE_RESOLV] = "/etc/resolv.conf", [EG_FILE_HOSTS] = "/etc/hosts"};
    int fd = open(PATHS[file], O_RDONLY | O_CLOEXEC);
    (void)arg;
    resolver_file(resolver, file, fd, fd >= 0);
}

static int ca_read(const char *wanted)
{
    static const char *const USUAL[] = {"/etc/ssl/certs/ca-certificates.crt",
                                        "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem",
                                        "/etc/ssl/ca-bundle.pem"};
    if (*wanted)
        return fd_read_file(AT_FDCWD, wanted, CA_BYTES_MAX, &ca, &ca_n);
    for (size_t i = 0; i < ARRAY_LEN(USUAL); i++)
        if (fd_read_file(AT_FDCWD, USUAL[i], CA_BYTES_MAX, &ca, &ca_n) == 0)
            return 0;
    return -ENOENT;
}

int hops_open(const struct fetch_order *o)
{
    int r = ca_read(o->ca_file);
    if (r < 0) /* https then fails, and says so; http needs none */
        log_warn("fetch.certificates", "file=%s why=%s", o->ca_file, strerror(-r));
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK || !(curl = curl_easy_init()))
        return -ENOMEM;
    r = uv_loop_init(&loop);
    if (r == 0)
        r = resolver_new(&loop, resolver_stale, NULL, &resolver);
    if (r == 0 && (route_fd = route_open()) < 0)
        r = route_fd;
    return r;
}

/* ---- The connection ------------------------------------------------------------------------- */

struct dialling {
    struct dialled result;
    bool is_over;
};

static void dialling_over(void *arg, const struct dialled *result)
{
    struct dialling *d = arg;
    d->result = *result;
    d->is_over = true;
    uv_stop(&loop);
}

static enum fetch_end end_of(enum eg_outcome outcome)
{
    switch (outcome) {
    case EG_OPENED:
        return FETCH_DONE;
    case EG_ADDRESS_CLASS:
        return FETCH_ADDRESS_CLASS;
    case EG_OWN_PORT:
        return FETCH_OWN_PORT;
    case EG_TIMED_OUT:
        return FETCH_TIMED_OUT;
    case EG_FAILED:
    case EG_RESOLVE_FAILED:
    case EG_CONNECT_FAILED:
        return FETCH_FAILED;
    }
    return FETCH_FAILED;
}

static bool port_is_own(const struct fetch_order *o, uint16_t port)
{
    for (size_t i = 0; i < ARRAY_LEN(o->own_ports); i++)
        if (o->own_ports[i] != 0 && o->own_ports[i] == port)
            return true;
    return false;
}

/* What the proxy resolves cannot be looked at here; an address that was asked for can. */
static int proxy_start(const struct fetch_order *o, const struct hop *hop,
                       const struct dial_deps *deps, struct dialling *d)
{
    char target[HOST_MAX + 10];
    struct dialled refused;
    struct via *via;
    if (dial_is_refused(deps, hop->url->host, hop->url->port, hop->allow_private, &refused)) {
        dialling_over(d, &refused);
        return 0;
    }
    host_port_text(hop->url->host, hop->url->port, target);
    int r = via_new(deps, &hop->proxy, port_is_own(o, hop->proxy.port),
                    hop->url->is_tls ? target : NULL, dialling_over, d, &via);
    if (r == 0)
        via_start(via);
    return r;
}

static int dial_begin(const struct fetch_order *o, const struct hop *hop,
                      const struct dial_deps *deps, struct dialling *d)
{
    struct dial *dial;
    if (hop->has_proxy)
        return proxy_start(o, hop, deps, d);
    int r =
        dial_new(deps, hop->url->host, hop->url->port, hop->allow_private, dialling_over, d, &dial);
    if (r == 0)
        dial_start(dial);
    return r;
}

/* A socket that is connected to a checked address, or -1 with RET saying why not. */
static int connect_to(const struct fetch_order *o, const struct hop *hop, uint64_t left_ms,
                      struct hop_answer *ret)
{
    struct dialling d = {.result = {.outcome = EG_FAILED, .fd = -1}};
    const struct dial_deps deps = {.loop = &loop,
                                   .resolver = resolver,
                                   .route_fd = route_fd,
                                   .dial_ms =
                                       left_ms < o->dial_ms ? (uint32_t)left_ms : o->dial_ms};
    if (port_is_own(o, hop->url->port)) {
        d.result.outcome = EG_OWN_PORT;
        (void)snprintf(d.result.detail, sizeof d.result.detail, "the port is Cordon's own");
    } else if (dial_begin(o, hop, &deps, &d) == 0) {
        while (!d.is_over)
            (void)uv_run(&loop, UV_RUN_DEFAULT);
    }
    ret->end = end_of(d.result.outcome);
    (void)snprintf(ret->address, sizeof ret->address, "%s", d.result.address);
    (void)snprintf(ret->detail, sizeof ret->detail, "%s", d.result.detail);
    return d.result.fd;
}

/* ---- The answer ----------------------------------------------------------------------------- */

struct transfer {
    struct hop_answer *a;
    int fd; /* -1 once libcurl has it */
    size_t max, n_headers, n_dropped;
};

static curl_socket_t socket_hand_over(void *arg, curlsocktype purpose,
                                      struct curl_sockaddr *address)
{
    struct transfer *t = arg;
    (void)purpose;
    (void)address;
    int fd = t->fd;
    t->fd = -1;
    return fd < 0 ? CURL_SOCKET_BAD : fd;
}

static int socket_is_connected(void *arg, curl_socket_t fd, curlsocktype purpose)
{
    (void)arg;
    (void)fd;
    (void)purpose;
    return CURL_SOCKOPT_ALREADY_CONNECTED;
}

static size_t header_take(char *bytes, size_t size, size_t n, void *arg)
{
    struct transfer *t = arg;
    (void)bytes;
    t->n_headers += size * n;
    return t->n_headers > HEADERS_MAX ? 0 : size * n;
}

static size_t body_take(char *bytes, size_t size, size_t n, void *arg)
{
    struct transfer *t = arg;
    struct hop_answer *a = t->a;
    size_t len = size * n, room = t->max - a->body.len;
    long status = 0;
    (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    if (status >= 300 && status < 400 && status != 304) {
        t->n_dropped += len;
        return t->n_dropped > REDIRECT_BODY ? 0 : len;
    }
    if (str_add(&a->body, bytes, len < room ? len : room) < 0)
        return 0;
    if (len <= room)
        return len;
    a->truncated = true;
    return 0; /* enough: the transfer ends */
}

static void protocols_set(void)
{
#if LIBCURL_VERSION_NUM >= 0x075500
    (void)curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    (void)curl_easy_setopt(curl, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
}

static void certificates_set(void)
{
    struct curl_blob blob = {.data = ca, .len = ca_n, .flags = CURL_BLOB_NOCOPY};
    (void)curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 2L);
    (void)curl_easy_setopt(curl, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    /* Built-in paths cannot be read any more: what was read before is all there is. */
    (void)curl_easy_setopt(curl, CURLOPT_CAINFO, NULL);
    (void)curl_easy_setopt(curl, CURLOPT_CAPATH, NULL);
    if (ca)
        (void)curl_easy_setopt(curl, CURLOPT_CAINFO_BLOB, &blob);
}

static void options_set(struct transfer *t, const char *url, uint64_t left_ms, char *error)
{
    curl_easy_reset(curl);
    (void)curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, error);
    (void)curl_easy_setopt(curl, CURLOPT_URL, url);
    (void)curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_PROXY, "");
    (void)curl_easy_setopt(curl, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    (void)curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    (void)curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    (void)curl_easy_setopt(curl, CURLOPT_FORBID_REUSE, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_FRESH_CONNECT, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_ACCEPT_ENCODING, "");
    (void)curl_easy_setopt(curl, CURLOPT_USERAGENT, USER_AGENT);
    (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)left_ms);
    (void)curl_easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, socket_hand_over);
    (void)curl_easy_setopt(curl, CURLOPT_OPENSOCKETDATA, t);
    (void)curl_easy_setopt(curl, CURLOPT_SOCKOPTFUNCTION, socket_is_connected);
    (void)curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, header_take);
    (void)curl_easy_setopt(curl, CURLOPT_HEADERDATA, t);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, body_take);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, t);
    protocols_set();
    certificates_set();
}

static struct curl_slist *headers_make(const struct fetch_order *o, bool is_first)
{
    struct curl_slist *list = curl_slist_append(NULL, "Expect:");
    for (size_t i = 0; is_first && i < o->headers.n; i++)
        list = curl_slist_append(list, o->headers.items[i]);
    return list;
}

static struct curl_slist *address_make(const char *host, uint16_t port)
{
    char text[HOST_MAX + 40];
    (void)snprintf(text, sizeof text, "%s:%u:" NOWHERE, host, (unsigned)port);
    return curl_slist_append(NULL, text);
}

/* Plain HTTP through a proxy: the request names the whole URL. TLS goes through the tunnel that
 * stands already, and libcurl knows of no proxy. */
static struct curl_slist *proxy_set(const struct hop *hop)
{
    char text[VIA_AUTHORIZATION_MAX + 40];
    if (!hop->has_proxy || hop->url->is_tls)
        return NULL;
    (void)snprintf(text, sizeof text,
                   strchr(hop->proxy.host, ':') ? "http://[%s]:%u" : "http://%s:%u",
                   hop->proxy.host, (unsigned)hop->proxy.port);
    (void)curl_easy_setopt(curl, CURLOPT_PROXY, text);
    (void)curl_easy_setopt(curl, CURLOPT_NOPROXY, "");
    if (!hop->proxy.authorization[0])
        return NULL;
    (void)snprintf(text, sizeof text, "Proxy-Authorization: %s", hop->proxy.authorization);
    struct curl_slist *list = curl_slist_append(NULL, text);
    (void)curl_easy_setopt(curl, CURLOPT_PROXYHEADER, list);
    (void)curl_easy_setopt(curl, CURLOPT_HEADEROPT, (long)CURLHEADER_SEPARATE);
    return list;
}

static void answer_read(struct hop_answer *a)
{
    const char *text = NULL;
    long status = 0;
    (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    a->status = status > 0 && status < 1000 ? (uint32_t)status : 0;
    if (curl_easy_getinfo(curl, CURLINFO_CONTENT_TYPE, &text) == CURLE_OK && text)
        (void)snprintf(a->content_type, sizeof a->content_type, "%s", text);
    text = NULL;
    if (curl_easy_getinfo(curl, CURLINFO_REDIRECT_URL, &text) == CURLE_OK && text)
        a->redirect = strdup(text);
}

static void transfer_judge(struct transfer *t, CURLcode code, const char *error)
{
    struct hop_answer *a = t->a;
    bool cut_by_us = code == CURLE_WRITE_ERROR && (a->truncated || t->n_dropped > REDIRECT_BODY);
    answer_read(a);
    if (code == CURLE_OK || cut_by_us) {
        a->end = a->status ? FETCH_DONE : FETCH_FAILED;
        return;
    }
    a->end = code == CURLE_OPERATION_TIMEDOUT ? FETCH_TIMED_OUT : FETCH_FAILED;
    (void)snprintf(a->detail, sizeof a->detail, "%s", *error ? error : curl_easy_strerror(code));
}

static void transfer_run(struct transfer *t, const struct fetch_order *o, const struct hop *hop,
                         uint64_t left_ms)
{
    char error[CURL_ERROR_SIZE] = "";
    bool forwards = hop->has_proxy && !hop->url->is_tls;
    CLEANUP(str_done) struct str text = {0};
    struct curl_slist *headers = headers_make(o, hop->is_first), *proxy = NULL;
    struct curl_slist *address = address_make(forwards ? hop->proxy.host : hop->url->host,
                                              forwards ? hop->proxy.port : hop->url->port);
    if (!headers || !address || url_text(hop->url, &text) < 0) {
        t->a->end = FETCH_FAILED;
    } else {
        options_set(t, str_c(&text), left_ms, error);
        proxy = proxy_set(hop);
        (void)curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
        (void)curl_easy_setopt(curl, CURLOPT_RESOLVE, address);
        if (hop->is_first && *o->body)
            (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS, o->body);
        transfer_judge(t, curl_easy_perform(curl), error);
    }
    curl_slist_free_all(headers);
    curl_slist_free_all(address);
    curl_slist_free_all(proxy);
}

void hop_run(const struct fetch_order *o, const struct hop *hop, uint64_t left_ms,
             void (*opened)(const char *address), struct hop_answer *ret)
{
    uint64_t from = clock_now_ms();
    memset(ret, 0, sizeof *ret);
    ret->body.max = FETCH_BODY_MAX;
    struct transfer t = {.a = ret, .max = o->max_bytes};
    t.fd = connect_to(o, hop, left_ms, ret);
    if (t.fd < 0)
        return;
    ret->is_open = true;
    opened(ret->address);
    uint64_t took = clock_now_ms() - from;
    transfer_run(&t, o, hop, took < left_ms ? left_ms - took : 1);
    fd_close(t.fd);
}

void hop_answer_done(struct hop_answer *a)
{
    str_done(&a->body);
    free(TAKE(a->redirect));
}
