/* Runs in: egress. Reads: hostile (questions from inside). May block: no. */
#include "egress/nameserver.h"
#include "egress/egress.h"
#include "egress/names.h"
#include "wire/dns.h"
#include <errno.h>
#include <string.h>

#define QUESTIONS_A_TURN 32
#define QUESTION_MAX     1232 /* what EDNS clients use (RFC 6891, 6.2.5) */

static bool is_localhost(const char *host)
{
    static const char name[] = "localhost";
    size_t n = strlen(host), m = sizeof name - 1;
    return n >= m && strcmp(host + n - m, name) == 0 && (n == m || host[n - m - 1] == '.');
}

/* Told once: what is refused then are names, not a connection. */
static void tell_full(struct egress *eg, const char *host)
{
    struct pack p = {0};
    if (eg->told_full)
        return;
    eg->told_full = true;
    pack_u32(&p, 0);
    pack_str(&p, host);
    pack_str(&p, "this session asked for too many different names: further ones get no address");
    link_send(&eg->link, M_EG_REFUSED, &p);
}

/* The bytes of the address that stands for Q's name, NULL for none; *rcode may become an error. */
static const void *address_of(struct egress *eg, const struct dns_question *q, int *rcode,
                              struct in_addr *v4, struct in6_addr *v6)
{
    if (*rcode != DNS_NOERROR || (q->type != DNS_A && q->type != DNS_AAAA) ||
        (q->type == DNS_AAAA && !eg->has_ipv6))
        return NULL;
    if (is_localhost(q->host)) {
        v4->s_addr = htonl(INADDR_LOOPBACK);
        *v6 = in6addr_loopback;
    } else {
        int r = names_address(eg->names, q->host, v4, v6);
        if (r == -ENOSPC)
            tell_full(eg, q->host);
        if (r < 0) {
            *rcode = DNS_SERVFAIL;
            return NULL;
        }
    }
    return q->type == DNS_A ? (const void *)v4 : (const void *)v6;
}

/* False when there is none. */
static bool question_answer(struct egress *eg, int fd)
{
    uint8_t in[QUESTION_MAX + 1], out[DNS_ANSWER_MAX];
    struct sockaddr_storage from;
    socklen_t n_from = sizeof from;
    struct dns_question q;
    struct in_addr v4;
    struct in6_addr v6;
    ssize_t n = recvfrom(fd, in, sizeof in, 0, (struct sockaddr *)&from, &n_from);
    if (n < 0)
        return errno == EINTR;
    int rcode = n > QUESTION_MAX ? -EBADMSG : dns_question_get(in, (size_t)n, &q);
    if (rcode < 0)
        return true;
    const void *address = address_of(eg, &q, &rcode, &v4, &v6);
    size_t len = dns_answer_put(&q, rcode, address, NAMESERVER_TTL, out);
    /* One that does not fit into the client's buffer is lost: it asks again. */
    (void)sendto(fd, out, len, MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)&from, n_from);
    return true;
}

static void question_ready(void *arg, struct peer *p, int events)
{
    (void)events;
    for (int i = 0; i < QUESTIONS_A_TURN && question_answer(arg, p->fd); i++)
        ;
    peer_want(p, UV_READABLE); /* also after an error */
}

int nameserver_new(struct egress *eg, int take_fd, struct peer **ret)
{
    return peer_new(eg->loop, take_fd, question_ready, eg, ret);
}
