/* What sites.c and sites_many.c share. */
#pragma once
#include "api/request.h"
#include "base/mem.h"
#include "policy/hostset.h"
#include "store/sites.h"

#define SITES_MAX   10000 /* of the lists machine and guarded together */
#define CONFIRM_MAX 4000  /* bytes of ?confirm= */

struct site_body { /* of POST /sites, and of an element of a batch's add */
    char *host, *note;
    int64_t port;
    int list;
    bool enabled, allow_private;
};
/* TEXT as a rule of LIST: a bare name means what it means there; an address of a class that no
 * list opens is refused, a private one has its own allow_private. As host_rule_parse(). */
int site_typed_parse(const char *text, enum site_list list, char host[static HOST_MAX],
                     struct host_rule *rule, bool *ret_wide,
                     char suggestion[static HOST_RULE_TEXT_MAX], struct err *err);
struct site_typed;
int site_confirm(struct request *rq, const struct site_typed *typed);
/* ITEM at POINTER as a row to put: shape, spelling, not there already. What is to be confirmed is
 * added to WIDE. Ends with site_body_done in every case. */
int site_from_json(struct request *rq, const json_t *item, const char *pointer,
                   struct site_body *in, struct strv *wide, struct site *ret);
/* MORE rows still fit into the lists, else too_many. */
int sites_fit(struct request *rq, int64_t more);
void site_body_done(struct site_body *in);
/* BEFORE or AFTER may be NULL. */
int site_record(struct request *rq, const char *action, const struct site *before,
                const struct site *after);
