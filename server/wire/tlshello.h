/* The server name that a TLS client asks for: the first bytes of a connection, byte-fed, up to the
 * end of its ClientHello, however it is cut into records (RFC 8446, 4.1.2 and 5.1; RFC 6066, 3).
 * Pure. Nothing is taken away: who feeds it passes the same bytes on.
 *
 * Strict where a server might read another name than we do: two server names, an extension that
 * comes twice, lengths that do not agree, empty or foreign records in between are HELLO_BAD, and
 * such a connection must not go on. With Encrypted Client Hello the name is the outer one, the only
 * one there is to see: it is what it is, has_ech says so. */
#pragma once
#include "base/str.h"
#include "wire/host.h"

#define HELLO_MAX 65536 /* a longer ClientHello is HELLO_BAD */

enum hello_result {
    HELLO_BAD = -1, /* TLS, but not as it should be: why says what; close */
    HELLO_MORE = 0,
    HELLO_DONE,   /* a ClientHello: name, or none */
    HELLO_NOT_TLS /* something else, or a hello so old that it has no names */
};

struct tlshello {
    char name[HOST_MAX]; /* canonical; empty = the client named none */
    bool has_ech;
    const char *why; /* a constant text, after HELLO_BAD */
    /* internal */
    struct str hello; /* the handshake message so far, without record headers */
    uint8_t record[5];
    size_t record_len;   /* of the present record's header, what was read */
    size_t fragment_len; /* of the present record, what is still to come */
};
void tlshello_init(struct tlshello *h);
/* Not to be called again after anything but HELLO_MORE. */
enum hello_result tlshello_feed(struct tlshello *h, const void *bytes, size_t n);
void tlshello_done(struct tlshello *h);
