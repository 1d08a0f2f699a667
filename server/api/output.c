/* Runs in: daemon. Reads: hostile (what commands wrote). May block: no, but for reads of the spool.
 *
 * GET C/output: the spool from a number on, in four forms. A reader that follows is woken by the
 * command's watch; it reads the disk, never a queue in memory. */
#include "api/command_parts.h"
#include "api/handlers.h"
#include "api/ranges.h"
#include "api/state.h"
#include "base/mem.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FILL_BYTES (64 << 10) /* gathered before a reader is given more */

enum form { FORM_NDJSON = 0, FORM_SSE, FORM_JSON, FORM_BYTES };
static const struct form_row {
    const char *type;
    enum form form;
} FORMS[] = {
    {"application/x-ndjson", FORM_NDJSON}, {"text/event-stream", FORM_SSE},
    {"application/json", FORM_JSON},       {"application/octet-stream", FORM_BYTES},
    {"application/*", FORM_NDJSON},        {"*/*", FORM_NDJSON},
};

static const char *const STREAMS[] = {"stdout", "stderr", "pty", "all", NULL};
enum { STREAM_ALL = 3 };
struct output_query {
    int64_t after, wait_ms, max_bytes, offset;
    int stream;
    bool follow;
};
#define AT(member) offsetof(struct output_query, member)
static const struct field OUTPUT_FIELDS[] = {
    {"after", FIELD_INT, AT(after), 0, 0, 1LL << 53, NULL, NULL},
    {"stream", FIELD_ENUM, AT(stream), 0, 0, 0, STREAMS, NULL},
    {"follow", FIELD_BOOL, AT(follow), 0, 0, 0, NULL, NULL},
    {"wait_ms", FIELD_INT, AT(wait_ms), 0, 0, API_WAIT_MAX, NULL, NULL},
    {"max_bytes", FIELD_INT, AT(max_bytes), 0, 1, 1LL << 53, NULL, NULL},
    {"offset", FIELD_INT, AT(offset), 0, 0, 1LL << 53, NULL, NULL},
    FIELDS_END};
static const struct output_query OUTPUT_DEFAULTS = {.stream = -1, .offset = -1, .max_bytes = -1};
const struct shape OUTPUT_QUERY = {OUTPUT_FIELDS, sizeof(struct output_query), &OUTPUT_DEFAULTS};

struct reading {
    struct command *c; /* NULL: ended, only the spool and its document are left */
    json_t *doc;
    struct spool_reader *reader; /* NULL: nothing was ever written */
    enum form form;
    uint64_t after, offset, left; /* left: bytes of output that may still go out */
    int stream;
    bool follow, ended;
    json_t *frames; /* FORM_JSON */
};

static void reading_done(void *state)
{
    struct reading *rd = state;

    if (rd->c)
        command_unref(rd->c);
    json_decref(rd->doc);
    json_decref(rd->frames);
    spool_reader_free(rd->reader);
    free(rd);
}

static bool wrote(const json_t *doc, const char *member)
{
    return json_integer_value(json_object_get(json_object_get(doc, "output"), member)) > 0;
}

/* The command will write no more: it has ended, or its daemon died. */
static bool is_over(const struct reading *rd)
{
    return !rd->c || command_is_ended(rd->c);
}

/* ---- Frames -----------------------------------------------------------------------------------
 */

static int wrap_put(struct reading *rd, struct str *out, const struct spool_frame *f,
                    const char *json)
{
    if (rd->form == FORM_JSON)
        return json_array_append_new(rd->frames, json_loads(json, JSON_ALLOW_NUL, NULL)) < 0
                   ? -ENOMEM
                   : 0;
    if (rd->form == FORM_SSE)
        return str_printf(out, "id: %" PRIu64 "\nevent: %s\ndata: %s\n\n", f->seq, frame_kind(f),
                          json);
    return str_printf(out, "%s\n", json);
}

