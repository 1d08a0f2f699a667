/* A bare libmicrohttpd server with the answer of GET /v1/health: what ours is compared with.
 * bench_mhd PORT */
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum MHD_Result answer(void *cls, struct MHD_Connection *c, const char *url,
                              const char *method, const char *version, const char *data,
                              size_t *size, void **state)
{
    static int seen;
    static const char BODY[] =
        "{\"status\":\"ok\",\"instance_id\":\"srv_01J00000000000000000000000\"}";
    (void)cls, (void)url, (void)method, (void)version, (void)data, (void)size;
    if (!*state) {
        *state = &seen;
        return MHD_YES;
    }
    struct MHD_Response *r = MHD_create_response_from_buffer(
        sizeof BODY - 1, (void *)(uintptr_t)BODY, MHD_RESPMEM_PERSISTENT);
    MHD_add_response_header(r, "Content-Type", "application/json");
    enum MHD_Result q = MHD_queue_response(c, 200, r);
    MHD_destroy_response(r);
    return q;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    struct MHD_Daemon *d =
        MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_INTERNAL_POLLING_THREAD, (uint16_t)atoi(argv[1]),
                         NULL, NULL, answer, NULL, MHD_OPTION_END);
    if (!d)
        return 1;
    puts("up");
    fflush(stdout);
    (void)pause();
    MHD_stop_daemon(d);
    return 0;
}
