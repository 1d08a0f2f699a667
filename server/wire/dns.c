/* Runs in: any. Reads: hostile. May block: no. */
#include "wire/dns.h"
#include <errno.h>
#include <string.h>

enum { HEADER = 12, CLASS_IN = 1, TYPE_OPT = 41 };
enum { LABEL_MAX = 63, NAME_MAX_WIRE = 255, LABEL_POINTER = 0xc0 };
enum { EDNS_SIZE = 1232, EDNS_DO = 0x8000 };
#define ADDITIONAL_MAX 4 /* OPT, and perhaps a signature */

struct reader {
    const uint8_t *in;
    size_t n, at;
};

static bool get16(struct reader *r, uint16_t *ret)
{
    if (r->n - r->at < 2)
        return false;
    *ret = (uint16_t)(r->in[r->at] << 8 | r->in[r->at + 1]);
    r->at += 2;
    return true;
}

static bool skip(struct reader *r, size_t n)
{
    if (r->n - r->at < n)
        return false;
    r->at += n;
    return true;
}

/* The name of the question, written out; one that points elsewhere in a message that has nothing
 * before it is nonsense. RET gets the labels with dots between them, and *ret_n 0 where a label
 * holds a dot itself, which would read as two. */
static bool name_get(struct reader *r, char ret[static NAME_MAX_WIRE], size_t *ret_n)
{
    size_t n = 0, start = r->at;
    bool has_odd_dot = false;
    for (;;) {
        if (r->at >= r->n)
            return false;
        size_t label = r->in[r->at++];
        if (label == 0)
            break;
        if (label > LABEL_MAX || r->n - r->at < label || r->at + label - start >= NAME_MAX_WIRE)
            return false;
        if (n > 0)
            ret[n++] = '.';
        memcpy(ret + n, r->in + r->at, label);
        has_odd_dot |= memchr(r->in + r->at, '.', label) != NULL;
        n += label;
        r->at += label;
    }
    *ret_n = has_odd_dot ? 0 : n;
    return true;
}

/* A name in another record, which may point back to the question. */
static bool name_skip(struct reader *r)
{
    while (r->at < r->n) {
        size_t label = r->in[r->at++];
        if (label == 0)
            return true;
        if ((label & LABEL_POINTER) == LABEL_POINTER)
            return skip(r, 1);
        if (label > LABEL_MAX || !skip(r, label))
            return false;
    }
    return false;
}

/* RFC 6891, 6.1: at most one OPT, of the root's name; its flags say version and DO. */
static int additional_get(struct reader *r, struct dns_question *q)
{
    size_t start = r->at;
    uint16_t type, size, ttl_high, ttl_low, length;
    if (!name_skip(r) || !get16(r, &type) || !get16(r, &size) || !get16(r, &ttl_high) ||
        !get16(r, &ttl_low) || !get16(r, &length) || !skip(r, length))
        return DNS_FORMERR;
    if (type != TYPE_OPT)
        return DNS_NOERROR;
    if (q->has_edns || r->in[start] != 0)
        return DNS_FORMERR;
    q->has_edns = true;
    q->dnssec_ok = (ttl_low & EDNS_DO) != 0;
    return (ttl_high & 0xff) != 0 ? DNS_BADVERS : DNS_NOERROR;
}

static int question_get(struct reader *r, struct dns_question *q, uint16_t *ret_class, char *name,
                        size_t *ret_n)
{
    size_t start = r->at;
    if (!name_get(r, name, ret_n) || !get16(r, &q->type) || !get16(r, ret_class))
        return DNS_FORMERR;
    q->raw_len = r->at - start;
    memcpy(q->raw, r->in + start, q->raw_len);
    return DNS_NOERROR;
}

