/* Canonical host and port, and what kind of address one is. Pure; used by egress, policy and cli.
 *
 * Canonical host: lower case, one root dot taken off, labels of letters, digits, '-' and '_'
 * (1..63, at most 253 in all, RFC 1035 2.3.4), or an address: IPv4 in dotted quad only (octal, hex,
 * short and decimal forms are refused, RFC 6943 3.1.1), IPv6 in RFC 5952 form without brackets.
 * Anything else (NUL, percent, space, userinfo, bytes >= 0x80) is refused. Names typed by people go
 * through wire/idna first. A name whose last label is a number is refused (it would be read as an
 * address). */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define HOST_MAX 256

enum host_kind { HOST_BAD = 0, HOST_NAME, HOST_V4, HOST_V6 };

/* N bytes of HOST -> RET. IPv6 stands in brackets when BRACKETED (authority-form, URIs), without
 * them when not; the other way is HOST_BAD. A scope ("%eth0") is refused. RET is written only on
 * success. */
enum host_kind host_canonical(const char *host, size_t n, bool bracketed,
                              char ret[static HOST_MAX]);
/* authority-form "host:port" (RFC 9112, 3.2.3). Port 1..65535 in digits, no leading zero or sign.
 * DEFAULT_PORT 0 = a port is mandatory. HOST_BAD on anything else. */
enum host_kind host_port_parse(const char *text, size_t n, uint16_t default_port,
                               char ret[static HOST_MAX], uint16_t *ret_port);
/* "host:port" or "[v6]:port". */
void host_port_text(const char *host, uint16_t port, char ret[static HOST_MAX + 10]);

/* Classes of addresses that are refused, and ADDR_PUBLIC. IANA special-purpose registries. An IPv4
 * address hidden in a v6 form is judged as that address: mapped and NAT64 (64:ff9b::/96) wholly;
 * compatible, 6to4 and Teredo forms, by which no real service is reached, are refused even where
 * the address itself would be ordinary. What is not allocated is refused. */
enum addr_class {
    ADDR_UNKNOWN = 0, /* refused */
    ADDR_PUBLIC,
    ADDR_PRIVATE, /* RFC 1918, fc00::/7: allowed with allow_private */
    ADDR_LOOPBACK,
    ADDR_UNSPECIFIED,
    ADDR_LINK_LOCAL,
    ADDR_MULTICAST,
    ADDR_METADATA,    /* 169.254.169.254, fd00:ec2::254 and the other clouds' */
    ADDR_CARRIER_NAT, /* 100.64/10 */
    ADDR_RESERVED,    /* 240/4, broadcast, benchmarking 198.18/15, discard, … */
    ADDR_OWN          /* this host's own; decided by who knows them, never by addr_class() */
};
enum addr_class addr_class(const struct sockaddr *sa);
const char *addr_class_name(enum addr_class c); /* "private", "link-local" … */
