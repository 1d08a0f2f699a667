/* wire/dns: whatever is asked, the answer fits, repeats the question and is read as a response. */
#include "wire/dns.h"
#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t address[16] = {198, 18, 0, 7};
    struct dns_question q, again;
    uint8_t out[DNS_ANSWER_MAX];
    char host[HOST_MAX];
    int rcode = dns_question_get(data, size, &q);
    if (rcode < 0)
        return 0;
    assert((rcode == DNS_NOERROR) == (q.host[0] != '\0'));
    if (rcode == DNS_NOERROR) {
        assert(host_canonical(q.host, strlen(q.host), false, host) == HOST_NAME);
        assert(strcmp(q.host, host) == 0);
    }
    size_t n = dns_answer_put(&q, rcode, rcode == DNS_NOERROR ? address : NULL, 5, out);
    assert(n >= 12 && n <= sizeof out && out[0] == data[0] && out[1] == data[1]);
    assert((out[2] & 0x80) && (out[3] & 15) == (rcode & 15));
    assert(n >= 12 + q.raw_len && memcmp(out + 12, q.raw, q.raw_len) == 0);
    assert(dns_question_get(out, n, &again) < 0); /* never answered by one of us */
    return 0;
}