static int frame_out(struct reading *rd, struct str *out, const struct spool_frame *f)
{
    CLEANUP(str_done) struct str one = {0};
    int r;

    if (f->kind == SPOOL_DATA || f->kind == SPOOL_GAP) {
        if (rd->stream != STREAM_ALL && (int)f->stream != rd->stream)
            return 0;
        rd->left =
            f->kind == SPOOL_DATA ? rd->left - (f->len < rd->left ? f->len : rd->left) : rd->left;
    }
    if (rd->form == FORM_NDJSON) {
        r = output_frame_put(out, f);
        return r < 0 ? r : str_putc(out, '\n');
    }
    r = output_frame_put(&one, f);
    return r < 0 ? r : wrap_put(rd, out, f, str_c(&one));
}

/* The end of a command whose spool holds none: it was lost with its daemon. */
static int lost_out(struct reading *rd, struct str *out)
{
    struct spool_frame f = {.seq = rd->after + 1, .kind = SPOOL_END};
    CLEANUP(str_done) struct str one = {0};
    json_t *doc = rd->c ? command_to_json(rd->c) : json_incref(rd->doc);
    int r = frame_put_lost(&one, f.seq, doc);

    json_decref(doc);
    rd->ended = true;
    rd->after = f.seq;
    return r < 0 ? r : wrap_put(rd, out, &f, str_c(&one));
}

/* Adds what is there, until OUT is well filled. 1 = something, 0 = nothing at present, -1 = all. */
static int frames_take(struct reading *rd, struct str *out)
{
    struct spool_frame f;
    size_t before = out->len + (rd->frames ? json_array_size(rd->frames) : 0);
    int r = 0;

    while (!rd->ended && rd->left > 0 && out->len < FILL_BYTES) {
        bool over = is_over(rd); /* before the read: what comes later is not missed */
        r = rd->reader ? spool_next(rd->reader, rd->after, &f) : 0;
        if (r < 0)
            return -1;
        if (r == 0 && over && !(rd->reader && spool_ended(rd->reader)))
            return lost_out(rd, out) < 0 ? -1 : 1;
        if (r == 0)
            break;
        rd->after = f.seq;
        rd->ended = f.kind == SPOOL_END;
        if (frame_out(rd, out, &f) < 0)
            return -1;
    }
    if (out->len + (rd->frames ? json_array_size(rd->frames) : 0) > before)
        return 1;
    return rd->ended || rd->left == 0 || r == 0 ? (rd->follow && !rd->ended && rd->left ? 0 : -1)
                                                : 1;
}

static int frames_fill(struct request *rq, struct str *out)
{
    return frames_take(rq->state, out);
}

static void frames_keepalive(struct request *rq, struct str *out)
{
    const struct reading *rd = rq->state;

    (void)str_puts(out, rd->form == FORM_SSE
                            ? "event: keepalive\ndata: {\"kind\":\"keepalive\"}\n\n"
                            : "{\"kind\":\"keepalive\"}\n");
}
static const struct stream FRAMES = {frames_fill, frames_keepalive, NULL, 0};

/* ---- Bytes ------------------------------------------------------------------------------------
 */

static int bytes_fill(struct request *rq, struct str *out)
{
    struct reading *rd = rq->state;
    size_t want = rd->left < FILL_BYTES ? (size_t)rd->left : FILL_BYTES;
    bool over = is_over(rd);
    uint64_t resume = 0;
    char *to = want ? str_room(out, want) : NULL;
    ssize_t n;

    if (!to || !rd->reader)
        return -1;
    n = spool_pread(rd->reader, rd->stream, rd->offset, to, want, &resume);
    if (n > 0) {
        out->len += (size_t)n;
        rd->offset += (uint64_t)n;
        rd->left -= (uint64_t)n;
        return 1;
    }
    return n == 0 && rd->follow && !over ? 0 : -1; /* at a gap the bytes end */
}
static const struct stream BYTES = {bytes_fill, NULL, NULL, 0};

static int range_bad(struct request *rq, uint64_t size, const char *why)
{
    (void)reply_header(rq, "Content-Range", "bytes */%" PRIu64, size);
    return request_refuse(rq, "range_invalid", NULL, "%s", why);
}

