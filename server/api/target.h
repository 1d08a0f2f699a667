/* A request's target taken apart: path segments and query members (RFC 3986, 3.3 and 3.4; "+" is a
 * space in the query, as pages send it). Pure. */
#pragma once
#include "api/request.h"

#define TARGET_SEGMENTS 10
struct segments {
    char *items[TARGET_SEGMENTS]; /* percent-decoded */
    unsigned n;
};
/* "/v1/a/b" -> v1, a, b. -EINVAL: an escape that is none, NUL, not UTF-8, too many. "/ui/" has a
 * last segment that is empty; such ones match nothing but a pattern that ends so. */
int target_segments(const char *path, struct segments *ret);
void segments_done(struct segments *s);
/* Fills rq->path and rq->query; -EINVAL with rq->errors and rq->err (query_invalid). */
int target_split(struct request *rq);
/* The pattern's segments against S: "{…}" takes any one that is not empty. */
bool target_matches(const char *pattern, const struct segments *s);
