/* Runs in: cli. Reads: hosts that came from inside (escaped by the prompt). May block: until an
 * answer, or a signal. */
#include "cli/asking.h"
#include "base/mem.h"
#include "cli/cli.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#define CALL_MS 10000
#define NEWS_MS 60000

static const struct row {
    const char *answer, *label, *keys, *shown;
} ROWS[] = {{"once", "once", "1y", "1, y"},
            {"session", "session", "s", "s"},
            {"always", "always", "2a", "2, a"},
            {"deny", "deny", "3n\033", "3, n, Esc"}};

bool asking_open(struct asking *q)
{
    q->calls.fd = q->news.fd = -1;
    return prompt_open(&q->prompt) == 0;
}

void asking_close(struct asking *q)
{
    httpc_close(&q->calls);
    httpc_close(&q->news);
    prompt_close(&q->prompt);
}

/* ---- The daemon -------------------------------------------------------------------------------
 */

static json_t *answer_json(const struct httpc *h)
{
    return json_loadb(str_c(&h->body), h->body.len, 0, NULL);
}

/* The document of a 2xx, or NULL. */
static json_t *call(struct asking *q, const char *method, const char *path, const json_t *body)
{
    struct httpc_request rq = {.method = method, .target = path, .if_match = -1};
    CLEANUP(freep) char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    rq.type = text ? "application/json" : NULL;
    rq.body = text;
    rq.len = text ? strlen(text) : 0;
    int r = q->calls.fd < 0 ? client_connect(q->client, &q->calls) : 0;
    if (r >= 0)
        r = client_send(q->client, &q->calls, &rq);
    if (r >= 0)
        r = httpc_wait(&q->calls, CALL_MS);
    json_t *doc = r >= 0 && q->calls.status / 100 == 2 ? answer_json(&q->calls) : NULL;
    if (r < 0 || !q->calls.keep_alive)
        httpc_close(&q->calls);
    return doc;
}

/* An ask as it is: that of FRAME, or one that is made for the refused site. */
static json_t *ask_of(struct asking *q, const json_t *frame)
{
    char path[160];
    if (strcmp(json_text(frame, "kind"), "ask") == 0) {
        (void)snprintf(path, sizeof path, "/v1/asks/%.40s", json_text(frame, "ask_id"));
        return call(q, "GET", path, NULL);
    }
    CLEANUP(json_decrefp)
    json_t *body = json_pack("{s:s, s:{s:s, s:I}}", "kind", "site", "subject", "host",
                             json_text(frame, "host"), "port", json_int(frame, "port"));
    (void)snprintf(path, sizeof path, "%s/asks", q->session_path);
    return call(q, "POST", path, body);
}

static bool decide(struct asking *q, const char *id, const char *answer)
{
    char path[80];
    CLEANUP(json_decrefp) json_t *body = json_pack("{s:s}", "answer", answer);
    (void)snprintf(path, sizeof path, "/v1/asks/%.40s/decide", id);
    CLEANUP(json_decrefp) json_t *ask = call(q, "POST", path, body);
    return ask != NULL;
}

/* Waits in the background for the end of the ask. */
static void news_send(struct asking *q, const char *id)
{
    char path[96];
    struct httpc_request rq = {.method = "GET", .target = path, .if_match = -1};
    (void)snprintf(path, sizeof path, "/v1/asks/%.40s?wait_ms=%d", id, NEWS_MS);
    if (q->news.fd < 0 && client_connect(q->client, &q->news) < 0)
        return;
    if (client_send(q->client, &q->news, &rq) < 0)
        httpc_close(&q->news);
}

/* True: it was settled elsewhere, and how stands in STATE. */
static bool news_took(struct asking *q, const char *id, char state[static 24])
{
    int r = httpc_step(&q->news);
    if (r == 0)
        return false;
    CLEANUP(json_decrefp) json_t *ask = r > 0 ? answer_json(&q->news) : NULL;
    const char *is = json_text(ask, "state");
    bool over = !ask || q->news.status != 200 || strcmp(is, "open") != 0;
    (void)snprintf(state, 24, "%s",
                   strcmp(is, "decided") == 0 ? json_text(ask, "answer")
                   : *is                      ? is
                                              : "no longer asked");
    if (over || !q->news.keep_alive)
        httpc_close(&q->news);
    if (!over)
        news_send(q, id);
    return over;
}

