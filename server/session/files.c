/* Runs in: daemon. Reads: hostile (the runner's answers). May block: no.
 *
 * The file tools: one message to the runner and one back. The runner does the work, so the kernel
 * decides; what is made of its answer here is text. */
#include "session/files.h"
#include "base/log.h"
#include "base/path.h"
#include "session/parts.h"
#include "store/events.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_CALL_MS 60000
#define ITEMS_MAX    100000
#define DETAIL_BYTES 600

struct pending {
    struct session *s;    /* a reference */
    struct generation *g; /* whose runner answers, which it does before that is gone */
    enum tool_op op;
    char *path, *path2;
    struct actor actor;
    file_done_fn *done;
    void *arg;
};

static void pending_free(struct pending *p)
{
    if (!p)
        return;
    session_unref(p->s);
    free(p->path);
    free(p->path2);
    free(p);
}

static const char *action_of(enum tool_op op)
{
    switch (op) {
    case TOOL_READ:
        return "file.read";
    case TOOL_STAT:
    case TOOL_LIST:
        return "file.listed";
    case TOOL_GLOB:
    case TOOL_SEARCH:
        return "file.searched";
    case TOOL_WRITE:
    case TOOL_EDIT:
    case TOOL_MKDIR:
        return "file.written";
    case TOOL_MOVE:
        return "file.moved";
    case TOOL_REMOVE:
        return "file.removed";
    case TOOL_NONE:
        break;
    }
    return "file.read";
}

/* ---- Errors -----------------------------------------------------------------------------------
 */

struct tool_error {
    uint32_t error;
    const char *code, *hint;
};
static const struct tool_error ERRORS[] = {
    {ENOENT, "not_found", NULL},
    {EEXIST, "exists", NULL},
    {ENOMSG, "edit_mismatch", "read the file again; the old text must occur exactly once"},
    {ESTALE, "rev_mismatch", "read the file again"},
    {EROFS, "folder_read_only", "write to a folder of mode rw"},
    {EACCES, "access_denied", NULL},
    {EPERM, "access_denied", NULL},
    {ENOTEMPTY, "path_invalid", "add recursive=1"},
    {ENOTDIR, "path_invalid", NULL},
    {EISDIR, "path_invalid", NULL},
    {EINVAL, "path_invalid", NULL},
    {ELOOP, "path_invalid", "name the file itself, not a link"},
    {EXDEV, "path_invalid", "copy it and remove the old one"},
    {ENAMETOOLONG, "path_invalid", NULL},
    {EFBIG, "body_too_large", NULL},
    {E2BIG, "body_too_large", NULL},
    {ENOSPC, "disk_full", NULL},
    {EDQUOT, "disk_full", NULL},
};

static void explain(const struct tool_answer *ta, enum tool_op op, const char *path,
                    struct err *err)
{
    const char *code = "internal", *hint = NULL;
    for (size_t i = 0; i < ARRAY_LEN(ERRORS); i++) {
        if (ERRORS[i].error != ta->error)
            continue;
        code = ERRORS[i].code;
        hint = ERRORS[i].hint;
    }
    if (ta->layer == TOOL_LAYER_ROOTS) {
        code = "outside_session";
        hint = "name a path in a folder of the session";
    } else if (ta->layer == TOOL_LAYER_READ_ONLY) {
        code = "folder_read_only";
        hint = "write to a folder of mode rw";
    } else if (ta->layer == TOOL_LAYER_WALL) {
        code = "access_denied";
    }
    CLEANUP(str_done) struct str text = {.max = DETAIL_BYTES};
    if (ta->detail && *ta->detail)
        (void)str_put_escaped(&text, ta->detail, strnlen(ta->detail, DETAIL_BYTES / 4));
    else
        (void)str_puts(&text, strerror((int)ta->error));
    if (ta->error == EINVAL && (op == TOOL_SEARCH || op == TOOL_GLOB))
        err_member(err, -EINVAL, "body_invalid", "/pattern", "%s", str_c(&text));
    else
        err_set(err, -(int)ta->error, code, hint, "%s: %s", path, str_c(&text));
}

/* ---- Answers ----------------------------------------------------------------------------------
 */

static void put_path(json_t *out, const char *path, size_t n)
{
    if (!memchr(path, '\0', n) && utf8_is_valid(path, n)) {
        (void)json_object_set_new(out, "path", json_stringn(path, n));
        return;
    }
    CLEANUP(str_done) struct str b64 = {0};
    (void)json_object_set_new(out, "path", json_null());
    if (str_put_base64(&b64, path, n) == 0)
        (void)json_object_set_new(out, "path_b64", json_string(str_c(&b64)));
}

