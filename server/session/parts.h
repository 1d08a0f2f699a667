/* What one session is made of: shared by the files of this room, and by nobody else.
 *
 * sessions.c the table · spec.c what a client asked for, checked · session.c the step machine ·
 * generation.c one sandbox of it, proof_run.c its proof · renewal.c a new sandbox takes over ·
 * ending.c the end · warnings.c what is not as asked for · sites.c own sites, site_sets.c the
 * matchers · asks.c, ask_answer.c, ask_json.c questions to a person · session_json.c the resource ·
 * runner_link, egress_link the two children, egress_requests.c what the egress asks ·
 * egress_verdict.c may host:port · way_out.c, via.c, ports.c, blocked.c the network · web*.c,
 * search.c the web tools · command*.c, output.c, files.c what is done inside · status.c, preview.c
 * the machine. */
#pragma once
#include "base/clock.h"
#include "base/fd.h"
#include "base/loop.h"
#include "base/mem.h"
#include "policy/upstream.h"
#include "sandbox/machine.h"
#include "sandbox/private.h"
#include "sandbox/proof.h"
#include "sandbox/provider.h"
#include "session/asks.h"
#include "session/command.h"
#include "session/generation.h"
#include "session/nested.h"
#include "session/ports.h"
#include "session/runner_link.h"
#include "session/session.h"
#include "store/records.h"
#include "wire/msg.h"
#include "wire/order.h"

#define SESSION_DOOR_PORT  DOOR_PORT
#define SESSION_START_MS   20000
#define SESSION_PROBE_MS   10000
#define SESSION_GRACE_MS   5000 /* TERM to KILL */
#define SESSION_FILE_CALLS 64
#define SESSION_SINKS      256 /* outputs that background processes still hold open */
#define SESSION_TAILS      256 /* ended commands whose background processes live */
/* The folder of a status check, empty; the sweep at start takes away what a kill left. */
#define SESSION_CHECK_FOLDER "/tmp/cordon.check.XXXXXX"
/* The way out of one session. */
#define EGRESS_CONNECTIONS 1024  /* open at once; further ones are told 503 */
#define EGRESS_HEAD_BYTES  65536 /* of a request or response head of plain HTTP */
#define EGRESS_DIAL_MS     10000 /* from the verdict to a connection */
#define EGRESS_REQUESTS    4096  /* under way: each connection may have a TLS name beside its own */

struct output;

/* ---- All sessions ------------------------------------------------------------------------- */
struct sessions {
    struct sessions_deps deps;
    struct session *items[SESSIONS_MAX];
    size_t n;
    struct hostset *hosts[2]; /* list machine; with guarded. NULL = to be compiled */
    int control_fd;           /* a listener on the host's loopback: control of the proof */
    uint16_t control_port;
    int null_fd;
    unsigned umask;      /* of who started the daemon: commands get it that name none */
    const char *shell;   /* absolute, the same in every wall */
    json_t *last_checks; /* of the latest proof, for GET /status */
    bool last_proof_ok;
    bool is_stopping; /* nothing new is taken */
    bool is_draining; /* and running commands may still end by themselves */
    struct deadline drain;
    void (*stopped)(void *arg);
    void *stopped_arg;
    struct watch rollback_watch, settings_watch;
    struct watched asks_watched;
    struct closing closing;
};
void sessions_command_ended(struct sessions *ss);
void sessions_remove(struct sessions *ss, struct session *s);
enum provider sessions_wall_provider(void); /* this platform's own */
/* The provider that a spec comes to; PROVIDER_UNKNOWN with ERR when it cannot be. */
enum provider sessions_choose(const struct sessions *ss, enum tier tier, bool require_wall);

/* ---- One session -------------------------------------------------------------------------- */
struct own_site {
    struct own_site *next;
    struct site row;
};

