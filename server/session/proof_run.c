/* Runs in: daemon. Reads: hostile (the runner's answers; sandbox/proof judges them).
 * May block: briefly (one small file made and removed). */
#include "base/stop.h"
#include "session/parts.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct canary {
    char path[PATH_MAX];
    char text[48];
};

/* BEFORE, 16 random hexadecimal digits, AFTER. */
static void random_name(char *ret, size_t size, const char *before, const char *after)
{
    uint64_t n = 0;
    (void)random_bytes(&n, sizeof n);
    (void)snprintf(ret, size, "%s%016" PRIx64 "%s", before, n, after);
}

static int canary_make(const struct machine *m, struct canary *c)
{
    char name[64];
    random_name(name, sizeof name, CANARY_PREFIX, "");
    random_name(c->text, sizeof c->text, "cordon canary ", "");
    if ((size_t)snprintf(c->path, sizeof c->path, "%s/%s", m->state_dir, name) >= sizeof c->path)
        return -ENAMETOOLONG;
    int fd = open(c->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    int r = fd_write_all(fd, c->text, strlen(c->text));
    fd_close(fd);
    if (r < 0)
        (void)unlink(c->path);
    return r;
}

struct asked {
    struct generation *g;
    size_t probe;
};

static int probe_answered(int r, struct unpack *u, void *arg)
{
    struct asked *a = arg;
    struct generation *g = a->g;
    size_t probe = a->probe;
    free(a);
    g->n_probes_waiting--;
    if (r == 0) {
        (void)unpack_u32(u); /* the id, which the link has matched */
        uint32_t error = unpack_u32(u);
        char *text = unpack_str(u, 4096);
        r = unpack_end(u);
        if (r == 0)
            proof_answer(&g->proof, probe, error, text ? text : "");
        free(text);
    }
    /* One that was lost stays unanswered, which counts as false. */
    if (g->n_probes_waiting == 0 && r != -ECANCELED)
        generation_step(g);
    return r == -EBADMSG ? r : 0;
}

static int send_probes(struct generation *g)
{
    /* Counted first: an answer may come while later ones are being sent, but never the last. */
    for (size_t i = 0; i < g->proof.n_probes; i++) {
        struct asked *a = malloc(sizeof *a);
        if (!a)
            return -ENOMEM;
        *a = (struct asked){g, i};
        int r =
            runner_link_probe(g->runner, &g->proof.probes[i], SESSION_PROBE_MS, probe_answered, a);
        if (r < 0) {
            free(a);
            return r;
        }
        g->n_probes_waiting++;
    }
    return 0;
}

bool proof_run_is_over(const struct generation *g)
{
    return g->n_probes_waiting == 0;
}

void proof_run_clear(struct generation *g)
{
    if (g->canary_path)
        (void)unlink(g->canary_path);
    free(g->canary_path);
    g->canary_path = NULL;
    g->proof_allowed[0] = g->proof_refused[0] = '\0';
    proof_done(&g->proof);
    g->has_proof = false;
}

int proof_run_start(struct generation *g, struct err *err)
{
    const struct sessions *ss = g->s->ss;
    const struct sessions_deps *deps = &ss->deps;
    struct canary canary;
    char allowed[64], refused[64];
    int r = canary_make(deps->machine, &canary);
    if (r < 0)
        return err_set(err, r, "session_refused", "look at the state folder",
                       "no file can be made in the state folder: %s", strerror(-r));
    random_name(g->proof_allowed, sizeof g->proof_allowed, "a", ".cordon.invalid");
    random_name(g->proof_refused, sizeof g->proof_refused, "r", ".cordon.invalid");
    (void)snprintf(allowed, sizeof allowed, "%s:443", g->proof_allowed);
    (void)snprintf(refused, sizeof refused, "%s:443", g->proof_refused);
    struct proof_context ctx = {.policy = &g->policy,
                                .machine = deps->machine,
                                .canary_path = canary.path,
                                .canary_text = canary.text,
                                .allowed_name = allowed,
                                .refused_name = refused,
                                .api_port = deps->api_ports[0],
                                .host_port_open = ss->control_port,
                                .api_socket = deps->api_socket,
                                .has_redirect = wall_has_redirect(g->wall)};
    size_t n_doors;
    (void)wall_doors(g->wall, &n_doors);
    ctx.has_ipv6 = ctx.has_redirect && n_doors == 3; /* one a family, and the name server's */
    g->canary_path = strdup(canary.path);
    g->n_probes_waiting = 0;
    if (!g->canary_path)
        (void)unlink(canary.path);
    r = g->canary_path ? proof_plan(&g->proof, &ctx) : -ENOMEM;
    if (r == 0) {
        g->has_proof = true;
        runner_link_cork(g->runner);
        r = send_probes(g);
        int sent = runner_link_uncork(g->runner);
        r = r < 0 ? r : sent;
        stop_point("proof-sent");
    }
    if (r < 0)
        return err_set(err, r, "session_refused", NULL, "the probes could not be sent: %s",
                       strerror(-r));
    return 0;
}
