/* What the command line's HTTP client makes of an answer: it comes to an end, within its bounds. */
#include "cli/httpc.h"
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int pair[2];
    struct httpc_request rq = {.method = "GET", .target = "/v1/health", .if_match = -1};
    if (size > 60000) /* what a socket holds without a reader */
        return 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        abort();
    struct httpc h = {.fd = pair[0], .body.max = (size_t)1 << 20};
    if (httpc_send(&h, &rq) < 0 || send(pair[1], data, size, 0) != (ssize_t)size)
        abort();
    (void)shutdown(pair[1], SHUT_WR); /* what it sends itself stays unread */
    int r = httpc_wait(&h, -1);
    if ((r == 0 && (h.is_busy || h.status < 200)) || h.body.len > h.body.max)
        abort();
    httpc_close(&h);
    (void)close(pair[1]);
    return 0;
}