static const char *type_name(uint8_t type)
{
    switch (type) {
    case 'f':
        return "file";
    case 'd':
        return "dir";
    case 'l':
        return "symlink";
    default:
        return "other";
    }
}

static json_t *entry_json(const char *path, size_t n, const struct tool_stat *st)
{
    char mode[8], mtime[CLOCK_TEXT_MAX];
    (void)snprintf(mode, sizeof mode, "%04o", st->mode & 07777u);
    clock_text((int64_t)(st->mtime_ns / 1000000), mtime);
    json_t *out = json_pack("{s:s, s:I, s:s, s:s, s:s}", "type", type_name(st->type), "size_bytes",
                            (json_int_t)(st->size & INT64_MAX), "mode", mode, "mtime", mtime,
                            "access", st->access == 'w' ? "rw" : "ro");
    put_path(out, path, n);
    return out;
}

static json_t *lossy_text(const char *bytes, size_t n)
{
    if (!memchr(bytes, '\0', n) && utf8_is_valid(bytes, n))
        return json_stringn(bytes, n);
    CLEANUP(str_done) struct str s = {0};
    (void)str_put_escaped(&s, bytes, n);
    return json_string(str_c(&s));
}

static int get_entries(struct unpack *u, json_t *ret)
{
    uint32_t count = unpack_u32(u);
    json_t *items = json_array();
    if (count > ITEMS_MAX)
        u->r = -EBADMSG;
    for (uint32_t i = 0; i < count && u->r == 0; i++) {
        struct tool_stat st;
        size_t n;
        const char *path = (const char *)unpack_bytes(u, PATH_MAX, &n);
        tool_get_stat(u, &st);
        (void)json_array_append_new(items, entry_json(path, n, &st));
    }
    (void)json_object_set_new(ret, "items", items);
    (void)json_object_set_new(ret, "truncated", json_boolean(unpack_u8(u) != 0));
    return u->r;
}

static int get_hits(struct unpack *u, json_t *ret)
{
    uint32_t count = unpack_u32(u);
    json_t *items = json_array();
    if (count > ITEMS_MAX)
        u->r = -EBADMSG;
    for (uint32_t i = 0; i < count && u->r == 0; i++) {
        size_t n, n_text;
        const char *path = (const char *)unpack_bytes(u, PATH_MAX, &n);
        uint64_t line = unpack_u64(u), column = unpack_u64(u);
        const char *text = (const char *)unpack_bytes(u, FRAME_MAX, &n_text);
        json_t *hit = json_pack("{s:I, s:I}", "line", (json_int_t)(line & INT64_MAX), "column",
                                (json_int_t)(column & INT64_MAX));
        put_path(hit, path, n);
        (void)json_object_set_new(hit, "text", lossy_text(text, n_text));
        (void)json_array_append_new(items, hit);
    }
    (void)json_object_set_new(ret, "items", items);
    (void)json_object_set_new(ret, "truncated", json_boolean(unpack_u8(u) != 0));
    (void)json_object_set_new(ret, "timed_out", json_boolean(unpack_u8(u) != 0));
    return u->r;
}

static void get_entry(struct unpack *u, const struct pending *p, struct file_answer *a)
{
    const char *path = p->op == TOOL_MOVE ? p->path2 : p->path;
    tool_get_stat(u, &a->stat);
    a->json = entry_json(path, strlen(path), &a->stat);
    if (p->op == TOOL_WRITE)
        a->created = unpack_u8(u) != 0;
    if (p->op == TOOL_EDIT)
        (void)json_object_set_new(a->json, "replaced", json_integer(unpack_u32(u)));
}

/* What the answer holds, when the tool did it; -EBADMSG when it does not unpack. */
static int get_fields(struct unpack *u, const struct pending *p, struct file_answer *a)
{
    switch (p->op) {
    case TOOL_LIST:
    case TOOL_GLOB:
        a->json = json_object();
        (void)get_entries(u, a->json);
        break;
    case TOOL_SEARCH:
        a->json = json_object();
        (void)get_hits(u, a->json);
        break;
    case TOOL_REMOVE:
        a->json = json_object();
        break;
    case TOOL_READ:
    case TOOL_WRITE:
    case TOOL_EDIT:
    case TOOL_STAT:
    case TOOL_MOVE:
    case TOOL_MKDIR:
        get_entry(u, p, a);
        break;
    case TOOL_NONE:
        return -EBADMSG;
    }
    return unpack_end(u);
}