static int bytes_start(struct request *rq, struct reading *rd, const struct output_query *q)
{
    uint64_t size = rd->reader ? spool_stream_size(rd->reader, rd->stream) : 0, from, to;
    uint64_t resume = 0;
    char probe;
    int r = q->offset >= 0 ? 0 : range_parse(rq->head.range, size, &from, &to);

    if (r < 0)
        return range_bad(rq, size, "the range lies beyond the output");
    if (r == 1) {
        rd->offset = from;
        rd->left = to - from + 1 < rd->left ? to - from + 1 : rd->left;
        rd->follow = false;
        rq->reply.status = 206;
    } else if (q->offset >= 0) {
        rd->offset = (uint64_t)q->offset;
        if (rd->offset > size && !rd->follow)
            return range_bad(rq, size, "the offset lies beyond the output");
    }
    if (rd->reader &&
        spool_pread(rd->reader, rd->stream, rd->offset, &probe, 1, &resume) == -ENODATA) {
        request_extra(rq, "resume", json_integer((json_int_t)resume));
        rq->reply.status = 0;
        return range_bad(rq, size, "these bytes were dropped: a gap");
    }
    if (r == 1)
        (void)reply_header(rq, "Content-Range", "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, from,
                           from + rd->left - 1, size);
    (void)reply_header(rq, "Accept-Ranges", "bytes");
    (void)reply_enforcement(rq, json_object_get(rd->doc, "enforcement"));
    rq->reply.content_type = "application/octet-stream";
    request_stream(rq, &BYTES, rd->c && rd->follow ? command_watched(rd->c) : NULL);
    return 0;
}

/* ---- JSON, and the waiting before it ----------------------------------------------------------
 */

static int json_reply(struct request *rq, struct reading *rd)
{
    return reply_json(rq, 200,
                      json_pack("{s:o, s:I, s:b}", "frames", TAKE(rd->frames), "next_seq",
                                (json_int_t)rd->after + 1, "ended", rd->ended ? 1 : 0));
}

static bool has_more(struct reading *rd)
{
    struct spool_frame f;

    return is_over(rd) || (rd->reader && spool_next(rd->reader, rd->after, &f) == 1);
}

static int frames_start(struct request *rq, struct reading *rd)
{
    struct str none = {0};

    if (rd->form == FORM_JSON) {
        while (frames_take(rd, &none) == 1 && json_array_size(rd->frames) < 10000)
            ;
        str_done(&none);
        return json_reply(rq, rd);
    }
    rq->reply.content_type = rd->form == FORM_SSE ? "text/event-stream" : "application/x-ndjson";
    request_stream(rq, &FRAMES, rd->c && rd->follow ? command_watched(rd->c) : NULL);
    return 0;
}

static int reader_open(struct request *rq, struct reading *rd);

static void on_some(struct request *rq, enum wake why)
{
    struct reading *rd = rq->state;

    if (why == WAKE_GONE)
        return;
    if (!rd->reader)
        (void)reader_open(rq, rd);
    if (why == WAKE_TIMEOUT || has_more(rd))
        request_answer(rq, frames_start(rq, rd));
}

/* ---- The request ------------------------------------------------------------------------------
 */

static int form_choose(struct request *rq, enum form *ret)
{
    *ret = FORM_NDJSON;
    if (!rq->head.accept || !*rq->head.accept)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(FORMS); i++) {
        if (request_accepts(rq, FORMS[i].type)) {
            *ret = FORMS[i].form;
            return 0;
        }
    }
    return request_refuse(rq, "not_acceptable", NULL,
                          "application/x-ndjson, text/event-stream, application/json or "
                          "application/octet-stream");
}

static int reader_open(struct request *rq, struct reading *rd)
{
    int r = spool_reader_new(rq->api->d.spool_dir, rq->params[1], &rd->reader);

    if (r != -ENOENT)
        return r;
    rd->reader = NULL;
    if (rd->c && !command_is_ended(rd->c)) /* nothing written yet */
        return 0;
    return request_refuse(rq, "output_expired", NULL, "the output is kept no longer");
}

static int streams_allowed(struct request *rq, const struct reading *rd)
{
    return rd->form == FORM_JSON || !rd->follow ? 0 : api_stream_allowed(rq);
}

static int after_take(struct request *rq, struct reading *rd, const struct output_query *q)
{
    rd->after = (uint64_t)q->after;
    if (rd->form == FORM_SSE && rq->head.last_event_id &&
        parse_u64(rq->head.last_event_id, 0, 1ULL << 53, &rd->after) < 0)
        return request_bad_query(rq, "after", "format", "Last-Event-ID is no number of a frame");
    return 0;
}