/* An answer that was given and is not used up: a deny; a `once` whose caller is to come back. */
struct ask_given {
    struct ask_given *next; /* the older ones */
    char ask_id[ID_MAX];
    char host[HOST_MAX];
    uint16_t port;
};
struct asks {
    struct ask *first; /* those that are open, oldest first */
    unsigned n_open, n_held;
    struct deadline clock; /* the first that expires */
    struct ask_given *denied, *once;
    unsigned n_denied, n_once;
};

/* How far the end of a session has come. */
enum down { DOWN_NOT = 0, DOWN_TERM, DOWN_KILL, DOWN_REMOVE, DOWN_OVER };
/* What a sandbox is made of; borrowed. */
struct shape {
    enum tier tier;
    enum net_mode network;
    const struct policy_folder *folders;
    size_t n_folders;
};

/* A new sandbox is made to take over. */
struct renewal {
    struct deadline clock;
    uint64_t until_ms; /* a folder that is being replaced is waited for */
    struct actor actor;
    const char *reason; /* for the audit; static */
    bool is_asked_for, stop_running;
    session_renewed_fn *done; /* or NULL */
    void *arg;
};

struct session {
    struct sessions *ss;
    unsigned refs;
    struct closing closing;
    struct deadline deadline;
    struct watched watched;

    char id[ID_MAX];
    char *name;
    enum session_state state;
    enum tier tier;
    enum net_mode network;
    enum approvals approvals;
    enum provider provider;
    bool require_wall, unattended;
    struct policy_folder folders[SESSION_FOLDERS];
    size_t n_folders;
    char *cwd;
    json_t *env, *agent; /* or NULL */
    struct strv file_roots;
    int64_t created_at, ended_at, rev;
    const char *end_reason;
    struct actor creator, ender;
    json_t *warnings; /* array */

    char *const *caller_env; /* of the daemon, for its life */
    char *private_dir;       /* NULL for provider direct; the same for every generation */
    int private_lock;

    struct generation *now;    /* takes commands; NULL until the first is proved */
    struct generation *making; /* the first one, or the one that is to take over; or NULL */
    struct generation *old;    /* taken over from: what still runs in them */
    unsigned n_generations;    /* all that are not freed */
    struct renewal renewal;    /* of MAKING, once there is a NOW */
    struct nested nested;      /* watches the folders of NOW */

    struct own_site *sites;
    size_t n_sites;
    struct published publish[SESSION_PUBLISH];
    size_t n_publish;
    struct hostset *own_hosts; /* of SITES; NULL = to be compiled */
    struct hostset *all_hosts; /* both lists in one, for showing; NULL = to be compiled */

    struct asks asks;

    struct policy policy; /* of the last sandbox, once it is gone */
    json_t *receipt;      /* of the proof that was judged last, or NULL */
    int64_t verified_at;  /* of NOW */

    struct command *commands; /* newest first: running, queued, and those with a tail */
    unsigned n_running, n_queued, n_tails;
    struct output *sinks;
    unsigned n_sinks, n_file_calls;
    struct web_call *web_calls; /* under way, and their processes until they are reaped */
    unsigned n_web_calls;
    struct web_kept *web_kept; /* what calls that were answered with 202 may come back for */
    uint64_t n_blocked;
    int64_t refusals_since; /* clock_now_ms() of the minute whose refusals are counted */
    unsigned n_refusals;    /* written one by one in that minute, at most REFUSALS_A_MINUTE */
    uint64_t n_refusals_unsaid;

