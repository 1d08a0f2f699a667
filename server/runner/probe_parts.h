/* What the probes of the network share. Private to probe.c and probe_redirect.c. */
#pragma once
#include "base/str.h"
#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>

#define PROBE_NETWORK_MS 2000

struct probe {
    uint32_t id;
    uint8_t kind;
    char *path, *text;
    uint32_t port;
    struct str answer; /* text of the answer */
};

/* probe.c. Each 0 (or a descriptor) or a negative errno. */
int probe_wait(int fd, short events); /* -ETIMEDOUT */
int probe_connect(int fd, const struct sockaddr *sa, socklen_t n);
int probe_address(const struct probe *p, struct sockaddr_storage *ret, socklen_t *ret_n);

/* probe_redirect.c */
int probe_name(struct probe *p);
int probe_end(struct probe *p);
int probe_stays(struct probe *p);
