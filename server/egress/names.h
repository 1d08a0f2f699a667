/* Addresses that stand for names inside a session: one of 198.18.0.0/15 and one of a fixed ULA /64
 * for each name that was asked for, for as long as the session lasts. A name never gets another
 * address, an address never another name; when the table is full, further names get none. Pure.
 *
 * The names are kept in memory that its owner gives, and which outlives an egress that dies: the
 * daemon has it for as long as the sandbox lasts (M_EG_NAMES), and the next one reads it again.
 *
 * 198.18.0.0/24 is left out: the namespace's own address is 198.18.0.1. */
#pragma once
#include "wire/host.h"
#include "wire/synthetic.h"
#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>

#define NAMES_MAX      SYNTHETIC_NAMES
#define NAMES_BYTES    SYNTHETIC_NAMES_BYTES
#define NAMES_V4_FIRST SYNTHETIC_V4_NAMES

struct names;
/* SEED: any number nobody inside knows, so that names cannot be chosen to meet in one slot. */
/* MEMORY: NAMES_BYTES, zero or as a table before left it; borrowed for life. */
int names_new(uint64_t seed, void *memory, struct names **ret);
void names_free(struct names *n);
/* The addresses of a canonical host; -ENOSPC when the table is full. */
int names_address(struct names *n, const char *host, struct in_addr *ret4, struct in6_addr *ret6);
/* The name SA stands for (its port is not looked at), or NULL. Lives as long as N. */
const char *names_host(const struct names *n, const struct sockaddr *sa);
/* A client of the proxy that looked a name up by itself asks for the address that stands for it:
 * HOST, canonical, becomes that name. -ENOENT: such an address, and it stands for none. */
int names_settle(const struct names *n, char host[static HOST_MAX]);
