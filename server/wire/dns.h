/* One question of a stub resolver, one answer of ours (RFC 1035; EDNS of RFC 6891). Pure; messages
 * of UDP, whole. A question names exactly one host; what else stands in the message is read, so
 * that a message that does not add up is refused, and not used.
 *
 *     struct dns_question q;
 *     int rcode = dns_question_get(bytes, n, &q);
 *     if (rcode < 0) …                     no answer at all: a response, or not even a header
 *     address = rcode == DNS_NOERROR && q.type == DNS_A ? … : NULL;
 *     n = dns_answer_put(&q, rcode, address, ttl, out);
 *
 * An answer without an address and with DNS_NOERROR says: the name is there, this type is not. */
#pragma once
#include "wire/host.h"

#define DNS_ANSWER_MAX 512

enum dns_type { DNS_A = 1, DNS_AAAA = 28 }; /* all others are none of ours */
enum dns_rcode {
    DNS_NOERROR = 0,
    DNS_FORMERR = 1,
    DNS_SERVFAIL = 2,
    DNS_NXDOMAIN = 3, /* also for what is no host: an address, odd bytes, the root */
    DNS_NOTIMP = 4,
    DNS_REFUSED = 5,
    DNS_BADVERS = 16
};

struct dns_question {
    uint16_t id, type;
    char host[HOST_MAX]; /* canonical; set only with DNS_NOERROR */
    bool wants_recursion, checking_disabled, has_edns, dnssec_ok;
    unsigned opcode;
    /* The question as it came, for the answer: a resolver compares it bit by bit. Empty when it
     * could not be read. */
    uint8_t raw[260];
    size_t raw_len;
};
/* An enum dns_rcode, -EBADMSG when nothing may be answered. */
int dns_question_get(const void *bytes, size_t n, struct dns_question *ret);
/* ADDRESS: 4 bytes for DNS_A, 16 for DNS_AAAA, NULL for none. Returns the length. */
size_t dns_answer_put(const struct dns_question *q, int rcode, const void *address, uint32_t ttl,
                      uint8_t ret[static DNS_ANSWER_MAX]);