/* The descriptor of a READ comes from a hostile program: a regular file, or nothing. */
static int check_file(struct file_answer *a)
{
    struct stat st;
    if (fstat(a->fd, &st) == 0 && S_ISREG(st.st_mode))
        return 0;
    fd_done(&a->fd);
    return -EBADMSG;
}

static enum outcome outcome_of(const struct file_answer *a)
{
    static const char *const refusals[] = {"outside_session", "folder_read_only", "access_denied"};
    if (a->r == 0)
        return OUTCOME_OK;
    for (size_t i = 0; i < ARRAY_LEN(refusals); i++)
        if (strcmp(a->err.code, refusals[i]) == 0)
            return OUTCOME_REFUSED;
    return OUTCOME_ERROR;
}

static void audit(const struct pending *p, const struct file_answer *a)
{
    if (p->op == TOOL_STAT && a->r == 0 && a->stat.type == 'd')
        return; /* its listing follows, and is the row of the call */
    json_t *after = p->op == TOOL_MOVE ? json_object() : NULL;
    CLEANUP(str_done) struct str target = {0}, to = {0};
    (void)str_put_escaped(&target, p->path, strlen(p->path));
    if (after) {
        (void)str_put_escaped(&to, p->path2, strlen(p->path2));
        (void)json_object_set_new(after, "to", json_string(str_c(&to)));
    }
    session_audit(p->s, &p->actor, action_of(p->op), str_c(&target), after, outcome_of(a));
}

static void tell_of(const struct pending *p, enum event_change change, const char *path)
{
    json_t *enforcement = session_enforcement(p->s), *origin = json_pack("{s:s}", "kind", "agent");
    events_emit(p->s->ss->deps.db,
                &(struct event){EVENT_FILE, change, path, p->s->id, 0, enforcement, origin});
    json_decref(enforcement);
    json_decref(origin);
}

/* What a tool did, to whoever follows; what commands write is not told. */
static void tell(const struct pending *p, const struct file_answer *a)
{
    if (a->r < 0)
        return;
    if (p->op == TOOL_REMOVE || p->op == TOOL_MOVE)
        tell_of(p, EVENT_REMOVED, p->path);
    if (p->op == TOOL_MOVE)
        tell_of(p, EVENT_CREATED, p->path2);
    if (p->op == TOOL_MKDIR || (p->op == TOOL_WRITE && a->created))
        tell_of(p, EVENT_CREATED, p->path);
    else if (p->op == TOOL_WRITE || p->op == TOOL_EDIT)
        tell_of(p, EVENT_UPDATED, p->path);
}

static void hand_over(struct pending *p, struct file_answer *a)
{
    audit(p, a);
    tell(p, a);
    p->s->n_file_calls--;
    p->done(a, p->arg);
    fd_close(a->fd);
    json_decref(a->json);
    generation_left(p->g);
    pending_free(p);
}

static void answer_lost(struct pending *p, int r)
{
    struct file_answer a = {.r = r, .fd = -1};
    if (r == -ETIMEDOUT)
        err_set(&a.err, r, "internal", "try again", "%s: the tool did not answer in time", p->path);
    else
        err_set(&a.err, r, "session_ended", NULL, "the session ended");
    hand_over(p, &a);
}

static int answered(int r, struct unpack *u, void *arg)
{
    struct pending *p = arg;
    struct file_answer a = {.fd = -1};
    struct tool_answer ta = {0};
    if (r < 0) {
        answer_lost(p, r);
        return 0;
    }
    r = tool_answer_get(u, &ta);
    if (r == 0 && ta.n_fds > 0 && (p->op != TOOL_READ || ta.error != 0))
        r = -EBADMSG;
    if (r == 0 && ta.n_fds > 0)
        r = runner_link_take_fd(p->g->runner, &a.fd);
    if (r == 0 && ta.error == 0)
        r = get_fields(u, p, &a);
    if (r == 0 && p->op == TOOL_READ && ta.error == 0)
        r = check_file(&a);
    if (r == 0 && ta.error != 0) {
        a.r = -(int)(ta.error & 0xfff);
        explain(&ta, p->op, p->path, &a.err);
    }
    if (r < 0) {
        a.r = r;
        err_clear(&a.err);
        err_set(&a.err, r, "internal", NULL, "the runner's answer cannot be read");
    }
    tool_answer_done(&ta);
    hand_over(p, &a);
    return r == -EBADMSG ? r : 0;
}

/* ---- Calls ------------------------------------------------------------------------------------
 */

static int add_root(struct strv *roots, enum access access, const char *path)
{
    return strv_addf(roots, "%s:%s", access == ACCESS_RW ? "rw" : "ro", path);
}

