/* What the files of a web call share: web.c its life, web_verdict.c its
 * verdicts, web_link.c its process,
 * web_answer.c what it says. Only for these. */
#pragma once
#include "base/child.h"
#include "session/asks.h"
#include "session/channel.h"
#include "session/logpipe.h"
#include "session/parts.h"
#include "session/web.h"

#define WEB_SLACK_MS 3000 /* the process keeps the time by itself; behind this it is ended */

struct web_hop {
    char *url;
    char host[HOST_MAX];
    uint16_t port;
    char rule[HOST_MAX + 12], site_id[32];
    uint8_t flags;    /* of the verdict */
    bool is_asked;    /* the process waits for its verdict */
    char address[80]; /* connected, or "" */
};
struct web_once { /* hosts that a person allowed once, for one call */
    struct {
        char host[HOST_MAX];
        uint16_t port;
    } hosts[WEB_REDIRECTS + 1];
    unsigned n;
};
struct web_kept { /* of a call that was answered with 202 */
    struct web_kept *next;
    char ask_id[ID_MAX];
    char *what; /* its URL or query: the permissions are for that call alone */
    char host[HOST_MAX];
    uint16_t port; /* the hop that waited */
    struct web_once once;
};
struct web_call {
    struct web_call *next; /* of the session */
    struct session *s;     /* a reference */
    struct closing closing;
    struct channel ch;
    struct child child;
    struct logpipe said;
    struct deadline clock;
    struct actor actor;
    web_done_fn *done; /* NULL once told or dropped */
    void *arg;
    bool is_over, is_ending;
    bool is_started; /* it has a process */
    bool is_held;    /* it waits for a person */
    bool is_late;    /* its client waits no longer: once it is held it is answered with 202 */
    struct ask_wait wait;
    char ask_id[ID_MAX]; /* of the ask that its client comes back with, or "" */
    struct web_once once;

    struct fetch_order order;               /* until the process has it */
    const struct search_provider *provider; /* NULL = a fetch */
    char *url, *query;                      /* what was asked for; one of them */
    enum fetch_form form;
    uint32_t max_bytes;

    struct web_hop hop;    /* the one at hand */
    struct strv redirects; /* URLs that were gone on to */
    uint32_t status;       /* of the last answer */
    char *content_type;
    struct str body;
    json_t *results; /* array */
};

/* web.c */
void web_call_over(struct web_call *c, const struct web_answer *a); /* tells, once; then closes */
void web_call_fails(struct web_call *c, const char *code, const char *hint, const char *detail);

/* web_verdict.c: the hop at hand is judged: it goes on, waits, or the call is over. */
void web_hop_check(struct web_call *c);
int web_first_check(struct web_call *c, struct err *err); /* negative: refused, recorded */
/* A refused hop, counted and recorded; of no command. */
void web_blocked(struct web_call *c, const char *reason, const char *rule);
void web_once_take(struct web_call *c, const char *ask_id);
void web_kept_free(struct session *s);

/* web_link.c */
int web_link_start(struct web_call *c, struct err *err); /* spawned, and told what to do */
void web_link_verdict(struct web_call *c);               /* allowed: it may dial */
void web_link_close(struct web_call *c);

/* web_answer.c */
void web_answered(struct web_call *c, bool is_text, bool truncated);
void web_audit(struct web_call *c, enum outcome outcome, const char *code);
json_t *web_enforcement(const struct session *s);
