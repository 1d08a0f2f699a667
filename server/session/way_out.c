/* Runs in: daemon. Reads: trusted. May block: no.
 *
 * The way out of a proved sandbox when its egress dies: a new one is started on the daemon's copies
 * of the doors. Until it is there nothing gets out; what was under way is lost, what knocks at the
 * doors meanwhile waits and is judged by the new one, as anything is. One that dies again and again
 * stays dead until the session is verified. */
#include "base/log.h"
#include "session/generation.h"
#include "session/parts.h"
#include "wire/synthetic.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define TRIES_MAX 5
#define WINDOW_MS (10 * 60 * UINT64_C(1000)) /* so long after the first death they count anew */
#define WAIT_MS   500                        /* before the second try; a multiple before further */

/* Sealed in its size: nobody can take away what another one has mapped. */
static int names_make(void)
{
    CLEANUP(fd_done) int fd = memfd_create("names", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, (off_t)SYNTHETIC_NAMES_BYTES) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return -errno;
    int made = fd;
    fd = -1;
    return made;
}

int way_out_names(struct generation *g)
{
    if (g->names < 0)
        g->names = names_make();
    return g->names;
}

static void give_up(struct generation *g)
{
    struct session *s = g->s;
    if (g == s->now)
        session_warn(s, "proxy_off",
                     "the egress ends again and again: no network until the session is verified "
                     "or a new one is made");
    session_changed(s);
}

void way_out_lost(struct generation *g)
{
    uint64_t now = uv_now(g->s->ss->deps.loop);
    session_audit(g->s, NULL, "session.changed", "egress ended", NULL, OUTCOME_ERROR);
    if (g->n_revivals == 0 || now - g->first_revival > WINDOW_MS) {
        g->first_revival = now;
        g->n_revivals = 0;
    }
    if (g->n_revivals == TRIES_MAX) {
        give_up(g);
        return;
    }
    deadline_set(&g->revival, g->n_revivals * (uint64_t)WAIT_MS);
    g->n_revivals++;
}

void way_out_back(struct generation *g)
{
    deadline_clear(&g->revival);
    log_info("egress.back", "session=%s tries=%u", g->s->id, g->n_revivals);
    session_audit(g->s, NULL, "session.changed", "egress started again", NULL, OUTCOME_OK);
}

/* It is time to start one; or the one that was started does not come up. */
void way_out_revive(struct deadline *d)
{
    struct generation *g = container_of(d, struct generation, revival);
    struct err err = {0};
    if (g->state != GEN_PROVED || g->way_out == WAY_READY)
        return;
    if (g->way_out == WAY_DEAD && generation_egress_again(g, &err) == 0) {
        deadline_set(&g->revival, SESSION_START_MS);
        return;
    }
    if (err_is_set(&err))
        log_warn("egress.dead", "session=%s why=%s", g->s->id, err.detail);
    g->way_out = WAY_DEAD;
    way_out_lost(g);
}
