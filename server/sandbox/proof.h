/* What is tried from inside before first use, and how the answers are judged (B5, W10). Pure of
 * processes: the session runs the probes through its runner link and feeds the answers in.
 *
 *     proof_plan(&proof, &ctx);
 *     for i < proof.n_probes: send proof.probes[i] … proof_answer(&proof, i, errno, text)
 *     proof.landlock_abi = wall_landlock_abi(wall);
 *     bool ok = proof_judge(&proof); json_t *receipt = proof_to_json(&proof);
 *
 * A check holds when each of its probes came back as expected; its detail says what was tried and
 * what came back, and the first that did not fit. Where it can, a check has a control: the same
 * probe where it must succeed. An answer that is missing is a failure. */
#pragma once
#include "policy/policy.h"
#include "wire/msg.h"

#define PROOF_PROBES_MAX 512 /* of one plan */

enum proof_expect {
    EXPECT_FAILURE = 0,  /* any error */
    EXPECT_SUCCESS,      /* errno 0 */
    EXPECT_RESET,        /* ECONNRESET: the door took it and refused it */
    EXPECT_UNREACHABLE,  /* an error that says no host was asked: not ECONNREFUSED */
    EXPECT_OTHER_FILE,   /* absent, or another file than TEXT ("DEV INO") says */
    EXPECT_STATUS_200,   /* a status line with 200 */
    EXPECT_STATUS_OTHER, /* a status line without 2xx, or an error */
    EXPECT_STATUS_403,   /* a status line with 403 */
    EXPECT_BARE,         /* PROBE_PRIVILEGES: no capability, no_new_privs, a filter */
    EXPECT_OWN_PIDS,     /* PROBE_PROC: the canary not reached, few processes, the first is pid 1 */
    EXPECT_LIMITS        /* PROBE_LIMITS: what the policy asks for */
};
struct proof_probe {
    enum probe_kind kind;
    char *path;
    uint32_t port;
    char *text;
    int check; /* index into checks */
    enum proof_expect expect;
    bool is_control;
    char *compare; /* what the answer is judged by; not sent */
    bool answered;
    uint32_t got_errno;
    char *got_text;
};
struct proof_check {
    const char *id; /* folders_reachable home_hidden credentials_hidden cordon_hidden egress_answers
                     * unlisted_refused direct_refused api_refused no_descriptors no_privileges
                     * own_proc limits */
    bool required, ok;
    char detail[320];
};
struct proof_context {
    const struct policy *policy;
    const struct machine *machine;
    const char *canary_path,
        *canary_text; /* a file of random name and content in the state folder */
    const char *allowed_name, *refused_name; /* the two reserved .invalid names, with :443 */
    uint16_t api_port;                       /* of this daemon */
    uint16_t host_port_open; /* a listener on the host's loopback that is ours: control */
    const char *api_socket;
    bool has_redirect, has_ipv6; /* of the wall; has_ipv6 with a redirect only */
};
struct proof {
    struct proof_check checks[16];
    size_t n_checks;
    struct proof_probe *probes;
    size_t n_probes, cap;
    int64_t verified_at; /* wall ms */
    char *kernel;
    int landlock_abi;        /* what the runner entered; set it before proof_judge */
    int landlock_abi_wanted; /* of the machine */
    struct policy_limits limits;
    unsigned held;      /* wall_group_holds of the wall; set it before proof_judge */
    bool has_pid_limit; /* the stage set kernel.pid_max, or the wall would not be up */
    bool is_root;       /* RLIMIT_NPROC does not hold for root */
};
int proof_plan(struct proof *p, const struct proof_context *ctx);
/* PROBE beyond n_probes is ignored. TEXT is hostile. */
void proof_answer(struct proof *p, size_t probe, uint32_t errno_inside, const char *text);
bool proof_judge(struct proof *p); /* true when every required check holds; unanswered is false */
json_t *proof_to_json(const struct proof *p); /* the receipt */
void proof_done(struct proof *p);
