/* Runs in: any. Reads: hostile. May block: no. */
#include "wire/tlshello.h"
#include <string.h>

enum { RECORD_HANDSHAKE = 22, MESSAGE_CLIENT_HELLO = 1 };
enum { EXTENSION_SERVER_NAME = 0, EXTENSION_ECH = 0xfe0d };
enum { NAME_HOST = 0 };
#define FRAGMENT_MAX     16384 /* RFC 8446, 5.1 */
#define SESSION_ID_MAX   32
#define EXTENSIONS_MAX   128 /* a browser sends 20 */
#define HANDSHAKE_HEADER 4

void tlshello_init(struct tlshello *h)
{
    memset(h, 0, sizeof *h);
    h->hello.max = HELLO_MAX;
}

void tlshello_done(struct tlshello *h)
{
    str_done(&h->hello);
}

static enum hello_result bad(struct tlshello *h, const char *why)
{
    h->why = why;
    h->name[0] = '\0';
    return HELLO_BAD;
}

/* ---- Bytes behind lengths -------------------------------------------------------------------- */

struct cut {
    const uint8_t *at;
    size_t left;
};

static bool cut_number(struct cut *c, size_t bytes, size_t *ret)
{
    if (c->left < bytes)
        return false;
    *ret = 0;
    for (size_t i = 0; i < bytes; i++)
        *ret = *ret << 8 | c->at[i];
    c->at += bytes;
    c->left -= bytes;
    return true;
}

/* A vector whose length stands in BYTES bytes before it: MIN..MAX bytes of it -> RET. */
static bool cut_vector(struct cut *c, size_t bytes, size_t min, size_t max, struct cut *ret)
{
    size_t n;
    if (!cut_number(c, bytes, &n) || n < min || n > max || n > c->left)
        return false;
    *ret = (struct cut){c->at, n};
    c->at += n;
    c->left -= n;
    return true;
}

/* ---- The message ----------------------------------------------------------------------------- */

/* RFC 6066, 3: a list, and of each type one name at most; the only type there is is a host's. */
static const char *server_name(struct tlshello *h, struct cut body)
{
    struct cut list, name;
    size_t type;
    if (!cut_vector(&body, 2, 1, 65535, &list) || body.left != 0)
        return "the list of server names has a wrong length";
    if (!cut_number(&list, 1, &type) || type != NAME_HOST ||
        !cut_vector(&list, 2, 1, 65535, &name) || list.left != 0)
        return "the server name is not one host's";
    if (host_canonical((const char *)name.at, name.left, false, h->name) == HOST_BAD)
        return "the server name is neither a name nor an address";
    return NULL;
}

static const char *extensions(struct tlshello *h, struct cut all)
{
    uint16_t seen[EXTENSIONS_MAX];
    size_t n = 0, type;
    while (all.left > 0) {
        struct cut body;
        const char *why = NULL;
        if (!cut_number(&all, 2, &type) || !cut_vector(&all, 2, 0, 65535, &body))
            return "an extension is cut off";
        for (size_t i = 0; i < n; i++)
            if (seen[i] == type)
                return "an extension comes twice"; /* RFC 8446, 4.2 */
        if (n == EXTENSIONS_MAX)
            return "too many extensions";
        seen[n++] = (uint16_t)type;
        if (type == EXTENSION_SERVER_NAME)
            why = server_name(h, body);
        else if (type == EXTENSION_ECH)
            h->has_ech = true;
        if (why)
            return why;
    }
    return NULL;
}

/* RFC 8446, 4.1.2, and the same of RFC 5246, where extensions may be missing. */
static const char *client_hello(struct tlshello *h, struct cut body)
{
    struct cut fixed = body, part;
    if (body.left < 34)
        return "the ClientHello is cut off";
    fixed.left = 34; /* legacy_version, random */
    body.at += fixed.left;
    body.left -= fixed.left;
    if (fixed.at[0] != 3)
        return "the ClientHello is of no known version";
    if (!cut_vector(&body, 1, 0, SESSION_ID_MAX, &part))
        return "the session id has a wrong length";
    if (!cut_vector(&body, 2, 2, 65534, &part) || part.left % 2 != 0)
        return "the cipher suites have a wrong length";
    if (!cut_vector(&body, 1, 1, 255, &part))
        return "the compression methods have a wrong length";
    if (body.left == 0)
        return NULL;
    if (!cut_vector(&body, 2, 0, 65535, &part) || body.left != 0)
        return "the extensions have a wrong length";
    return extensions(h, part);
}

static enum hello_result message(struct tlshello *h)
{
    const uint8_t *in = (const uint8_t *)h->hello.data;
    if (in[0] != MESSAGE_CLIENT_HELLO)
        return bad(h, "the first message is no ClientHello");
    if (h->hello.len < HANDSHAKE_HEADER)
        return HELLO_MORE;
    size_t n = (size_t)in[1] << 16 | (size_t)in[2] << 8 | in[3];
    if (n > HELLO_MAX - HANDSHAKE_HEADER)
        return bad(h, "the ClientHello is too long");
    if (h->hello.len < HANDSHAKE_HEADER + n)
        return HELLO_MORE;
    if (h->hello.len > HANDSHAKE_HEADER + n || h->fragment_len > 0)
        return bad(h, "something follows the ClientHello within its record");
    const char *why = client_hello(h, (struct cut){in + HANDSHAKE_HEADER, n});
    return why ? bad(h, why) : HELLO_DONE;
}

/* ---- Records --------------------------------------------------------------------------------- */

/* The first record's header tells TLS from all else; a later one must go on with the message. */
static enum hello_result header(struct tlshello *h, bool is_first)
{
    const uint8_t *in = h->record;
    size_t n = h->record_len;
    bool is_ours = in[0] == RECORD_HANDSHAKE && (n < 2 || in[1] == 3);
    if (!is_ours)
        return is_first ? HELLO_NOT_TLS : bad(h, "another record within the ClientHello");
    if (n < sizeof h->record)
        return HELLO_MORE;
    h->fragment_len = (size_t)in[3] << 8 | in[4];
    if (h->fragment_len == 0 || h->fragment_len > FRAGMENT_MAX)
        return bad(h, "a record has a wrong length");
    return HELLO_MORE;
}

enum hello_result tlshello_feed(struct tlshello *h, const void *bytes, size_t n)
{
    const uint8_t *in = bytes;
    enum hello_result r = HELLO_MORE;
    while (r == HELLO_MORE && n > 0) {
        if (h->fragment_len == 0) {
            h->record[h->record_len++] = *in++;
            n--;
            r = header(h, h->hello.len == 0);
            continue;
        }
        size_t take = n < h->fragment_len ? n : h->fragment_len;
        if (str_add(&h->hello, in, take) < 0)
            return bad(h, "the ClientHello is too long");
        in += take;
        n -= take;
        h->fragment_len -= take;
        if (h->fragment_len == 0)
            h->record_len = 0;
        r = message(h);
    }
    return r;
}
