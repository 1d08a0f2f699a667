/* Starts a runner behind a wall, and ends it. One interface, a file a mechanism: sandbox/linux
 * (bubblewrap), sandbox/direct (no wall; level none in every record), sandbox/macos later.
 *
 *     struct wall_request rq = {.policy = &p, .machine = &m, .want_doors = true, …};
 *     wall_launch(loop, PROVIDER_BUBBLEWRAP, &rq, launched, arg, &wall, &err);
 *     // later, on the loop: launched(wall, 0, NULL, arg) with wall_take_control() and wall_doors()
 *     wall_close(wall, closed, arg)   // KILL, reaped, then closed() — frees the wall */
#pragma once
#include "base/err.h"
#include "policy/policy.h"
#include "wire/rules.h"
#include <uv.h>

#define WALL_DOORS_MAX 4
struct wall;
struct wall_request {
    const struct policy *policy;   /* borrowed until launched */
    const struct machine *machine; /* borrowed for the wall's life */
    bool want_doors;               /* TCP doors on 127.0.0.1 and ::1 (network allowlist or open) */
    bool want_redirect;            /* with doors: all other TCP goes there too, where it can */
    uint64_t deadline_ms;          /* for the whole launch */
};
/* Once, never from within wall_launch: r 0, or negative with ERR (code session_refused; the detail
 * names step and cause, the hint the cure). In both cases W is still there: wall_close() it, also
 * from within this call. Not called any more once wall_close() was. */
typedef void wall_launched_fn(struct wall *w, int r, const struct err *err, void *arg);
/* The runner's outer process ended, after a successful launch; once, not after wall_close(). */
typedef void wall_died_fn(struct wall *w, int status, void *arg);
typedef void wall_closed_fn(void *arg);

/* Negative with ERR when nothing could even be started; *ret is then untouched and LAUNCHED is not
 * called. The process is started first and told what to do while it makes its namespaces. */
int wall_launch(uv_loop_t *loop, enum provider provider, const struct wall_request *rq,
                wall_launched_fn *launched, void *arg, struct wall **ret, struct err *err);
void wall_on_death(struct wall *w, wall_died_fn *died, void *arg);
int wall_take_control(struct wall *w); /* the control socket; caller owns */
/* The doors, checked (listening, loopback, expected port, a namespace that is not ours): borrowed.
 */
const int *wall_doors(const struct wall *w, size_t *ret_n);
/* Is all other TCP redirected to the doors, and is the name server's door among them (the last)? */
bool wall_has_redirect(const struct wall *w);
/* What the runner handed out is what was asked of it, in the wall's own network: 1 or 2 listeners
 * on loopback and PORT; a TCP connection. Made non-blocking. -EBADF when it is not. */
int wall_listeners_check(const struct wall *w, const int *fds, size_t n, uint16_t port);
int wall_socket_check(const struct wall *w, int fd);
int wall_landlock_abi(const struct wall *w);
/* Limits that hold for all in the wall together, by its control group (sandbox/cgroup). */
enum wall_limit { WALL_MEMORY = 1, WALL_PROCESSES = 2, WALL_CPU = 4 };
#define WALL_PROCESSES_OWN 16 /* of the wall itself, beside those that are asked for */
unsigned wall_group_holds(const struct wall *w); /* bits of enum wall_limit */
/* How often each was hit until now; 0 where nothing counts it. */
struct wall_hits {
    uint64_t memory, processes, cpu;
};
int wall_sweep(void); /* control groups that dead daemons left: their number */
void wall_count_hits(const struct wall *w, struct wall_hits *ret);
pid_t wall_pid(const struct wall *w); /* the outer process */
const char *wall_bwrap_version(void); /* "0.8.0", "" when none */
/* Ends it at once. When CLOSED (may be NULL) is called, no process of it lives any more, also none
 * that a command started: the stage's outer process is reaped only after its pid namespace is
 * empty, so that the private folder can be removed. */
void wall_close(struct wall *w, wall_closed_fn *closed, void *arg);

/* What the kernel will be told for P, as text: RENDER is "bwrap" (the stage's joins and
 * bubblewrap's arguments), "landlock" or "seccomp". *ret_text is malloc'ed. */
int provider_describe(enum provider provider, const struct policy *p, const struct machine *m,
                      const char *render, char **ret_text, struct err *err);
/* The lock-down of cordon-egress (M_EG_START): Landlock and its own filter. */
int provider_egress_rules(const struct machine *m, struct rules *ret);

/* Can this machine put up PROVIDER's wall? 0, or -ENOTSUP with reason and cure; cheap, no session.
 */
int provider_probe(enum provider provider, const struct machine *m, struct err *err);