    /* The end. */
    enum down down;
    bool is_refused;
    struct err failure;
    bool wants_stop;
    uint64_t stop_grace_ms;
    unsigned n_down; /* callbacks still to come in DOWN_KILL, DOWN_REMOVE */
    uv_work_t removal;
    void (*ended)(struct session *s, void *arg); /* for the status check */
    void *ended_arg;
};
struct session *session_alloc(struct sessions *ss, const struct actor *actor);
/* Looks at what happened and goes on; the only place with logic (base/loop.h). */
void session_step(struct session *s);
/* Something that the resource shows changed: rev, record, watchers. */
void session_changed(struct session *s);
void session_touched(struct session *s); /* counts only: watchers, no record */
void session_warn(struct session *s, const char *code, const char *detail);
/* Once: the proxy variables are the only way out. */
void session_warn_unredirected(struct session *s);
void session_warn_of(struct session *s, const struct policy *p); /* all that P comes with */
void session_audit(struct session *s, const struct actor *actor, const char *action,
                   const char *target, json_t *take_after, enum outcome outcome);
/* Of what has ended: may share the commit of the next row (store/owed.h). By the daemon. */
void session_audit_soon(struct session *s, const char *action, const char *target,
                        json_t *take_after, enum outcome outcome);
void session_set_state(struct session *s, enum session_state state);
json_t *session_failed_checks(const struct session *s); /* ids, of the receipt */
/* The sandbox that shows what holds: the one in force, or the first while it is made; or NULL. */
struct generation *session_generation(const struct session *s);
/* G, which was closed, is freed after this. */
void session_generation_gone(struct session *s, struct generation *g);
void session_generations_drop_idle(struct session *s); /* old ones in which nothing runs */
void session_be_ready(struct session *s);
void session_commands_ready(struct session *s);
/* The wall of G is gone, NULL = of all, and nothing queued will start. */
void session_commands_over(struct session *s, struct generation *g);
void session_commands_stop(struct session *s, struct generation *g);
/* What is queued will not start: the wall it waits for could not be made. */
void session_commands_refuse(struct session *s);

json_t *env_names(const json_t *env);         /* a new array */
void session_private_drop(struct session *s); /* its name and its lock */
void ending_begin(struct session *s, enum down down);
void ending_step(struct session *s);
void renewal_init(struct session *s);
/* Before anything is started: begins one when the wall in force no longer keeps what it should; the
 * state is RESTARTING then. Negative with ERR when it should and cannot. */
int renewal_begin_if_due(struct session *s, struct err *err);
void renewal_step(struct session *s); /* while RESTARTING */
void renewal_over(struct session *s, const struct err *err);

struct shape session_shape(const struct session *s);
int spec_apply(struct session *s, const struct session_spec *spec, struct err *err);
int spec_apply_machine(struct session *s, const struct session_spec *spec, struct err *err);
int session_policy_make(const struct session *s, const struct shape *shape, struct policy *ret,
                        struct err *err);

/* ---- Sites -------------------------------------------------------------------------------- */
int site_row_make(struct session *s, const char *host, int port, bool allow_private,
                  const struct actor *actor, struct site *ret, struct err *err);
/* HOST is canonical, or "*." before it; what is there already is given. */
int session_site_add_by(struct session *s, const char *host, int port, enum site_source source,
                        const struct actor *actor, struct site *ret, struct err *err);
/* A site of LIST (machine or guarded) for all its sessions, by an answer given in S: made, or what
 * is there enabled. ERR: too_many, disk_full. */
int sessions_site_open(struct session *s, enum site_list list, const char *host, int port,
                       const struct actor *actor, struct site *ret, struct err *err);
int session_sites_put(struct session *s); /* into the store, when it is made */
void session_sites_free(struct session *s);
/* The session's own sites and those of the machine; in guarded that list's too. The more specific
 * entry is *why. */
enum verdict session_hosts_match(struct session *s, enum tier tier, const char *host, uint16_t port,
                                 const struct host_entry **why);
void sessions_sets_drop(struct sessions *ss); /* the lists changed: compiled anew */
void session_sets_drop(struct session *s);    /* its own did */

