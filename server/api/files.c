/* Runs in: daemon. Reads: trusted (checked by the router); contents are passed on unread. May
 * block: no. */
#include "session/files.h"
#include "api/handlers.h"
#include "api/ranges.h"
#include "api/session_parts.h"
#include "api/state.h"
#include "base/fd.h"
#include "base/mem.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LIST_MAX  10000
#define SEARCH_MS 10000

/* ---- Shapes -----------------------------------------------------------------------------------
 */

struct file_query {
    char *path;
    int64_t limit;
    bool recursive;
};
#define FIELD_OF_PATH                                                                              \
    {                                                                                              \
        "path", FIELD_STRING, offsetof(struct file_query, path), FIELD_MANDATORY, 1, 4095, NULL,   \
            NULL                                                                                   \
    }
static const struct field LIST_FIELDS[] = {
    FIELD_OF_PATH,
    {"limit", FIELD_INT, offsetof(struct file_query, limit), 0, 1, LIST_MAX, NULL, NULL},
    FIELDS_END};
static const struct field FILE_FIELDS[] = {FIELD_OF_PATH, FIELDS_END};
static const struct field REMOVE_FIELDS[] = {
    FIELD_OF_PATH,
    {"recursive", FIELD_BOOL, offsetof(struct file_query, recursive), 0, 0, 0, NULL, NULL},
    FIELDS_END};
static const struct file_query FILE_DEFAULTS = {.limit = LIST_MAX};
const struct shape FILES_LIST_QUERY = {LIST_FIELDS, sizeof(struct file_query), &FILE_DEFAULTS};
const struct shape FILE_QUERY = {FILE_FIELDS, sizeof(struct file_query), &FILE_DEFAULTS};
const struct shape FILE_REMOVE_QUERY = {REMOVE_FIELDS, sizeof(struct file_query), &FILE_DEFAULTS};

struct file_body {
    char *path, *to, *old, *new, *pattern;
    bool all, regex;
};
#define AT(member) offsetof(struct file_body, member)
static const struct field EDIT_FIELDS[] = {
    {"path", FIELD_STRING, AT(path), FIELD_MANDATORY, 1, 4095, NULL, NULL},
    {"old", FIELD_STRING, AT(old), FIELD_MANDATORY, 1, API_JSON_MAX, NULL, NULL},
    {"new", FIELD_STRING, AT(new), FIELD_MANDATORY, 0, API_JSON_MAX, NULL, NULL},
    {"all", FIELD_BOOL, AT(all), 0, 0, 0, NULL, NULL},
    FIELDS_END};
static const struct field SEARCH_FIELDS[] = {
    {"pattern", FIELD_STRING, AT(pattern), FIELD_MANDATORY, 1, 4095, NULL, NULL},
    {"path", FIELD_STRING, AT(path), FIELD_NULLABLE, 1, 4095, NULL, NULL},
    {"regex", FIELD_BOOL, AT(regex), 0, 0, 0, NULL, NULL},
    FIELDS_END};
static const struct field GLOB_FIELDS[] = {
    {"pattern", FIELD_STRING, AT(pattern), FIELD_MANDATORY, 1, 4095, NULL, NULL},
    {"path", FIELD_STRING, AT(path), FIELD_NULLABLE, 1, 4095, NULL, NULL},
    FIELDS_END};
static const struct field MKDIR_FIELDS[] = {
    {"path", FIELD_STRING, AT(path), FIELD_MANDATORY, 1, 4095, NULL, NULL}, FIELDS_END};
static const struct field MOVE_FIELDS[] = {
    {"from", FIELD_STRING, AT(path), FIELD_MANDATORY, 1, 4095, NULL, NULL},
    {"to", FIELD_STRING, AT(to), FIELD_MANDATORY, 1, 4095, NULL, NULL},
    FIELDS_END};
const struct shape EDIT_BODY = {EDIT_FIELDS, sizeof(struct file_body), NULL};
const struct shape SEARCH_BODY = {SEARCH_FIELDS, sizeof(struct file_body), NULL};
const struct shape GLOB_BODY = {GLOB_FIELDS, sizeof(struct file_body), NULL};
const struct shape MKDIR_BODY = {MKDIR_FIELDS, sizeof(struct file_body), NULL};
const struct shape MOVE_BODY = {MOVE_FIELDS, sizeof(struct file_body), NULL};

