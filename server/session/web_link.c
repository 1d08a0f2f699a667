/* Runs in: daemon. Reads: hostile (frames of cordon-fetch, which reads the world). May block: no.
 *
 * The process of one web call: started, told what to do, heard, ended. */
#include "base/log.h"
#include "base/mem.h"
#include "session/web_parts.h"
#include "store/traffic.h"
#include "wire/msg.h"
#include <errno.h>
#include <signal.h>
#include <string.h>

#define RESULT_URL_MAX (3 * 8192)

static const uint8_t KINDS[] = {M_FT_CHECK,  M_FT_OPENED, M_FT_HEAD, M_FT_BODY,
                                M_FT_RESULT, M_FT_END,    0};

/* ---- What it says --------------------------------------------------------------------------- */

static bool is_utf8(const char *text)
{
    return utf8_is_valid(text, strlen(text));
}

static int take_check(struct web_call *c, struct unpack *u)
{
    char canonical[HOST_MAX];
    CLEANUP(freep) char *url = unpack_str(u, RESULT_URL_MAX);
    CLEANUP(freep) char *host = unpack_str(u, HOST_MAX - 1);
    uint16_t port = unpack_u16(u);
    int r = unpack_end(u);
    if (r < 0 || !url || !host)
        return r < 0 ? r : -ENOMEM;
    if (c->hop.is_asked || port == 0 || !is_utf8(url) ||
        host_canonical(host, strlen(host), false, canonical) == HOST_BAD ||
        strcmp(host, canonical) != 0 || c->redirects.n > WEB_REDIRECTS)
        return -EBADMSG;
    bool is_first = !c->hop.url;
    if (!is_first && strv_add(&c->redirects, url) < 0)
        return -ENOMEM;
    free(c->hop.url);
    c->hop = (struct web_hop){.url = TAKE(url), .port = port, .is_asked = true};
    memcpy(c->hop.host, canonical, sizeof canonical);
    web_hop_check(c);
    return 0;
}

static int take_opened(struct web_call *c, struct unpack *u)
{
    CLEANUP(freep) char *address = unpack_str(u, sizeof c->hop.address - 1);
    int r = unpack_end(u);
    if (r < 0 || !address)
        return r < 0 ? r : -ENOMEM;
    if (!c->hop.url || c->hop.is_asked || c->hop.address[0] || !*address || !is_utf8(address))
        return -EBADMSG;
    memcpy(c->hop.address, address, strlen(address) + 1);
    if (c->hop.site_id[0])
        (void)site_used(c->s->ss->deps.db, c->hop.site_id, false);
    (void)traffic_count(c->s->ss->deps.db, c->hop.host, c->hop.port, TRAFFIC_ALLOWED);
    return 0;
}

static int take_head(struct web_call *c, struct unpack *u)
{
    uint32_t status = unpack_u32(u);
    CLEANUP(freep) char *type = unpack_str(u, 2048);
    int r = unpack_end(u);
    if (r < 0 || !type)
        return r < 0 ? r : -ENOMEM;
    if (c->content_type || status > 999 || c->provider || !is_utf8(type))
        return -EBADMSG;
    c->status = status;
    c->content_type = TAKE(type);
    return 0;
}

static int take_body(struct web_call *c, struct unpack *u)
{
    size_t n;
    const uint8_t *bytes = unpack_bytes(u, FETCH_CHUNK, &n);
    int r = unpack_end(u);
    if (r < 0)
        return r;
    if (!c->content_type || c->body.len + n > c->max_bytes)
        return -EBADMSG;
    return str_add(&c->body, bytes, n);
}

static int take_result(struct web_call *c, struct unpack *u)
{
    CLEANUP(freep) char *title = unpack_str(u, FETCH_TITLE_MAX);
    CLEANUP(freep) char *url = unpack_str(u, RESULT_URL_MAX);
    CLEANUP(freep) char *snippet = unpack_str(u, FETCH_SNIPPET_MAX);
    int r = unpack_end(u);
    if (r < 0 || !title || !url || !snippet)
        return r < 0 ? r : -ENOMEM;
    if (!c->provider || !is_utf8(title) || !is_utf8(url) || !is_utf8(snippet) ||
        json_array_size(c->results) >= FETCH_RESULTS_MAX)
        return -EBADMSG;
    json_t *row = json_pack("{s:s, s:s, s:s}", "title", title, "url", url, "snippet", snippet);
    return json_array_append_new(c->results, row) < 0 ? -ENOMEM : 0;
}

