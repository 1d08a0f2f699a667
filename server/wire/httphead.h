/* One HTTP/1 message head, byte-fed and strict (RFC 9112), and the length of its body. Pure.
 * Anything ambiguous is refused: bare CR, obsolete folding, space before a colon, control bytes,
 * Content-Length with Transfer-Encoding, two lengths, a transfer coding other than chunked. */
#pragma once
#include "base/str.h"
#include <stdbool.h>
#include <stdint.h>

#define HEAD_FIELDS_MAX 200

enum head_result { HEAD_BAD = -1, HEAD_MORE = 0, HEAD_DONE = 1 };
enum body_kind { BODY_NONE = 0, BODY_LENGTH, BODY_CHUNKED, BODY_UNTIL_CLOSE };
enum head_target {
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
    const char *target;
    size_t target_len;
    enum head_target target_kind;
    int status;
    struct head_field fields[HEAD_FIELDS_MAX];
    size_t n_fields;
    enum body_kind body;
    uint64_t body_len;
    bool keep_alive, expect_continue, upgrade;
    /* internal */
    size_t scanned;
};
void httphead_init(struct httphead *h, size_t max, bool is_response);
/* Takes bytes up to the end of the head; *ret_used says how many. */
enum head_result httphead_feed(struct httphead *h, const char *bytes, size_t n, size_t *ret_used);
const struct head_field *httphead_find(const struct httphead *h, const char *name); /* the first */
size_t httphead_count(const struct httphead *h, const char *name);
void httphead_done(struct httphead *h);

/* Chunked bodies (RFC 9112, 7.1), strict; passes the bytes through unchanged and only says where
 * the body ends. */
struct chunks {
    int state;
    uint64_t left;
    size_t line; /* bytes of the present line, bounded */
};
void chunks_init(struct chunks *c);
enum head_result chunks_feed(struct chunks *c, const char *bytes, size_t n, size_t *ret_used);