int dns_question_get(const void *bytes, size_t n, struct dns_question *ret)
{
    struct reader r = {.in = bytes, .n = n};
    struct dns_question q = {0};
    uint16_t flags, questions, answers, authorities, additionals, class;
    char name[NAME_MAX_WIRE];
    size_t name_len;
    if (!get16(&r, &q.id) || !get16(&r, &flags) || !get16(&r, &questions) || !get16(&r, &answers) ||
        !get16(&r, &authorities) || !get16(&r, &additionals))
        return -EBADMSG;
    if (flags & 0x8000) /* a response: two of us would answer each other for ever */
        return -EBADMSG;
    q.opcode = flags >> 11 & 15;
    q.wants_recursion = flags >> 8 & 1;
    q.checking_disabled = flags >> 4 & 1;
    *ret = q;
    if (q.opcode != 0)
        return DNS_NOTIMP;
    if (questions != 1 || answers != 0 || authorities != 0 || additionals > ADDITIONAL_MAX)
        return DNS_FORMERR;
    int rcode = question_get(&r, &q, &class, name, &name_len);
    for (; rcode == DNS_NOERROR && additionals > 0; additionals--)
        rcode = additional_get(&r, &q);
    if (rcode == DNS_NOERROR && r.at != r.n)
        rcode = DNS_FORMERR;
    if (rcode == DNS_NOERROR && class != CLASS_IN)
        rcode = DNS_REFUSED;
    if (rcode == DNS_NOERROR && host_canonical(name, name_len, false, q.host) != HOST_NAME)
        rcode = DNS_NXDOMAIN;
    if (rcode != DNS_NOERROR)
        q.host[0] = '\0';
    *ret = q;
    return rcode;
}

static size_t put16(uint8_t *out, size_t at, unsigned value)
{
    out[at] = (uint8_t)(value >> 8);
    out[at + 1] = (uint8_t)value;
    return at + 2;
}

static size_t put_address(uint8_t *out, size_t at, uint16_t type, const void *address, uint32_t ttl)
{
    size_t n = type == DNS_A ? 4 : 16;
    at = put16(out, at, LABEL_POINTER << 8 | HEADER); /* the question's name */
    at = put16(out, at, type);
    at = put16(out, at, CLASS_IN);
    at = put16(out, at, ttl >> 16);
    at = put16(out, at, ttl & 0xffff);
    at = put16(out, at, (unsigned)n);
    memcpy(out + at, address, n);
    return at + n;
}

static size_t put_edns(uint8_t *out, size_t at, int rcode, bool dnssec_ok)
{
    out[at++] = 0;
    at = put16(out, at, TYPE_OPT);
    at = put16(out, at, EDNS_SIZE);
    at = put16(out, at, (unsigned)rcode >> 4 << 8); /* the upper bits of it; version 0 */
    at = put16(out, at, dnssec_ok ? EDNS_DO : 0);
    return put16(out, at, 0);
}

size_t dns_answer_put(const struct dns_question *q, int rcode, const void *address, uint32_t ttl,
                      uint8_t ret[static DNS_ANSWER_MAX])
{
    bool has_answer = rcode == DNS_NOERROR && address != NULL && q->raw_len > 0 &&
                      (q->type == DNS_A || q->type == DNS_AAAA);
    unsigned flags = 0x8080u | q->opcode << 11 | (unsigned)q->wants_recursion << 8 |
                     (unsigned)q->checking_disabled << 4 | ((unsigned)rcode & 15);
    size_t at = put16(ret, 0, q->id);
    at = put16(ret, at, flags); /* a response, recursion available */
    at = put16(ret, at, q->raw_len > 0);
    at = put16(ret, at, has_answer);
    at = put16(ret, at, 0);
    at = put16(ret, at, q->has_edns);
    memcpy(ret + at, q->raw, q->raw_len);
    at += q->raw_len;
    if (has_answer)
        at = put_address(ret, at, q->type, address, ttl);
    if (q->has_edns)
        at = put_edns(ret, at, rcode, q->dnssec_ok);
    return at;
}