static int reading_new(struct request *rq, struct reading **ret)
{
    const struct output_query *q = rq->args;
    struct reading *rd = calloc(1, sizeof *rd);
    int r;

    if (!rd)
        return -ENOMEM;
    rq->state = rd;
    rq->state_done = reading_done;
    if ((r = command_any(rq, &rd->c, &rd->doc)) < 0)
        return r;
    if (rd->c)
        command_ref(rd->c);
    rd->follow = q->follow;
    rd->left = q->max_bytes > 0 ? (uint64_t)q->max_bytes : UINT64_MAX;
    if ((r = form_choose(rq, &rd->form)) < 0 || (r = after_take(rq, rd, q)) < 0 ||
        (r = streams_allowed(rq, rd)) < 0 || (r = reader_open(rq, rd)) < 0)
        return r;
    rd->stream = q->stream >= 0 ? q->stream : rd->form == FORM_BYTES ? SPOOL_STDOUT : STREAM_ALL;
    if (rd->form == FORM_BYTES && rd->stream == STREAM_ALL)
        return request_bad_query(rq, "stream", "conflict", "bytes are of one stream");
    if (rd->form == FORM_JSON) {
        rd->frames = json_array();
        rd->follow = false;
        rd->left = q->max_bytes > 0 ? rd->left : 1 << 20;
    }
    *ret = rd;
    return 0;
}

int command_output(struct request *rq)
{
    const struct output_query *q = rq->args;
    struct reading *rd = NULL;
    int r = reading_new(rq, &rd);

    if (r < 0 || !rd)
        return r < 0 ? r : -ENOMEM;
    if (rd->form == FORM_BYTES)
        return bytes_start(rq, rd, q);
    if (q->wait_ms > 0 && !rd->follow && rd->c && !has_more(rd)) {
        request_park(rq, command_watched(rd->c), (uint64_t)q->wait_ms, on_some);
        return 0;
    }
    return frames_start(rq, rd);
}

/* ---- text{} of a record -----------------------------------------------------------------------
 */

/* N bytes without the character that their end cuts. */
static size_t whole_characters(const char *bytes, size_t n)
{
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = (unsigned char)bytes[n - back];
        if ((c & 0xc0) != 0x80)
            return back < (c >= 0xf0 ? 4U : c >= 0xe0 ? 3U : c >= 0xc0 ? 2U : 1U) ? n - back : n;
    }
    return n;
}

static json_t *stream_text(struct spool_reader *reader, enum spool_stream stream, int64_t max,
                           bool *ret_truncated, bool *ret_lossy)
{
    CLEANUP(str_done) struct str bytes = {0}, text = {0};
    uint64_t resume = 0;
    char *to = reader && max ? str_room(&bytes, (size_t)max) : NULL;
    ssize_t n;

    while (to && bytes.len < (size_t)max &&
           (n = spool_pread(reader, stream, bytes.len, to, (size_t)max - bytes.len, &resume)) > 0) {
        bytes.len += (size_t)n;
        to = bytes.data + bytes.len;
    }
    if (reader && spool_stream_size(reader, stream) > bytes.len) {
        *ret_truncated = true;
        bytes.len = bytes.len ? whole_characters(bytes.data, bytes.len) : 0;
    }
    if (text_put(&text, bytes.len ? bytes.data : "", bytes.len, ret_lossy) < 0)
        return json_string("");
    return json_loads(str_c(&text), JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
}

json_t *output_text(struct request *rq, const json_t *doc, int64_t max)
{
    const char *id = json_string_value(json_object_get(doc, "id"));
    struct spool_reader *reader = NULL;
    bool truncated = false, lossy = false;
    json_t *out, *err;

    /* Most commands of a tool print little or nothing: then no file is opened. */
    if (wrote(doc, "stdout_bytes") || wrote(doc, "stderr_bytes"))
        truncated = !id || spool_reader_new(rq->api->d.spool_dir, id, &reader) < 0;
    out = stream_text(reader, SPOOL_STDOUT, max, &truncated, &lossy);
    err = stream_text(reader, SPOOL_STDERR, max, &truncated, &lossy);
    spool_reader_free(reader);
    return json_pack("{s:o, s:o, s:b, s:b}", "stdout", out, "stderr", err, "truncated", truncated,
                     "lossy", lossy);
}
