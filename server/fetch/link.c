/* Runs in: fetch. Reads: trusted (the daemon's frames). May block: yes, that is its way to wait. */
#include "fetch/link.h"
#include "base/fd.h"
#include "base/log.h"
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static int channel = -1;
static struct frame_reader reader;

_Noreturn void link_lost(const char *why)
{
    if (*why != '\0')
        log_error("fetch.ends", "why=%s", why);
    _exit(*why != '\0');
}

void link_open(int fd)
{
    channel = fd;
}

struct unpack link_wait(enum msg_kind kind)
{
    struct frame f;
    char buf[16384];
    int r;
    while ((r = frame_next(&reader, &f)) == 0) {
        ssize_t n = read(channel, buf, sizeof buf);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            link_lost("");
        if (frame_feed(&reader, buf, (size_t)n) < 0)
            link_lost("out of memory");
    }
    const struct msg_rule *rule = msg_rule(f.kind);
    if (r < 0 || f.kind != kind || !rule || f.len > rule->payload_max)
        link_lost("nonsense from the daemon");
    return unpack_from(f.payload, f.len);
}

void link_send(enum msg_kind kind, struct pack *take_p)
{
    struct str out = {0};
    if (take_p->r < 0 || frame_put(&out, (uint8_t)kind, take_p->out.data, take_p->out.len) < 0)
        link_lost("out of memory");
    if (fd_write_all(channel, out.data, out.len) < 0)
        link_lost("");
    pack_done(take_p);
    str_done(&out);
}
