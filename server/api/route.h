/* The table of routes and the order of checks, which clients rely on: Host -> Origin -> route ->
 * token -> scope -> type, size, body -> If-Match. The router alone runs them; GET /v1/routes lists
 * the table. Segments match whole, the order of rows says nothing. */
#pragma once
#include "api/request.h"

/* Who may: scopes of store/tokens.h, or one of these. 0 is nobody, so that a forgotten column
 * refuses. */
enum {
    ACCESS_NO_TOKEN = 1 << 16,  /* [-] */
    ACCESS_ANY_TOKEN = 1 << 17, /* [any] */
    ACCESS_SOCKET = 1 << 18,    /* the unix socket only, besides the scope */
    ACCESS_AGENT = 1 << 19      /* an agent's token may, outside its session's paths too */
};
enum route_flags {
    ROUTE_KEY = 1,      /* takes Idempotency-Key */
    ROUTE_IF_MATCH = 2, /* If-Match must be there */
    ROUTE_MERGE = 4,    /* application/merge-patch+json */
    ROUTE_BYTES = 8,    /* application/octet-stream, buffered */
    ROUTE_UPLOAD = 16,  /* any type, into an unnamed file */
    ROUTE_BODY_OPTIONAL = 32
};

/* A struct that a table of fields fills, and what it holds before (NULL = zeroes). */
struct shape {
    const struct field *fields;
    size_t size;
    const void *defaults;
};
struct route {
    enum method method;
    const char *path; /* "/v1/sessions/{s}" */
    unsigned access, flags;
    uint64_t body_max;         /* 0 = no body */
    const struct shape *body;  /* members of a JSON body, NULL = taken as it is */
    const struct shape *query; /* NULL = none */
    int (*handler)(struct request *rq);
    const char *summary;
};
extern const struct shape NO_MEMBERS;
extern const struct route ROUTES[]; /* ended by a row without path */

void route_head(struct request *rq);
void route_run(struct request *rq);
void route_leaving(struct request *rq);
void route_done(struct request *rq); /* frees what the tables filled */
int routes_show(struct request *rq);

/* Query members every list has. */
struct page {
    int64_t limit;
    char *cursor;
};
#define PAGE_DEFAULT 50
#define PAGE_FIELDS(type)                                                                          \
    {"limit", FIELD_INT, offsetof(struct type, page.limit), 0, 1, 500, NULL, NULL},                \
    {                                                                                              \
        "cursor", FIELD_STRING, offsetof(struct type, page.cursor), 0, 1, 64, NULL, NULL           \
    }
#define FIELDS_END                                                                                 \
    {                                                                                              \
        NULL, FIELD_STRING, 0, 0, 0, 0, NULL, NULL                                                 \
    }
/* A check of struct field: members that a later version takes. */
int not_in_this_version(const json_t *value, char *ret_why, size_t n);
