/* What a SOCKS client says first, byte-fed: SOCKS5 greeting and CONNECT without authentication (RFC
 * 1928), SOCKS4 and SOCKS4a CONNECT. Pure. The host is canonical as in wire/host, whether it came
 * as a name or an address; one that is not is refused, with all that stands behind a NUL, a space,
 * a percent sign or '@'.
 *
 *     struct socks s;
 *     socks_init(&s);
 *     switch (socks_feed(&s, bytes, n, &used)) {
 *     case SOCKS_MORE:    all N were used; feed the next bytes
 *     case SOCKS_GREETED: send socks_answer(&s, …), feed on with what stands behind bytes + used
 *     case SOCKS_ASKED:   … s.host, s.port …; later socks_reply(&s, code, …); the client's own
 * bytes start at bytes + used case SOCKS_BAD:     send socks_answer(&s, …), if it is not empty, and
 * close; s.why says why
 *     } */
#pragma once
#include "wire/host.h"

#define SOCKS_REQUEST_MAX 520 /* of SOCKS4a: 8, 255 and a NUL, 255 and a NUL */
#define SOCKS_REPLY_MAX   10

enum socks_result { SOCKS_BAD = -1, SOCKS_MORE = 0, SOCKS_GREETED, SOCKS_ASKED };

/* RFC 1928, 6. SOCKS4 has but granted and rejected. */
enum socks_code {
    SOCKS_OPENED = 0,
    SOCKS_FAILED,
    SOCKS_NOT_ALLOWED,
    SOCKS_NET_UNREACHABLE,
    SOCKS_HOST_UNREACHABLE,
    SOCKS_REFUSED,
    SOCKS_TIMED_OUT,
    SOCKS_NO_SUCH_COMMAND,
    SOCKS_NO_SUCH_ADDRESS
};

struct socks {
    uint8_t version; /* 4 or 5; 0 = neither, nothing is answered */
    bool has_greeted;
    enum host_kind kind;
    char host[HOST_MAX];
    uint16_t port;
    const char *why;  /* a constant text, after SOCKS_BAD */
    const char *name; /* the host's name as it came, or NULL; within this */
    size_t name_len;
    /* internal */
    uint8_t in[SOCKS_REQUEST_MAX];
    size_t len;
    uint8_t answer[SOCKS_REPLY_MAX];
    size_t answer_len;
};
void socks_init(struct socks *s);
/* Not to be called again after SOCKS_ASKED or SOCKS_BAD. N may be 0. */
enum socks_result socks_feed(struct socks *s, const void *bytes, size_t n, size_t *ret_used);
/* What to send after SOCKS_GREETED and SOCKS_BAD; how many bytes. */
size_t socks_answer(const struct socks *s, uint8_t ret[static SOCKS_REPLY_MAX]);
/* The reply to what was asked, in the client's version. */
size_t socks_reply(const struct socks *s, enum socks_code code,
                   uint8_t ret[static SOCKS_REPLY_MAX]);
