/* One sandbox of a session: its wall, its way out, the runner behind it, and the proof of all
 * three. Private to this room.
 *
 * A session has one that takes what is new (session->now). A changed one is made beside it
 * (session->making), proved, and only then takes over; the one before lives on while something runs
 * in it. Where none is proved, nothing changes.
 *
 * Life: STARTING -> PROVING -> PROVED, or FAILED with its failure; then closed. After each change
 * it calls session_step; the session alone decides what follows from it. It never closes itself.
 *
 *     session_policy_make(s, &shape, &policy, err);
 *     generation_new(s, &policy, &s->making);      // on the loop: session_step until PROVED,
 * FAILED generation_close(TAKE(s->making));           // later: session_generation_gone, and it is
 * freed
 */
#pragma once
#include "base/err.h"
#include "base/loop.h"
#include "policy/policy.h"
#include "sandbox/proof.h"
#include "session/runner_link.h"

struct egress_link;
struct session;
struct wall;

enum generation_state { GEN_STARTING = 0, GEN_PROVING, GEN_PROVED, GEN_FAILED, GEN_CLOSING };
/* The egress of a generation. */
enum way_out { WAY_NONE = 0, WAY_STARTING, WAY_READY, WAY_DEAD };

struct generation {
    struct generation *next; /* among those that were taken over from */
    struct session *s;       /* outlives it */
    struct closing closing;
    struct deadline deadline; /* of the start and of each proof */
    enum generation_state state;
    struct err failure;
    struct policy policy;

    struct wall *wall;
    bool is_launched;
    struct runner_link *runner;
    struct egress_link *egress;
    int names; /* the memory of the names inside, for one egress after the other; -1 = none yet */
    enum way_out way_out;
    char *way_out_why;
    struct deadline revival; /* of an egress that died (way_out.c) */
    uint64_t first_revival;  /* loop time, ms */
    unsigned n_revivals;

    /* The proof that runs; its receipt goes to the session. */
    struct proof proof;
    bool has_proof, was_disproved;
    size_t n_probes_waiting;
    char *canary_path;                         /* while the probes run */
    char proof_allowed[48], proof_refused[48]; /* host names; empty = no proof runs */
    int64_t verified_at;

    struct local_port *local; /* ports inside that stand for services of the host */
    bool is_egress_told;      /* of its ports, and whether it accepts for published ones */
    bool is_publishing;

    unsigned n_users; /* commands that run in it or left something running, file calls */
    unsigned n_down;  /* callbacks still to come while it closes */
};

/* Takes POLICY, also on failure. -ENOMEM alone: what else goes wrong is told as FAILED. */
int generation_new(struct session *s, struct policy *take_policy, struct generation **ret);
/* Proves it again; its egress is started anew where it died. PROVING follows. */
int generation_prove_again(struct generation *g, struct err *err);
/* It did what it must not, or lost what it needs: FAILED. The first failure counts. */
void generation_fail(struct generation *g, int r, const char *hint, const char *detail);
/* Looks at what happened and goes on, then tells the session. */
void generation_step(struct generation *g);
void generation_left(struct generation *g); /* one user fewer */
void generation_close(struct generation *g);

/* A new egress on the doors that are there. */
int generation_egress_again(struct generation *g, struct err *err);

/* way_out.c: the memory of the names inside, borrowed, or a negative errno; the egress of a proved
 * sandbox died; it is there again; the clock between. */
int way_out_names(struct generation *g);
void way_out_lost(struct generation *g);
void way_out_back(struct generation *g);
void way_out_revive(struct deadline *d);

#define CANARY_PREFIX "canary-" /* and 16 hexadecimal digits, in the state folder */
int proof_run_start(struct generation *g, struct err *err);
bool proof_run_is_over(const struct generation *g);
void proof_run_clear(struct generation *g); /* the canary, the reserved names and the probes */
