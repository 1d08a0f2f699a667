/* Runs in: daemon. Reads: trusted (checked by the router). May block: no. */
#include "api/request.h"
#include "api/route.h"
#include "base/fd.h"
#include "base/mem.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static void reply_clear(struct reply *out)
{
    json_decref(out->json);
    out->json = NULL;
    str_clear(&out->text);
    fd_done(&out->fd);
    out->stream = NULL;
    out->is_borrowed = NULL;
}

int reply_json(struct request *rq, int status, json_t *take_json)
{
    if (!take_json)
        return err_set(&rq->err, -ENOMEM, "internal", NULL, "no memory for the answer");
    reply_clear(&rq->reply);
    rq->reply.status = status;
    rq->reply.json = take_json;
    rq->reply.content_type = "application/json";
    return 0;
}

int reply_items(struct request *rq, json_t *take_items, const char *next_cursor)
{
    json_t *list = json_object();

    if (json_object_set_new(list, "items", take_items ? take_items : json_array()) < 0) {
        json_decref(list);
        return -ENOMEM;
    }
    if (next_cursor)
        (void)json_object_set_new(list, "next_cursor", json_string(next_cursor));
    return reply_json(rq, 200, list);
}

int reply_rev(struct request *rq, int status, json_t *take_json, int64_t rev)
{
    (void)reply_header(rq, "ETag", "\"%lld\"", (long long)rev);
    return reply_json(rq, status, take_json);
}

int reply_text(struct request *rq, int status, const char *type, const char *text)
{
    rq->reply.status = status;
    rq->reply.content_type = type;
    return text ? str_puts(&rq->reply.text, text) : 0;
}

int reply_empty(struct request *rq)
{
    rq->reply.status = 204;
    return 0;
}

int reply_header(struct request *rq, const char *name, const char *fmt, ...)
{
    struct reply *out = &rq->reply;
    struct reply_header *h = &out->headers[out->n_headers];
    va_list ap;
    int r;

    if (out->n_headers == REPLY_HEADERS_MAX)
        return -E2BIG;
    va_start(ap, fmt);
    r = vasprintf(&h->value, fmt, ap);
    va_end(ap);
    if (r < 0)
        return -ENOMEM;
    (void)snprintf(h->name, sizeof h->name, "%s", name);
    out->n_headers++;
    return 0;
}

int reply_enforcement(struct request *rq, const json_t *enforcement)
{
    char *text = enforcement ? json_dumps(enforcement, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    int r = text ? reply_header(rq, "Cordon-Enforcement", "%s", text) : 0;

    free(text);
    return r;
}

int request_refuse(struct request *rq, const char *code, const char *hint, const char *fmt, ...)
{
    char detail[sizeof rq->err.detail];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(detail, sizeof detail, fmt, ap);
    va_end(ap);
    return err_set(&rq->err, -EINVAL, code, hint, "%s", detail);
}

int request_not_found(struct request *rq, const char *what)
{
    return err_set(&rq->err, -ENOENT, "not_found", NULL, "there is no such %s", what);
}

int request_bad_member(struct request *rq, const char *pointer, const char *kind, const char *fmt,
                       ...)
{
    char detail[256];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(detail, sizeof detail, fmt, ap);
    va_end(ap);
    field_errors_add(&rq->errors, pointer, kind, "%s", detail);
    return err_member(&rq->err, -EINVAL, "body_invalid", pointer, "%s", detail);
}

int request_bad_query(struct request *rq, const char *name, const char *kind, const char *detail)
{
    char pointer[sizeof rq->err.pointer] = "";

    json_pointer_add(pointer, sizeof pointer, name);
    field_errors_add(&rq->errors, pointer, kind, "%s", detail);
    return err_member(&rq->err, -EINVAL, "query_invalid", pointer, "%s", detail);
}

void request_extra(struct request *rq, const char *name, json_t *take_value)
{
    if (!rq->extra)
        rq->extra = json_object();
    (void)json_object_set_new(rq->extra, name, take_value);
}

int request_if_match(struct request *rq, int64_t rev)
{
    char tag[32];

    (void)snprintf(tag, sizeof tag, "\"%lld\"", (long long)rev);
    if (rq->head.if_match && strcmp(rq->head.if_match, tag) == 0)
        return 0;
    request_extra(rq, "current", json_string(tag));
    return request_refuse(rq, "rev_mismatch", NULL, "it is at %s now", tag);
}

int request_confirm(struct request *rq, const char *value, const char *what)
{
    const char *given = request_query(rq, "confirm");

    if (given && strcmp(given, value) == 0)
        return 0;
    request_extra(rq, "confirm", json_string(value));
    return request_refuse(rq, "confirm_required", NULL, "%s", what);
}

const char *request_query(const struct request *rq, const char *name)
{
    for (unsigned i = 0; i < rq->n_query; i++)
        if (strcmp(rq->query[i].name, name) == 0)
            return rq->query[i].value;
    return NULL;
}

void request_done(struct request *rq)
{
    route_done(rq);
    for (unsigned i = 0; i < rq->n_query; i++) {
        free(rq->query[i].name);
        free(rq->query[i].value);
    }
    for (unsigned i = 0; i < rq->n_params; i++)
        free(rq->params[i]);
    for (unsigned i = 0; i < rq->reply.n_headers; i++)
        free(rq->reply.headers[i].value);
    reply_clear(&rq->reply);
    str_done(&rq->reply.text);
    str_done(&rq->body);
    fd_done(&rq->body_fd);
    json_decref(rq->json);
    json_decref(rq->extra);
    field_errors_done(&rq->errors);
    free(rq->target);
    free(rq->path);
}

bool request_accepts(const struct request *rq, const char *type)
{
    size_t n = strlen(type);

    for (const char *at = rq->head.accept; at; at = strchr(at, ',')) {
        at += strspn(at, ", \t");
        if (strncasecmp(at, type, n) == 0 && strchr(",; \t", at[n]))
            return true;
    }
    return false;
}
