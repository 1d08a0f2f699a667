/* What sites.c and sites_many.c share. */
#pragma once
#include "api/request.h"
#include "store/sites.h"

struct site_body { /* of POST /sites, and of an element of a batch's add */
    char *host, *note;
    int64_t port;
    int list;
    bool enabled, allow_private;
};
/* ITEM at POINTER as a row to put: shape, spelling, confirmation, not there already. Ends with
 * site_body_done in every case. */
int site_from_json(struct request *rq, const json_t *item, const char *pointer,
                   struct site_body *in, struct site *ret);
void site_body_done(struct site_body *in);
/* BEFORE or AFTER may be NULL. */
int site_record(struct request *rq, const char *action, const struct site *before,
                const struct site *after);