/* ---- Asks --------------------------------------------------------------------------------- */
void session_asks_init(struct session *s);
void session_asks_free(struct session *s);
void session_asks_over(struct session *s); /* it ends: all are cancelled */
/* Lists, approvals or settings changed: what is allowed now is superseded, and goes through. */
void session_asks_recheck(struct session *s);
void session_asks_blocked(struct session *s, const char *host, uint16_t port); /* one more try */
bool session_asks_are_off(const struct session *s);                            /* nobody is asked */
bool session_asks_denied(const struct session *s, const char *host, uint16_t port);

/* ---- Egress ------------------------------------------------------------------------------- */
struct verdict_out {
    uint8_t verdict; /* enum eg_verdict; DENY is 0; HOLD: a person may be asked (ask_hold) */
    uint8_t flags;
    const char *reason, *rule;
    char hint[400];
};
/* The proxy that a connection to HOST:PORT goes through, or false; IS_HTTP: plain HTTP. */
bool session_via(const struct sessions *ss, const char *host, uint16_t port, bool is_http,
                 struct upstream *ret);
void session_warn_via(struct session *s); /* of proxies that cannot be used */
/* Every path that does not reach an explicit allow is DENY. *why is the entry that decided. BY says
 * who wants to reach it: what is on no list is held for a person's answer, or refused, by that. */
void site_judge(struct session *s, enum tier tier, enum net_mode network, enum asker by,
                const char *host, uint16_t port, struct verdict_out *out,
                const struct host_entry **why);
/* The same for a connection from inside G. */
void egress_judge(const struct generation *g, const char *host, uint16_t port,
                  struct verdict_out *out, const struct host_entry **why);
bool egress_is_proof_probe(const struct generation *g, const char *host, uint16_t port);
bool is_own_port(const struct session *s, uint16_t port); /* of Cordon's API */
/* Starts cordon-egress; it waits for egress_link_doors. Reports by generation->way_out and
 * generation_step. */
int egress_link_new(struct generation *g, struct egress_link **ret, struct err *err);
int egress_link_doors(struct egress_link *l, const int *doors, size_t n);
void egress_link_recheck(struct egress_link *l); /* cuts tunnels to what is no longer allowed */
/* FD (borrowed) is accepted on as DOOR and PORT; no more of it. */
int egress_link_listen(struct egress_link *l, enum eg_door door, uint16_t port, int fd);
int egress_link_unlisten(struct egress_link *l, enum eg_door door, uint16_t port);
/* The other side of a connection to a published port; -1 = none, WHY. */
void egress_link_give(struct egress_link *l, uint32_t conn, uint32_t number, int take_fd,
                      const char *why);
/* KILL, reaped, then CLOSED (may be NULL). */
void egress_link_close(struct egress_link *l, void (*closed)(void *arg), void *arg);
pid_t egress_link_pid(const struct egress_link *l);

/* ---- Web calls (web.c) -------------------------------------------------------------------- */
void web_calls_recheck(struct session *s); /* ends those to what is no longer allowed */
/* The session ends: all are over. How many processes are still to be reaped: session_web_gone is
 * called for each. */
unsigned web_calls_over(struct session *s);
void session_web_gone(struct session *s);

/* ---- Commands ----------------------------------------------------------------------------- */
int command_start_failed(struct generation *g, uint32_t id, enum start_stage stage, uint32_t error);
void command_blocked(struct command *c, const char *host, uint16_t port, const char *reason,
                     const char *rule, const char *hint);
/* A connection of C, or of another command that runs, is held. */
void command_asked(struct command *c, const char *ask_id, const char *host, uint16_t port);
struct command *command_next(struct command *c);
bool command_is_running(const struct command *c);
/* A refusal by the way out, in the audit: one by one up to REFUSALS_A_MINUTE, the rest of that
 * minute as one row with their number, so that nothing inside fills the disk. */
enum { REFUSALS_A_MINUTE = 600 };
void session_refusal(struct session *s, const char *target, json_t *take_after);
void session_refusals_said(struct session *s); /* those not written one by one, now */
void session_blocked(struct session *s, const char *host, uint16_t port, const char *reason,
                     const char *rule, const char *hint);