static void refused_address(struct web_call *c, const char *reason, const char *detail)
{
    if (c->hop.site_id[0])
        (void)site_used(c->s->ss->deps.db, c->hop.site_id, true);
    web_blocked(c, reason, detail);
    web_call_fails(c, "private_address",
                   strcmp(reason, "own_port") == 0
                       ? "Cordon's own port is refused whatever a rule says"
                       : "a private address is reached only by a site with allow_private",
                   detail);
}

static int take_end(struct web_call *c, struct unpack *u)
{
    uint8_t end = unpack_u8(u), is_text = unpack_u8(u), truncated = unpack_u8(u);
    CLEANUP(freep) char *detail = unpack_str(u, 2048);
    int r = unpack_end(u);
    if (r < 0 || !detail)
        return r < 0 ? r : -ENOMEM;
    if (end >= FETCH_ENDS || is_text > 1 || truncated > 1 || !is_utf8(detail) ||
        (!c->hop.url && end != FETCH_FAILED))
        return -EBADMSG;
    switch ((enum fetch_end)end) {
    case FETCH_DONE:
        if (!c->provider && !c->content_type)
            return -EBADMSG;
        web_answered(c, is_text, truncated);
        return 0;
    case FETCH_ADDRESS_CLASS:
        refused_address(c, "address_class", detail);
        return 0;
    case FETCH_OWN_PORT:
        refused_address(c, "own_port", detail);
        return 0;
    case FETCH_TIMED_OUT:
        web_call_fails(c, "fetch_timeout", NULL, detail);
        return 0;
    case FETCH_FAILED:
    case FETCH_DENIED: /* nobody denied: that would have ended the call here */
    case FETCH_ENDS:
        break;
    }
    web_call_fails(c, "fetch_failed", NULL, detail);
    return 0;
}

static int link_got(struct channel *ch, const struct frame *f)
{
    struct web_call *c = container_of(ch, struct web_call, ch);
    struct unpack u = unpack_from(f->payload, f->len);
    if (c->is_over)
        return 0;
    switch (f->kind) {
    case M_FT_CHECK:
        return take_check(c, &u);
    case M_FT_OPENED:
        return take_opened(c, &u);
    case M_FT_HEAD:
        return take_head(c, &u);
    case M_FT_BODY:
        return take_body(c, &u);
    case M_FT_RESULT:
        return take_result(c, &u);
    default:
        return take_end(c, &u);
    }
}

static void link_ended(struct channel *ch, int r)
{
    struct web_call *c = container_of(ch, struct web_call, ch);
    if (r == -EBADMSG)
        log_warn("fetch.nonsense", "session=%s", c->s->id);
    web_call_fails(c, "fetch_failed", NULL,
                   r == -EBADMSG ? "cordon-fetch sent nonsense" : "cordon-fetch ended");
}

/* ---- Its life ------------------------------------------------------------------------------- */

static void start_closing(struct web_call *c)
{
    channel_stop(&c->ch);
    closing_start(&c->closing);
}

static void child_exited(struct child *child, int status)
{
    struct web_call *c = container_of(child, struct web_call, child);
    (void)status;
    logpipe_read(&c->said); /* its last words */
    if (c->is_over)
        start_closing(c); /* else what it wrote last is still to be read: link_ended comes */
}

void web_link_close(struct web_call *c)
{
    if (c->is_ending)
        return;
    c->is_ending = true;
    if (c->child.pid > 0)
        child_kill(&c->child, SIGKILL); /* child_exited goes on */
    else
        start_closing(c);
}

