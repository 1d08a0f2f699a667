/* Runs in: fetch. Reads: hostile (what a server redirects to). May block: yes. */
#include "fetch/fetch.h"
#include "base/clock.h"
#include "base/mem.h"
#include "egress/lockdown.h"
#include "fetch/content.h"
#include "fetch/hop.h"
#include "fetch/link.h"
#include "fetch/results.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct call {
    struct fetch_order order;
    uint64_t spent_ms; /* on hops; waiting for a verdict does not count */
    unsigned n_redirects;
    struct hop_answer answer;
};

_Noreturn static void call_ends(struct call *c, enum fetch_end end, bool is_text,
                                const char *detail)
{
    struct pack p = {0};
    pack_u8(&p, (uint8_t)end);
    pack_u8(&p, is_text);
    pack_u8(&p, c->answer.truncated);
    pack_str(&p, detail);
    link_send(M_FT_END, &p);
    link_lost("");
}

/* ---- One hop -------------------------------------------------------------------------------- */

static void told_opened(const char *address)
{
    struct pack p = {0};
    pack_str(&p, address);
    link_send(M_FT_OPENED, &p);
}

/* Returns when the daemon allows it. */
static void hop_check(struct call *c, const struct url *url, struct hop *ret)
{
    CLEANUP(str_done) struct str text = {0};
    struct pack p = {0};
    if (url_text(url, &text) < 0)
        call_ends(c, FETCH_FAILED, false, "out of memory");
    pack_str(&p, str_c(&text));
    pack_str(&p, url->host);
    pack_u16(&p, url->port);
    link_send(M_FT_CHECK, &p);
    struct unpack u = link_wait(M_FT_VERDICT);
    uint8_t verdict = unpack_u8(&u), flags = unpack_u8(&u);
    CLEANUP(freep) char *via = unpack_str(&u, HOST_MAX + 10);
    CLEANUP(freep) char *authorization = unpack_str(&u, VIA_AUTHORIZATION_MAX - 1);
    if (unpack_end(&u) < 0 || !via || !authorization)
        link_lost("nonsense from the daemon");
    if (verdict != EG_ALLOW)
        call_ends(c, FETCH_DENIED, false, "");
    *ret = (struct hop){.url = url,
                        .is_first = c->n_redirects == 0,
                        .allow_private = flags & EG_ALLOW_PRIVATE,
                        .has_proxy = *via != '\0'};
    if (ret->has_proxy && via_proxy_parse(via, authorization, &ret->proxy) < 0)
        link_lost("nonsense from the daemon");
}

static void hop_go(struct call *c, const struct url *url)
{
    struct hop hop;
    hop_check(c, url, &hop);
    uint64_t from = clock_now_ms();
    if (c->spent_ms >= c->order.time_ms)
        call_ends(c, FETCH_TIMED_OUT, false, "no time is left");
    hop_run(&c->order, &hop, c->order.time_ms - c->spent_ms, told_opened, &c->answer);
    c->spent_ms += clock_now_ms() - from;
    if (c->answer.end == FETCH_DONE)
        return;
    CLEANUP(str_done) struct str detail = {0};
    (void)str_put_escaped(&detail, c->answer.detail, strlen(c->answer.detail));
    call_ends(c, c->answer.end, false, str_c(&detail));
}

/* The URL to go on with in *URL, false at the last answer. */
static bool redirect_take(struct call *c, struct url *url)
{
    const char *to = c->answer.redirect, *why = "";
    char detail[HOP_TEXT_MAX];
    if (!to || c->answer.status < 300 || c->answer.status >= 400)
        return false;
    if (c->n_redirects++ >= c->order.redirects) {
        (void)snprintf(detail, sizeof detail, "it redirects more than %u times",
                       (unsigned)c->order.redirects);
        call_ends(c, FETCH_FAILED, false, detail);
    }
    url_done(url);
    if (url_parse(to, strlen(to), url, &why) < 0) {
        (void)snprintf(detail, sizeof detail, "it redirects to what is not followed: %s", why);
        call_ends(c, FETCH_FAILED, false, detail);
    }
    hop_answer_done(&c->answer);
    return true;
}

