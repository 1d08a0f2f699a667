/* Runs in: daemon. Reads: hostile (what was typed). May block: no.
 *
 * A typed site: one spelling for what means the same, one check for all doors. */
#include "api/session_parts.h"
#include "api/sites.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* What a list may hold; else why not. */
static const char *reach_fault(enum host_reach reach, enum site_list list)
{
    switch (reach) {
    case REACH_NEVER:
        return "an address of this class is never reached, whatever a list says";
    case REACH_LOOPBACK:
        return list == SITES_SESSION ? NULL : "a loopback site belongs to one session alone";
    case REACH_ORDINARY:
    case REACH_PRIVATE:
        return NULL;
    }
    return "not an address";
}

int site_typed_parse(const char *text, enum site_list list, char host[static HOST_MAX],
                     struct host_rule *rule, bool *ret_wide,
                     char suggestion[static HOST_RULE_TEXT_MAX], struct err *err)
{
    enum covers bare = list == SITES_GUARDED ? COVERS_HOST_AND_SUBDOMAINS : COVERS_HOST;
    int r = host_rule_parse(text, bare, host, rule, ret_wide, suggestion, err);
    const char *fault;

    if (r < 0)
        return r;
    fault = reach_fault(host_rule_reach(rule), list);
    if (fault)
        return err_set(err, -EINVAL, "site_invalid", NULL, "%s: %s", rule->host, fault);
    if (host_rule_reach(rule) == REACH_PRIVATE)
        rule->allow_private = true;
    *ret_wide |= rule->allow_private || strcmp(rule->host, "localhost") == 0;
    return 0;
}

int site_typed_take(struct request *rq, const char *pointer, const char *text, int port,
                    enum site_list list, bool allow_private, struct site_typed *ret)
{
    char room[HOST_MAX], suggestion[HOST_RULE_TEXT_MAX] = "";
    struct host_rule rule = {0};
    bool wide = false;
    int r = site_typed_parse(text, list, room, &rule, &wide, suggestion, &rq->err);

    if (r < 0) {
        if (suggestion[0])
            request_extra(rq, "suggestion", json_string(suggestion));
        (void)snprintf(rq->err.pointer, sizeof rq->err.pointer, "%s", pointer);
        return r;
    }
    if (rule.port && port && rule.port != port)
        return request_bad_member(rq, pointer, "conflict", "it names another port");
    ret->port = rule.port ? rule.port : port;
    ret->allow_private = allow_private || rule.allow_private;
    ret->is_wide = wide || allow_private;
    (void)snprintf(ret->host, sizeof ret->host, "%s%s",
                   rule.covers == COVERS_SUBDOMAINS ? "*." : "",
                   rule.covers == COVERS_ANY ? "*" : rule.host);
    return 0;
}

int sites_confirm(struct request *rq, const struct strv *wide)
{
    CLEANUP(str_done) struct str value = {0};

    if (wide->n == 0)
        return 0;
    for (size_t i = 0; i < wide->n; i++)
        if (str_printf(&value, "%s%s", i ? "," : "", wide->items[i]) < 0)
            return -ENOMEM;
    if (value.len > CONFIRM_MAX)
        return request_refuse(rq, "too_many", "Add them in several calls.",
                              "more wide sites than can be confirmed at once");
    return request_confirm(rq, str_c(&value),
                           "this opens more than one owner's hosts, a private address or this "
                           "machine's own services");
}

int site_confirm(struct request *rq, const struct site_typed *typed)
{
    CLEANUP(strv_done) struct strv wide = {0};
    int r = typed->is_wide ? strv_add(&wide, typed->host) : 0;

    return r < 0 ? r : sites_confirm(rq, &wide);
}