static int spawn_it(struct web_call *c, int child_end)
{
    const struct sessions_deps *deps = &c->s->ss->deps;
    char *argv[] = {deps->machine->fetch, NULL};
    char *envp[] = {NULL};
    CLEANUP(fd_done) int said = -1;
    int r = logpipe_open(&c->said, deps->loop, &c->closing, "fetch.said", c->s->id, &said);
    if (r < 0)
        return r;
    int fds[] = {-1, -1, said, child_end};
    struct spawn sp = {.file = deps->machine->fetch,
                       .argv = argv,
                       .envp = envp,
                       .fds = fds,
                       .n_fds = ARRAY_LEN(fds)};
    pid_t pid = fd_spawn(&sp);
    if (pid < 0)
        return (int)pid;
    return child_watch(deps->loop, &c->child, &c->closing, pid, child_exited);
}

/* The certificates that the daemon's environment names, as other clients take them. */
static const char *ca_file(const struct session *s)
{
    static const char *const NAMES[] = {"CURL_CA_BUNDLE=", "SSL_CERT_FILE="};
    for (size_t i = 0; i < ARRAY_LEN(NAMES); i++)
        for (char *const *e = s->caller_env; e && *e; e++)
            if (str_starts(*e, NAMES[i]) && (*e)[strlen(NAMES[i])] == '/')
                return *e + strlen(NAMES[i]);
    return "";
}

static int send_order(struct web_call *c)
{
    const struct sessions_deps *deps = &c->s->ss->deps;
    CLEANUP(pack_done) struct pack p = {0};
    struct fetch_order *o = &c->order;
    o->session = strdup(c->s->id);
    o->ca_file = strdup(ca_file(c->s));
    o->time_ms = WEB_MS;
    o->dial_ms = WEB_DIAL_MS;
    o->redirects = c->provider ? 0 : WEB_REDIRECTS;
    memcpy(o->own_ports, deps->api_ports, sizeof o->own_ports);
    int r = o->session && o->ca_file ? provider_egress_rules(deps->machine, &o->rules) : -ENOMEM;
    if (r == 0) {
        fetch_order_put(&p, o);
        r = channel_send(&c->ch, M_FT_START, &p, NULL, 0);
    }
    if (p.out.data)
        explicit_bzero(p.out.data, p.out.len); /* a key may be in it */
    fetch_order_done(o);
    return r;
}

int web_link_start(struct web_call *c, struct err *err)
{
    int pair[2] = {-1, -1};
    int r = fd_pair(pair);
    if (r == 0) {
        r = spawn_it(c, pair[1]);
        fd_close(pair[1]);
        if (r == 0)
            r = channel_open(&c->ch, c->s->ss->deps.loop, &c->closing, pair[0], KINDS, link_got,
                             link_ended);
        else
            fd_close(pair[0]);
    }
    if (r == 0)
        r = send_order(c);
    if (r < 0)
        return err_set(err, r, "fetch_failed", "are Cordon's programs where they were installed?",
                       "cordon-fetch could not be started: %s", strerror(-r));
    deadline_set(&c->clock, WEB_MS + WEB_SLACK_MS);
    return 0;
}

/* Through the proxy of this host's network, where there is one. */
static void put_via(const struct web_call *c, struct pack *p)
{
    const struct web_hop *hop = &c->hop;
    CLEANUP(str_done) struct str authorization = {0};
    char target[HOST_MAX + 10] = "";
    struct upstream up;
    if (session_via(c->s->ss, hop->host, hop->port, str_starts(hop->url, "http:"), &up)) {
        host_port_text(up.host, up.port, target);
        if (upstream_authorization(&up, &authorization) < 0)
            p->r = -ENOMEM;
    }
    pack_str(p, target);
    pack_str(p, str_c(&authorization));
}

void web_link_verdict(struct web_call *c)
{
    CLEANUP(pack_done) struct pack p = {0};
    c->hop.is_asked = false;
    pack_u8(&p, EG_ALLOW);
    pack_u8(&p, c->hop.flags & EG_ALLOW_PRIVATE);
    put_via(c, &p);
    deadline_set(&c->clock, WEB_MS + WEB_SLACK_MS);
    if (channel_send(&c->ch, M_FT_VERDICT, &p, NULL, 0) < 0)
        web_call_fails(c, "fetch_failed", NULL, "cordon-fetch does not listen");
}
