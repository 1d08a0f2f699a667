/* Runs in: daemon. Reads: hostile (what commands wrote). May block: no.
 *
 * Output as JSON, written byte by byte: one copy from the spool to the reader. */
#include "api/command_parts.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>

static const char *const KINDS[] = {"data", "gap", "note", "end"};

/* Bytes of the UTF-8 sequence at S (RFC 3629), 0 when there is none. */
static size_t utf8_length(const char *s, size_t n)
{
    unsigned char c = (unsigned char)s[0];
    size_t len = c < 0x80 ? 1 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 0;

    return len && len <= n && utf8_is_valid(s, len) ? len : 0;
}

static int escape_put(struct str *out, unsigned char c)
{
    static const char SHORT[] = "\"\"\\\\\bb\ff\nn\rr\tt";

    for (size_t i = 0; SHORT[i]; i += 2)
        if ((unsigned char)SHORT[i] == c)
            return str_putc(out, '\\') < 0 ? -ENOMEM : str_putc(out, SHORT[i + 1]);
    return str_printf(out, "\\u%04x", c);
}

static bool is_plain(char c)
{
    return (unsigned char)c >= 0x20 && (unsigned char)c < 0x7f && c != '"' && c != '\\';
}

int text_put(struct str *out, const char *bytes, size_t n, bool *ret_lossy)
{
    int r = str_putc(out, '"');

    for (size_t i = 0; i < n && r >= 0;) {
        size_t run = 0, len;
        while (i + run < n && is_plain(bytes[i + run]))
            run++;
        if (run) {
            r = str_add(out, bytes + i, run);
            i += run;
            continue;
        }
        len = utf8_length(bytes + i, n - i);
        if (len == 1)
            r = escape_put(out, (unsigned char)bytes[i]);
        else if (len)
            r = str_add(out, bytes + i, len);
        else
            r = str_puts(out, "\xef\xbf\xbd");
        *ret_lossy |= len == 0;
        i += len ? len : 1;
    }
    return r < 0 ? r : str_putc(out, '"');
}

const char *frame_kind(const struct spool_frame *f)
{
    static _Thread_local char kind[24];
    const char *at;

    if (f->kind != SPOOL_NOTE)
        return KINDS[f->kind];
    /* A note is an object of the daemon's own that names its kind. */
    at = memmem(f->bytes, f->len, "\"kind\":\"", 8);
    kind[0] = '\0';
    for (size_t i = 0; at && i < sizeof kind - 1 && at[8 + i] >= 'a' && at[8 + i] <= 'z'; i++) {
        kind[i] = at[8 + i];
        kind[i + 1] = '\0';
    }
    return kind[0] ? kind : "note";
}

static int data_put(struct str *out, const struct spool_frame *f)
{
    bool lossy = false;
    int r = str_printf(out, ",\"kind\":\"data\",\"stream\":\"%s\",\"off\":%" PRIu64,
                       SPOOL_STREAM_NAMES[f->stream], f->off);

    if (r < 0)
        return r;
    if (utf8_is_valid(f->bytes, f->len)) {
        r = str_puts(out, ",\"text\":");
        return r < 0 ? r : text_put(out, f->bytes, f->len, &lossy);
    }
    r = str_puts(out, ",\"b64\":\"");
    if (r >= 0)
        r = str_put_base64(out, f->bytes, f->len);
    return r < 0 ? r : str_putc(out, '"');
}

/* The members of the object that a note or an end holds, without its opening brace. */
static int members_put(struct str *out, const struct spool_frame *f)
{
    bool is_empty = f->len < 3 || f->bytes[0] != '{';
    int r = f->kind == SPOOL_END ? str_puts(out, ",\"kind\":\"end\"") : 0;

    if (r < 0 || is_empty)
        return r;
    r = str_putc(out, ',');
    return r < 0 ? r : str_add(out, f->bytes + 1, f->len - 2); /* its last byte is '}' */
}

int output_frame_put(struct str *out, const struct spool_frame *f)
{
    int r = str_printf(out, "{\"seq\":%" PRIu64 ",\"t_ms\":%" PRIu64, f->seq, f->t_ms);

    if (r < 0)
        return r;
    if (f->kind == SPOOL_DATA)
        r = data_put(out, f);
    else if (f->kind == SPOOL_GAP)
        r = str_printf(out,
                       ",\"kind\":\"gap\",\"stream\":\"%s\",\"from\":%" PRIu64 ",\"to\":%" PRIu64,
                       SPOOL_STREAM_NAMES[f->stream], f->off, f->to);
    else
        r = members_put(out, f);
    return r < 0 ? r : str_putc(out, '}');
}

int frame_put_lost(struct str *out, uint64_t seq, const json_t *doc)
{
    const json_t *result = json_object_get(doc, "result");
    json_t *frame =
        json_pack("{s:I, s:i, s:s, s:O, s:O?}", "seq", (json_int_t)seq, "t_ms", 0, "kind", "end",
                  "state", json_object_get(doc, "state"), "result", result);
    char *text = frame ? json_dumps(frame, JSON_COMPACT) : NULL;
    int r = text ? str_puts(out, text) : -ENOMEM;

    json_decref(frame);
    free(text);
    return r;
}