/* ---- The answer ----------------------------------------------------------------------------- */

static void body_send(const struct str *body)
{
    for (size_t at = 0; at < body->len; at += FETCH_CHUNK) {
        struct pack p = {0};
        size_t n = body->len - at < FETCH_CHUNK ? body->len - at : FETCH_CHUNK;
        pack_bytes(&p, body->data + at, n);
        link_send(M_FT_BODY, &p);
    }
}

_Noreturn static void answer_page(struct call *c, const struct url *url)
{
    struct str out = {.max = c->order.max_bytes};
    struct pack p = {0};
    CLEANUP(str_done) struct str type = {0};
    bool is_text = false, is_cut = false;
    (void)str_put_escaped(&type, c->answer.content_type, strlen(c->answer.content_type));
    pack_u32(&p, c->answer.status);
    pack_str(&p, str_c(&type));
    link_send(M_FT_HEAD, &p);
    const struct content in = {.form = (enum fetch_form)c->order.form,
                               .type = c->answer.content_type,
                               .url = url,
                               .bytes = c->answer.body.data,
                               .n = c->answer.body.len,
                               .is_cut = c->answer.truncated};
    if (content_make(&in, &out, &is_text, &is_cut) < 0)
        call_ends(c, FETCH_FAILED, false, "out of memory");
    c->answer.truncated |= is_cut;
    body_send(&out);
    call_ends(c, FETCH_DONE, is_text, "");
}

static void result_send(const char *title, const char *url, const char *snippet, void *arg)
{
    struct pack p = {0};
    (void)arg;
    pack_str(&p, title);
    pack_str(&p, url);
    pack_str(&p, snippet);
    link_send(M_FT_RESULT, &p);
}

_Noreturn static void answer_results(struct call *c)
{
    char why[HOP_TEXT_MAX] = "";
    const struct hop_answer *a = &c->answer;
    if (a->status == 401 || a->status == 403)
        call_ends(c, FETCH_FAILED, false, "the provider refused the key");
    if (a->status != 200) {
        (void)snprintf(why, sizeof why, "the provider answered %u", (unsigned)a->status);
        call_ends(c, FETCH_FAILED, false, why);
    }
    if (a->truncated)
        call_ends(c, FETCH_FAILED, false, "the provider's answer is too long");
    if (results_read((enum fetch_form)c->order.form, str_c(&a->body), a->body.len,
                     c->order.n_results, result_send, NULL) < 0)
        call_ends(c, FETCH_FAILED, false, "the provider's answer cannot be read");
    call_ends(c, FETCH_DONE, true, "");
}

/* ---- Its life ------------------------------------------------------------------------------- */

static void order_take(struct call *c, struct url *url)
{
    const char *what = "", *why = "";
    char text[HOP_TEXT_MAX];
    struct unpack u = link_wait(M_FT_START);
    if (fetch_order_get(&u, &c->order) < 0 ||
        url_parse(c->order.url, strlen(c->order.url), url, &why) < 0)
        link_lost("nonsense from the daemon");
    int r = hops_open(&c->order);
    if (r < 0)
        what = "what it needs could not be opened";
    else
        r = lockdown_apply(&c->order.rules, &what);
    if (r < 0) { /* one that is not locked down as ordered reads nothing */
        (void)snprintf(text, sizeof text, "cordon-fetch: %s: %s", what, strerror(-r));
        call_ends(c, FETCH_FAILED, false, text);
    }
}

_Noreturn void fetch_run(int fd)
{
    static struct call call;
    struct url url = {0};
    link_open(fd);
    order_take(&call, &url);
    do
        hop_go(&call, &url);
    while (redirect_take(&call, &url));
    if (call.order.form <= FETCH_MARKDOWN)
        answer_page(&call, &url);
    answer_results(&call);
}
