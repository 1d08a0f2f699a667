/* One HTTP/1 message head, byte-fed and strict (RFC 9112), and the length of its body. Pure.
 * Anything ambiguous is refused: bare CR or LF, obsolete folding, space before a colon, control
 * bytes, two Host fields, Content-Length with Transfer-Encoding, two lengths, a transfer coding
 * other than chunked.
 *
 *     struct httphead h;
 *     httphead_init(&h, 65536, false);
 *     switch (httphead_feed(&h, bytes, n, &used)) {
 *     case HEAD_DONE: … h.target, httphead_find(&h, "host") …; the body starts at bytes + used
 *     case HEAD_MORE: all N were used; feed the next bytes
 *     case HEAD_BAD:  h.why says what is wrong; nothing behind it may be believed
 *     }
 *     httphead_done(&h);
 *
 * All pointers point into raw and live until httphead_done() or the next httphead_init(). */
#pragma once
#include "base/str.h"
#include <stdbool.h>
#include <stdint.h>

#define HEAD_FIELDS_MAX 200

enum head_result { HEAD_BAD = -1, HEAD_MORE = 0, HEAD_DONE = 1 };
enum body_kind { BODY_NONE = 0, BODY_LENGTH, BODY_CHUNKED, BODY_UNTIL_CLOSE };
enum head_target { /* the four forms of RFC 9112, 3.2 */
                   TARGET_BAD = 0,
                   TARGET_AUTHORITY,
                   TARGET_ABSOLUTE,
                   TARGET_ORIGIN,
                   TARGET_ASTERISK
};

struct head_field {
    const char *name;
    size_t name_len;
    const char *value;
    size_t value_len; /* without the white space around it */
};
struct httphead {
    struct str raw; /* what was fed, up to and with the empty line */
    size_t max;     /* larger heads are HEAD_BAD with too_large */
    bool is_response, too_large;
    const char *why; /* a constant text, after HEAD_BAD */
    int minor;       /* HTTP/1.MINOR */
    const char *method;
    size_t method_len;
    const char *target; /* visible ASCII only */
    size_t target_len;
    enum head_target target_kind;
    int status; /* 100..599 */
    struct head_field fields[HEAD_FIELDS_MAX];
    size_t n_fields;
    /* A request's as it is. A response's as if it answered GET: who sent HEAD knows that none
     * comes. A response without a length is BODY_UNTIL_CLOSE. */
    enum body_kind body;
    uint64_t body_len; /* bytes, of BODY_LENGTH */
    bool keep_alive;   /* the sender's wish: by version and Connection */
    bool expect_continue;
    bool upgrade; /* an Upgrade field, and Connection names it */
    /* internal */
    unsigned end; /* how much of the CR LF CR LF at the end was seen; 4 = all */
    unsigned skipped;
};
void httphead_init(struct httphead *h, size_t max, bool is_response);
/* Takes bytes up to the end of the head; *ret_used says how many. Not to be called again after
 * HEAD_DONE or HEAD_BAD. */
enum head_result httphead_feed(struct httphead *h, const char *bytes, size_t n, size_t *ret_used);
/* The first field of that name (any case), or NULL. */
const struct head_field *httphead_find(const struct httphead *h, const char *name);
size_t httphead_count(const struct httphead *h, const char *name);
/* Is TOKEN (any case) an element of one of the comma-separated fields NAME? */
bool httphead_has_token(const struct httphead *h, const char *name, const char *token, size_t n);
bool head_field_is(const struct head_field *f, const char *name); /* any case */
void httphead_done(struct httphead *h);

/* Chunked bodies (RFC 9112, 7.1), strict; passes the bytes through unchanged and only says where
 * the body ends. Extensions and trailer fields are bounded and may not hold control bytes. */
#define CHUNK_LINE_MAX    4096
#define CHUNK_TRAILER_MAX 16384 /* the whole trailer section */
struct chunks {
    int state;
    uint64_t left; /* bytes of the present chunk still to come */
    size_t line;   /* bytes of the present line, or of the trailer section */
    unsigned digits;
};
void chunks_init(struct chunks *c);
/* How many of the bytes to come are data of the present chunk; 0 = the next one is framing. */
uint64_t chunks_data(const struct chunks *c);
/* HEAD_DONE with *ret_used behind the last byte of the body; HEAD_BAD ends the message. */
enum head_result chunks_feed(struct chunks *c, const char *bytes, size_t n, size_t *ret_used);
