/* Runs in: daemon (put), fetch (get). Reads: trusted. May block: no. */
#include "wire/fetch.h"
#include "base/mem.h"
#include "wire/url.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SESSION_ID_MAX 64
#define HEADER_BYTES   (16U << 10)
#define BODY_BYTES     (64U << 10)
#define TIME_MS_MAX    600000
#define REDIRECTS_MAX  20
#define CA_PATH_MAX    4096

static void wipe(char *text)
{
    if (text)
        explicit_bzero(text, strlen(text));
}

void fetch_order_done(struct fetch_order *o)
{
    for (size_t i = 0; i < o->headers.n; i++)
        wipe(o->headers.items[i]);
    wipe(o->body);
    free(o->session);
    free(o->url);
    free(o->body);
    free(o->ca_file);
    strv_done(&o->headers);
    rules_done(&o->rules);
    memset(o, 0, sizeof *o);
}

void fetch_order_put(struct pack *p, const struct fetch_order *o)
{
    pack_str(p, o->session);
    pack_u8(p, o->form);
    pack_str(p, o->url);
    pack_strv(p, o->headers.items, o->headers.n);
    pack_str(p, o->body);
    pack_u32(p, o->max_bytes);
    pack_u32(p, o->n_results);
    pack_u32(p, o->time_ms);
    pack_u32(p, o->dial_ms);
    pack_u32(p, o->redirects);
    for (size_t i = 0; i < ARRAY_LEN(o->own_ports); i++)
        pack_u16(p, o->own_ports[i]);
    pack_str(p, o->ca_file);
    rules_put(p, &o->rules);
}

/* A limit of 0 would mean none or nothing, depending on the reader: it is refused. */
static bool order_is_sane(const struct fetch_order *o)
{
    return o->session && o->url && o->body && o->ca_file && o->form < FETCH_FORMS &&
           o->max_bytes >= 1 && o->max_bytes <= FETCH_BODY_MAX && o->n_results >= 1 &&
           o->n_results <= FETCH_RESULTS_MAX && o->time_ms >= 1 && o->time_ms <= TIME_MS_MAX &&
           o->dial_ms >= 1 && o->dial_ms <= TIME_MS_MAX && o->redirects <= REDIRECTS_MAX;
}

int fetch_order_get(struct unpack *u, struct fetch_order *ret)
{
    struct fetch_order o = {0};
    o.session = unpack_str(u, SESSION_ID_MAX);
    o.form = unpack_u8(u);
    o.url = unpack_str(u, (size_t)3 * URL_MAX);
    (void)unpack_strv(u, FETCH_HEADERS_MAX, HEADER_BYTES, &o.headers);
    o.body = unpack_str(u, BODY_BYTES);
    o.max_bytes = unpack_u32(u);
    o.n_results = unpack_u32(u);
    o.time_ms = unpack_u32(u);
    o.dial_ms = unpack_u32(u);
    o.redirects = unpack_u32(u);
    for (size_t i = 0; i < ARRAY_LEN(o.own_ports); i++)
        o.own_ports[i] = unpack_u16(u);
    o.ca_file = unpack_str(u, CA_PATH_MAX);
    if (rules_get(u, &o.rules) < 0 || unpack_end(u) < 0 || !order_is_sane(&o)) {
        fetch_order_done(&o);
        return -EBADMSG;
    }
    *ret = o;
    return 0;
}
