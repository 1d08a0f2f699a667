/* What cordon-fetch is told when it starts (M_FT_START), as bytes, and how a call ends. */
#pragma once
#include "wire/pack.h"
#include "wire/rules.h"

#define FETCH_BODY_MAX    (5U << 20)   /* bytes of an answer, and of what is made of it */
#define FETCH_CHUNK       (128U << 10) /* of one M_FT_BODY */
#define FETCH_HEADERS_MAX 16
#define FETCH_RESULTS_MAX 20
#define FETCH_TITLE_MAX   1000 /* bytes of a result's title, and so on */
#define FETCH_SNIPPET_MAX 4000

/* What becomes of the answer's body. */
enum fetch_form {
    FETCH_RAW = 0,  /* as it is */
    FETCH_TEXT,     /* HTML as plain text, other text in UTF-8 */
    FETCH_MARKDOWN, /* HTML as Markdown, other text in UTF-8 */
    FETCH_BRAVE,    /* search results, as each provider writes them */
    FETCH_TAVILY,
    FETCH_DUCKDUCKGO,
    FETCH_FORMS
};
enum fetch_end {
    FETCH_FAILED = 0,    /* name, connection, TLS, or an answer that is none */
    FETCH_DONE,          /* there is an answer, whatever its status */
    FETCH_DENIED,        /* by the daemon's verdict */
    FETCH_ADDRESS_CLASS, /* the host leads to refused addresses only */
    FETCH_OWN_PORT,      /* Cordon's own */
    FETCH_TIMED_OUT,
    FETCH_ENDS
};

struct fetch_order {
    char *session;         /* its id, for log lines only */
    uint8_t form;          /* enum fetch_form */
    char *url;             /* canonical (wire/url) */
    struct strv headers;   /* "Name: value", for the first host alone */
    char *body;            /* "" = GET, else POST */
    uint32_t max_bytes;    /* of the body, 1..FETCH_BODY_MAX */
    uint32_t n_results;    /* of a search, 1..FETCH_RESULTS_MAX */
    uint32_t time_ms;      /* for all of it, but for what it is held */
    uint32_t dial_ms;      /* for one connection */
    uint32_t redirects;    /* how many are followed at most */
    uint16_t own_ports[4]; /* Cordon's own API ports, refused whatever a verdict says; 0 ends */
    char *ca_file;         /* certificates of authorities, absolute; "" = the usual places */
    struct rules rules;    /* its lock-down */
};
void fetch_order_done(struct fetch_order *o); /* wipes headers and body: a key is in them */
void fetch_order_put(struct pack *p, const struct fetch_order *o);
int fetch_order_get(struct unpack *u, struct fetch_order *ret); /* -EBADMSG, -ENOMEM */