/* ---- The question -----------------------------------------------------------------------------
 */

static size_t items_of(const json_t *ask, struct prompt_item *items)
{
    size_t n = 0, k;
    json_t *offer;
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++)
        json_array_foreach(json_object_get(ask, "answers"), k, offer)
        {
            if (strcmp(json_text(offer, "answer"), ROWS[i].answer) == 0 && n < PROMPT_ITEMS_MAX)
                items[n++] = (struct prompt_item){.label = ROWS[i].label,
                                                  .keys = ROWS[i].keys,
                                                  .shown = ROWS[i].shown,
                                                  .text = json_text(offer, "effect")};
        }
    return n;
}

/* The item taken; -1 when it was settled elsewhere (STATE says how) or a signal came (empty). */
static int await_key(struct asking *q, const char *id, int signal_fd, char state[static 24])
{
    for (;;) {
        struct pollfd p[3] = {{.fd = q->prompt.fd, .events = POLLIN},
                              {.fd = signal_fd, .events = POLLIN},
                              {.fd = q->news.fd, .events = 0}};
        if (q->news.fd >= 0)
            p[2].events = httpc_events(&q->news);
        if (poll(p, 3, -1) < 0 && errno != EINTR)
            return -1;
        if (p[1].revents)
            return -1;
        if (q->news.fd >= 0 && p[2].revents && news_took(q, id, state))
            return -1;
        if (!p[0].revents)
            continue;
        int i = prompt_key(&q->prompt);
        if (i != PROMPT_MORE)
            return i < 0 ? -1 : i;
    }
}

static void question(const json_t *ask, struct str *ret)
{
    const json_t *subject = json_object_get(ask, "subject");
    char target[CLI_TARGET];
    cli_target(subject, target);
    (void)str_printf(ret, "cordon: %s %s", target,
                     json_int(ask, "waiting") > 0 ? "waits for an answer" : "was refused");
}

static void ask_it(struct asking *q, const json_t *ask, int signal_fd)
{
    struct prompt_item items[PROMPT_ITEMS_MAX];
    CLEANUP(str_done) struct str title = {0}, line = {0}, note = {0};
    const char *id = json_text(ask, "id"), *reason = json_text(ask, "reason");
    char state[24] = "";
    size_t n = items_of(ask, items);
    if (n == 0)
        return;
    question(ask, &title);
    news_send(q, id);
    (void)str_printf(&note, "cordon: the agent says: %s", reason);
    prompt_show(&q->prompt, *reason ? str_c(&note) : NULL, str_c(&title), items, n);
    int i = await_key(q, id, signal_fd, state);
    (void)str_printf(&line, "%s: ", str_c(&title));
    if (i >= 0)
        (void)str_puts(&line, decide(q, id, items[i].label)
                                  ? items[i].label
                                  : "not taken: it was settled elsewhere");
    else
        (void)str_puts(&line, state[0] ? state : "not answered");
    httpc_close(&q->news);
    prompt_hide(&q->prompt, str_c(&line));
}

void asking_frame(struct asking *q, const json_t *frame, int signal_fd)
{
    const char *kind = json_text(frame, "kind");
    bool is_refused =
        strcmp(kind, "blocked") == 0 && strcmp(json_text(frame, "reason"), "not_listed") == 0;
    if (!is_refused && strcmp(kind, "ask") != 0)
        return;
    if (!prompt_may_ask(&q->prompt)) {
        if (!q->told_background)
            cli_note("in the background nobody is asked: cordon asks list");
        q->told_background = true;
        return;
    }
    CLEANUP(json_decrefp) json_t *ask = ask_of(q, frame);
    if (strcmp(json_text(ask, "state"), "open") == 0)
        ask_it(q, ask, signal_fd);
}
