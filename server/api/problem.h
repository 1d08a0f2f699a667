/* Every code that this version can answer with: one table, which the schema repeats. Codes are API:
 * never renamed; clients decide by code, never by text. */
#pragma once
#include "api/request.h"

struct problem {
    const char *code;
    int status;
    const char *title; /* one line, also the text page's first */
    const char *cure;  /* what to do when the refusal has no better hint */
};
/* rq->err (with errors and extra) -> rq->reply as application/problem+json (RFC 9457). A code that
 * is not in the table is a bug: it is logged and answered as 500 internal. */
void problem_reply(struct request *rq);
/* The page /v1/problems/{code}. */
int problem_page(struct request *rq);