/* ---- One call ---------------------------------------------------------------------------------
 */

/* It answers when the runner does; the request may be gone by then. */
struct file_job {
    struct request *rq;
    struct session *s;
    int (*answer)(struct request *rq, struct session *s, struct file_answer *a);
};

static void job_drop(void *state)
{
    struct file_job *job = state;

    job->rq = NULL;
}

static int job_answer(struct request *rq, struct file_job *job, struct file_answer *a)
{
    if (a->r >= 0)
        return job->answer(rq, job->s, a);
    rq->err = a->err;
    return a->r;
}

static void on_file(struct file_answer *a, void *arg)
{
    struct file_job *job = arg;
    struct request *rq = job->rq;
    int r;

    if (rq) {
        rq->state = NULL;
        rq->state_done = NULL;
        r = job_answer(rq, job, a);
        if (r < 0 || !rq->state) /* else a second call was made */
            request_answer(rq, r);
    }
    session_unref(job->s);
    free(job);
}

static int file_call(struct request *rq, const struct file_call *call,
                     int (*answer)(struct request *, struct session *, struct file_answer *))
{
    struct file_job *job;
    struct session *s;
    int r = session_need(rq, &s);

    if (r < 0) {
        fd_close(call->take_fd);
        return r;
    }
    job = calloc(1, sizeof *job);
    if (!job) {
        fd_close(call->take_fd);
        return -ENOMEM;
    }
    session_ref(s);
    *job = (struct file_job){.rq = rq, .s = s, .answer = answer};
    r = session_file_call(s, call, &rq->caller.actor, on_file, job, &rq->err);
    if (r < 0) {
        session_unref(s);
        free(job);
        return r;
    }
    rq->state = job;
    rq->state_done = job_drop;
    request_park(rq, NULL, UINT64_MAX, NULL);
    return 0;
}

/* ---- Answers ----------------------------------------------------------------------------------
 */

static void etag_put(struct request *rq, const struct tool_stat *st)
{
    char tag[TOOL_ETAG_MAX];

    tool_etag(st, tag);
    (void)reply_header(rq, "ETag", "%s", tag);
}

static int answer_json(struct request *rq, struct session *s, const struct file_answer *a,
                       int status)
{
    json_t *out = a->json ? json_copy(a->json) : json_object();

    (void)json_object_set_new(out, "enforcement", session_enforcement(s));
    return reply_json(rq, status, out);
}

static int answer_plain(struct request *rq, struct session *s, struct file_answer *a)
{
    return answer_json(rq, s, a, 200);
}

static int answer_entry(struct request *rq, struct session *s, struct file_answer *a)
{
    etag_put(rq, &a->stat);
    return answer_json(rq, s, a, 200);
}

static int answer_written(struct request *rq, struct session *s, struct file_answer *a)
{
    etag_put(rq, &a->stat);
    return answer_json(rq, s, a, a->created ? 201 : 200);
}

static int answer_made(struct request *rq, struct session *s, struct file_answer *a)
{
    return answer_json(rq, s, a, 201);
}

static int answer_content(struct request *rq, struct session *s, struct file_answer *a)
{
    uint64_t size = a->stat.size, from = 0, to = size ? size - 1 : 0;
    json_t *enforcement;
    int r = range_parse(rq->head.range, size, &from, &to);

    if (r < 0 || (r == 0 && size > (uint64_t)API_PAGE_MAX)) {
        (void)reply_header(rq, "Content-Range", "bytes */%" PRIu64, size);
        return request_refuse(rq, "range_invalid", "Send Range: bytes=0-16777215, and go on.",
                              r < 0 ? "the range lies beyond the file"
                                    : "a file over 16 MiB is read in ranges");
    }
    if (to - from >= (uint64_t)API_PAGE_MAX)
        to = from + (uint64_t)API_PAGE_MAX - 1;
    etag_put(rq, &a->stat);
    (void)reply_header(rq, "Accept-Ranges", "bytes");
    if (r == 1)
        (void)reply_header(rq, "Content-Range", "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, from, to,
                           size);
    enforcement = session_enforcement(s);
    (void)reply_enforcement(rq, enforcement);
    json_decref(enforcement);
    rq->reply.status = r == 1 ? 206 : 200;
    rq->reply.content_type = "application/octet-stream";
    rq->reply.fd = a->fd;
    rq->reply.offset = from;
    rq->reply.length = size ? to - from + 1 : 0;
    a->fd = -1;
    return 0;
}