/* Walled, or with file_roots: the session's folders and these; else what the wall lets through. */
static int make_roots(const struct session *s, struct strv *roots)
{
    int r = 0;
    if (s->tier != TIER_WALLED && s->file_roots.n == 0)
        return 0;
    for (size_t i = 0; i < s->n_folders && r == 0; i++) {
        const struct policy_folder *f = &s->folders[i];
        r = add_root(roots, f->access, f->path);
        if (r == 0 && strcmp(f->path, f->real) != 0)
            r = add_root(roots, f->access, f->real);
    }
    for (size_t i = 0; i < s->file_roots.n && r == 0; i++)
        r = add_root(roots, ACCESS_RW, s->file_roots.items[i]);
    return r;
}

static int check_session(const struct session *s, struct err *err)
{
    if (s->state < SESSION_READY || s->state == SESSION_RESTARTING || s->state == SESSION_REFUSED)
        return err_set(err, -EAGAIN, "session_not_ready", "wait until it is ready",
                       "the session is %s", SESSION_STATE_NAMES[s->state]);
    if (s->state != SESSION_READY || !s->now->runner)
        return err_set(err, -ESTALE, "session_ended", NULL, "the session is %s",
                       SESSION_STATE_NAMES[s->state]);
    if (s->n_file_calls >= SESSION_FILE_CALLS)
        return err_set(err, -E2BIG, "too_many", "wait for one to end",
                       "%d file calls are under way in the session", SESSION_FILE_CALLS);
    if (db_is_full(s->ss->deps.db))
        return err_set(err, -ENOSPC, "disk_full", "free some space for the state folder",
                       "nothing can be recorded, so nothing is done");
    return 0;
}

static struct pending *pending_new(struct session *s, const struct file_call *call,
                                   const struct actor *actor, struct err *err)
{
    struct pending *p = calloc(1, sizeof *p);
    if (!p) {
        err_set(err, -ENOMEM, "internal", NULL, "out of memory");
        return NULL;
    }
    p->s = s;
    p->g = s->now;
    session_ref(s);
    p->op = call->op;
    p->actor = *actor;
    int r = path_join(s->cwd, call->path, &p->path);
    if (r == 0 && call->path2)
        r = path_join(s->cwd, call->path2, &p->path2);
    if (r < 0) {
        err_set(err, r, "path_invalid", NULL, "not a path");
        pending_free(p);
        return NULL;
    }
    return p;
}

static int send_call(struct pending *p, const struct file_call *call)
{
    CLEANUP(pack_done) struct pack out = {0};
    struct tool_request rq = {.id = runner_link_new_id(p->g->runner),
                              .op = (uint8_t)call->op,
                              .flags = (uint8_t)call->flags,
                              .path = p->path,
                              .path2 = p->path2,
                              .n = call->n,
                              .m = call->m};
    CLEANUP(freep) char *text = call->text ? strdup(call->text) : NULL;
    CLEANUP(freep) char *text2 = call->text2 ? strdup(call->text2) : NULL;
    if ((call->text && !text) || (call->text2 && !text2))
        return -ENOMEM;
    rq.text = text;
    rq.text2 = text2;
    rq.text_len = text ? strlen(text) : 0;
    rq.text2_len = text2 ? strlen(text2) : 0;
    int r = make_roots(p->s, &rq.roots);
    if (r == 0)
        tool_request_put(&out, &rq);
    if (r == 0)
        r = runner_link_tool(p->g->runner, rq.id, &out, call->take_fd, FILE_CALL_MS, answered, p);
    strv_done(&rq.roots);
    return r;
}

int session_file_call(struct session *s, const struct file_call *call, const struct actor *actor,
                      file_done_fn *done, void *arg, struct err *err)
{
    int r = check_session(s, err);
    if (r == 0 && (r = renewal_begin_if_due(s, err)) == 0)
        r = check_session(s, err); /* it may be restarting now */
    struct pending *p = r == 0 ? pending_new(s, call, actor, err) : NULL;
    if (!p) {
        fd_close(call->take_fd);
        return r < 0 ? r : -EINVAL;
    }
    p->done = done;
    p->arg = arg;
    r = send_call(p, call);
    fd_close(call->take_fd);
    if (r < 0) {
        pending_free(p);
        return err_set(err, r, r == -E2BIG ? "too_many" : "internal", NULL,
                       "the call could not be sent: %s", strerror(-r));
    }
    s->n_file_calls++;
    p->g->n_users++;
    return 0;
}
