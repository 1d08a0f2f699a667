/* The REST side of the daemon: listeners, routes, auth. daemon/main makes one. */
#pragma once
#include "session/session.h"
#include <uv.h>

struct api;
struct api_deps {
    uv_loop_t *loop;
    struct db *db;
    struct settings *settings;
    struct sessions *sessions;
    const struct machine *machine;
    int port; /* the first to try; PORT_FIXED: only that */
    bool port_fixed;
    const char *socket_path; /* checked for length by the caller */
    const char *token_path;  /* the owner's token; made when absent */
    const char *spool_dir;
    const char *instance_id, *version;
    void (*shutdown)(uint64_t drain_ms, void *arg); /* POST /shutdown */
    void *arg;
};
/* Listens on 127.0.0.1 and ::1 (the same port on both) and on the socket. ERR names what was in the
 * way. */
int api_new(const struct api_deps *deps, struct api **ret, struct err *err);
uint16_t api_port(const struct api *a);
void api_close(struct api *a, void (*closed)(void *arg), void *arg); /* ends streams, frees */
