/* Runs in: daemon. Reads: trusted. May block: no.
 *
 * No wall: the runner itself, started plainly. Level `none` in every record. */
#include "sandbox/wall.h"
#include "wire/msg.h"
#include "wire/rules.h"
#include <errno.h>
#include <signal.h>

static int prepare(struct wall *w, const struct wall_request *rq, struct err *err)
{
    struct rules none = {.landlock = 0};
    struct pack p = {.r = 0};
    (void)rq;
    rules_put(&p, &none);
    int r = p.r < 0 ? p.r : frame_put(&w->out, M_LOCKDOWN, p.out.data, p.out.len);
    pack_done(&p);
    return r < 0 ? err_set(err, r, "session_refused", NULL, "out of memory") : 0;
}

static void explain(const struct wall *w, unsigned code, int errnum, const char *what,
                    struct err *err)
{
    (void)w;
    (void)code;
    (void)errnum;
    (void)err_set(err, -ENOTSUP, "session_refused", "install Cordon again",
                  "the runner did not start: %s", what);
}

const struct wall_kind WALL_DIRECT = {
    .argument = "plain", .signal = SIGKILL, .prepare = prepare, .explain = explain};