/* GET S/files of a folder: its entries; of anything else: its own entry. */
static int answer_listed(struct request *rq, struct session *s, struct file_answer *a)
{
    return answer_json(rq, s, a, 200);
}

static int answer_looked(struct request *rq, struct session *s, struct file_answer *a)
{
    const struct file_query *q = rq->args;
    struct file_call call = {
        .op = TOOL_LIST, .path = q->path, .n = (uint64_t)q->limit, .take_fd = -1};

    if (a->stat.type == 'd')
        return file_call(rq, &call, answer_listed);
    return answer_entry(rq, s, a);
}

static int answer_gone(struct request *rq, struct session *s, struct file_answer *a)
{
    json_t *enforcement = session_enforcement(s);

    (void)a;
    (void)reply_enforcement(rq, enforcement);
    json_decref(enforcement);
    return reply_empty(rq);
}

/* ---- The routes -------------------------------------------------------------------------------
 */

int files_list(struct request *rq)
{
    const struct file_query *q = rq->args;
    struct file_call call = {.op = TOOL_STAT, .path = q->path, .take_fd = -1};

    return file_call(rq, &call, answer_looked);
}

int files_read(struct request *rq)
{
    const struct file_query *q = rq->args;
    struct file_call call = {.op = TOOL_READ, .path = q->path, .take_fd = -1};

    return file_call(rq, &call, answer_content);
}

int files_write(struct request *rq)
{
    const struct file_query *q = rq->args;
    const char *none = rq->head.if_none_match;
    struct file_call call = {.op = TOOL_WRITE,
                             .path = q->path,
                             .text = rq->head.if_match,
                             .flags = none && strcmp(none, "*") == 0 ? TOOL_IF_NONE_MATCH : 0,
                             .m = 0644};

    call.take_fd = rq->body_fd;
    rq->body_fd = -1;
    return file_call(rq, &call, answer_written);
}

int files_edit(struct request *rq)
{
    const struct file_body *in = rq->in;
    struct file_call call = {.op = TOOL_EDIT,
                             .flags = in->all ? TOOL_ALL : 0,
                             .path = in->path,
                             .text = in->old,
                             .text2 = in->new,
                             .take_fd = -1};

    return file_call(rq, &call, answer_entry);
}

int files_search(struct request *rq)
{
    const struct file_body *in = rq->in;
    struct file_call call = {.op = TOOL_SEARCH,
                             .flags = in->regex ? TOOL_REGEX : 0,
                             .path = in->path ? in->path : ".",
                             .text = in->pattern,
                             .n = 1000,
                             .m = SEARCH_MS,
                             .take_fd = -1};

    return file_call(rq, &call, answer_plain);
}

int files_glob(struct request *rq)
{
    const struct file_body *in = rq->in;
    struct file_call call = {.op = TOOL_GLOB,
                             .path = in->path ? in->path : ".",
                             .text = in->pattern,
                             .n = LIST_MAX,
                             .take_fd = -1};

    return file_call(rq, &call, answer_plain);
}

int files_mkdir(struct request *rq)
{
    const struct file_body *in = rq->in;
    struct file_call call = {.op = TOOL_MKDIR, .path = in->path, .take_fd = -1};

    return file_call(rq, &call, answer_made);
}

int files_move(struct request *rq)
{
    const struct file_body *in = rq->in;
    struct file_call call = {.op = TOOL_MOVE, .path = in->path, .path2 = in->to, .take_fd = -1};

    return file_call(rq, &call, answer_plain);
}

int files_remove(struct request *rq)
{
    const struct file_query *q = rq->args;
    struct file_call call = {.op = TOOL_REMOVE,
                             .flags = q->recursive ? TOOL_RECURSIVE : 0,
                             .path = q->path,
                             .take_fd = -1};

    return file_call(rq, &call, answer_gone);
}
