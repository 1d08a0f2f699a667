/* Runs in: any. Reads: hostile. May block: no. */
#include "wire/socks.h"
#include <arpa/inet.h>
#include <string.h>

enum { V4 = 4, V5 = 5, CONNECT = 1 };
enum { NO_AUTHENTICATION = 0, NO_METHOD = 0xff };
enum { ADDRESS_V4 = 1, ADDRESS_NAME = 3, ADDRESS_V6 = 4 };
enum { V4_GRANTED = 0x5a, V4_REJECTED = 0x5b };
#define V4_TEXT_MAX 255 /* of the user id, and of the name */

void socks_init(struct socks *s)
{
    memset(s, 0, sizeof *s);
}

size_t socks_reply(const struct socks *s, enum socks_code code, uint8_t ret[static SOCKS_REPLY_MAX])
{
    memset(ret, 0, SOCKS_REPLY_MAX);
    if (s->version == V4) {
        ret[1] = code == SOCKS_OPENED ? V4_GRANTED : V4_REJECTED;
        return 8;
    }
    if (s->version != V5)
        return 0;
    ret[0] = V5;
    ret[1] = (uint8_t)code;
    ret[3] = ADDRESS_V4; /* bound to 0.0.0.0:0: where we dial from is nobody's concern inside */
    return 10;
}

size_t socks_answer(const struct socks *s, uint8_t ret[static SOCKS_REPLY_MAX])
{
    memcpy(ret, s->answer, SOCKS_REPLY_MAX);
    return s->answer_len;
}

static enum socks_result bad(struct socks *s, enum socks_code code, const char *why)
{
    s->why = why;
    s->answer_len = socks_reply(s, code, s->answer);
    return SOCKS_BAD;
}

static enum socks_result asked(struct socks *s, const char *host, size_t n, const uint8_t *port)
{
    s->name = host;
    s->name_len = n;
    s->kind = host_canonical(host, n, false, s->host);
    if (s->kind == HOST_BAD)
        return bad(s, SOCKS_FAILED, "the host is neither a name nor an address");
    s->port = (uint16_t)(port[0] << 8 | port[1]);
    if (s->port == 0)
        return bad(s, SOCKS_FAILED, "port 0 cannot be reached");
    return SOCKS_ASKED;
}

static enum socks_result asked_address(struct socks *s, int family, const uint8_t *address,
                                       const uint8_t *port)
{
    char text[INET6_ADDRSTRLEN];
    if (inet_ntop(family, address, text, sizeof text) == NULL)
        return bad(s, SOCKS_FAILED, "the address is none");
    enum socks_result r = asked(s, text, strlen(text), port);
    s->name = NULL;
    s->name_len = 0;
    return r;
}

/* VER, NMETHODS, METHODS (RFC 1928, 3). */
static enum socks_result greeting(struct socks *s)
{
    if (s->len < 2 || s->len < 2 + (size_t)s->in[1])
        return SOCKS_MORE;
    bool may_enter = memchr(s->in + 2, NO_AUTHENTICATION, s->in[1]) != NULL;
    s->answer[0] = V5;
    s->answer[1] = may_enter ? NO_AUTHENTICATION : NO_METHOD;
    s->answer_len = 2;
    s->len = 0;
    if (!may_enter) {
        s->why = "the client wants to authenticate itself, and nothing here takes a password";
        return SOCKS_BAD;
    }
    s->has_greeted = true;
    return SOCKS_GREETED;
}

/* VER, CMD, RSV, ATYP, DST.ADDR, DST.PORT (RFC 1928, 4). */
static enum socks_result request5(struct socks *s)
{
    const uint8_t *in = s->in;
    if (in[0] != V5)
        return bad(s, SOCKS_FAILED, "the request is not of SOCKS5, as the greeting was");
    if (s->len >= 2 && in[1] != CONNECT)
        return bad(s, SOCKS_NO_SUCH_COMMAND, "only CONNECT is known: no BIND, no UDP");
    if (s->len >= 3 && in[2] != 0)
        return bad(s, SOCKS_FAILED, "the reserved byte is not zero");
    if (s->len < 5)
        return SOCKS_MORE;
    switch (in[3]) {
    case ADDRESS_V4:
        return s->len < 10 ? SOCKS_MORE : asked_address(s, AF_INET, in + 4, in + 8);
    case ADDRESS_V6:
        return s->len < 22 ? SOCKS_MORE : asked_address(s, AF_INET6, in + 4, in + 20);
    case ADDRESS_NAME:
        if (s->len < 7 + (size_t)in[4])
            return SOCKS_MORE;
        return asked(s, (const char *)in + 5, in[4], in + 5 + in[4]);
    default:
        return bad(s, SOCKS_NO_SUCH_ADDRESS, "the address is of no known kind");
    }
}

/* VN, CD, DSTPORT, DSTIP, USERID, NUL; with 0.0.0.x for an address a name and a NUL follow. */
static enum socks_result request4(struct socks *s)
{
    const uint8_t *in = s->in;
    if (s->len >= 2 && in[1] != CONNECT)
        return bad(s, SOCKS_NO_SUCH_COMMAND, "only CONNECT is known: no BIND");
    if (s->len < 9)
        return SOCKS_MORE;
    const uint8_t *user = in + 8, *end = memchr(user, 0, s->len - 8);
    if (end == NULL)
        return s->len - 8 > V4_TEXT_MAX ? bad(s, SOCKS_FAILED, "the user's name does not end")
                                        : SOCKS_MORE;
    bool is_named = in[4] == 0 && in[5] == 0 && in[6] == 0 && in[7] != 0;
    if (!is_named)
        return asked_address(s, AF_INET, in + 4, in + 2);
    const uint8_t *name = end + 1;
    size_t n = (size_t)(in + s->len - name);
    end = memchr(name, 0, n);
    if (end == NULL)
        return n > V4_TEXT_MAX ? bad(s, SOCKS_FAILED, "the name does not end") : SOCKS_MORE;
    return asked(s, (const char *)name, (size_t)(end - name), in + 2);
}

static enum socks_result look(struct socks *s)
{
    if (s->version == 0) {
        if (s->in[0] != V4 && s->in[0] != V5)
            return bad(s, SOCKS_FAILED, "this is neither SOCKS4 nor SOCKS5");
        s->version = s->in[0];
    }
    if (s->version == V4)
        return request4(s);
    return s->has_greeted ? request5(s) : greeting(s);
}

enum socks_result socks_feed(struct socks *s, const void *bytes, size_t n, size_t *ret_used)
{
    const uint8_t *in = bytes;
    enum socks_result r = SOCKS_MORE;
    size_t used = 0;
    while (r == SOCKS_MORE && used < n) {
        /* No form reaches the end of the buffer: each is judged before. */
        if (s->len == sizeof s->in)
            r = bad(s, SOCKS_FAILED, "the request is too long");
        else {
            s->in[s->len++] = in[used++];
            r = look(s);
        }
    }
    *ret_used = used;
    return r;
}
