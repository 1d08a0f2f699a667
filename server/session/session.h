/* Sessions: each a step machine that owns its wall, runner link, egress, commands and private
 * folder.
 *
 * Life: starting -> verifying -> ready -> stopping -> ended, or refused; from ready, restarting and
 * back. All on one loop. A
 * reference is held by the table while the session is not ended, and by whoever took one. Ended
 * sessions are documents in the store (store/records); their live object is gone. */
#pragma once
#include "base/err.h"
#include "base/watch.h"
#include "config/settings.h"
#include "policy/policy.h"
#include "store/audit.h"
#include "store/db.h"
#include "store/sites.h"
#include <jansson.h>
#include <uv.h>

#define SESSIONS_MAX     256
#define SESSION_FOLDERS  32
#define SESSION_SITES    256
#define SESSION_COMMANDS 64
#define SESSION_QUEUED   16

enum session_state {
    SESSION_STARTING = 0,
    SESSION_VERIFYING,
    SESSION_READY,
    SESSION_RESTARTING,
    SESSION_STOPPING,
    SESSION_ENDED,
    SESSION_REFUSED
};
extern const char *const SESSION_STATE_NAMES[];
enum approvals { APPROVALS_ASK = 0, APPROVALS_AUTO, APPROVALS_FULL };
extern const char *const APPROVALS_NAMES[];

struct sessions; /* all of them; the daemon has one */
struct session;
struct sessions_deps {
    uv_loop_t *loop;
    struct db *db;
    struct settings *settings;
    struct machine *machine; /* its secrets of /etc are looked at again for each wall */
    const char *spool_dir;
    uint16_t api_ports[4]; /* sessions_set_ports; 0 ends */
    const char *api_socket;
    const char *version;
};
int sessions_new(const struct sessions_deps *deps, struct sessions **ret, struct err *err);
/* Sweeps private folders that dead daemons left (ownership and lock decide, not names). */
void sessions_sweep(struct sessions *ss);
/* Takes nothing new; gives running commands DRAIN_MS to end by themselves, then stops all; DONE is
 * called once when none lives; then sessions_free. */
void sessions_shutdown(struct sessions *ss, uint64_t drain_ms, void (*done)(void *arg), void *arg);
void sessions_free(struct sessions *ss);
/* The ports the api got; before the first session. */
void sessions_set_ports(struct sessions *ss, const uint16_t *ports, size_t n);
/* The ids of all commands that are queued or run, added to RET. */
void sessions_running(const struct sessions *ss, struct strv *ret);
size_t sessions_alive(const struct sessions *ss);

struct session_spec { /* of POST /sessions; checked for shape by the api, for sense here */
    struct spec_folder {
        char *path;
        enum access access;
    } folders[SESSION_FOLDERS];
    size_t n_folders;
    char *name;  /* or NULL: the first folder's */
    int tier;    /* enum tier, -1 = the setting's */
    int network; /* enum net_mode, -1 = the tier's default */
    enum approvals approvals;
    bool require_wall, unattended;
    char *cwd;
    json_t *env; /* object of strings, or NULL */
    struct spec_site {
        char *host;
        int port;
    } * sites;
    size_t n_sites;
    struct strv file_roots;
    uint16_t publish[32]; /* SESSION_PUBLISH */
    size_t n_publish;
    json_t *agent;           /* {name, version}, or NULL */
    char *const *caller_env; /* of the daemon; stays for its life */
};
void session_spec_done(struct session_spec *spec);

/* Takes the session up: it starts at once and goes its way on the loop. -EINVAL … with ERR
 * (path_invalid, protected_place, site_invalid, too_many, disk_full, body_invalid): nothing was
 * made then. */
int session_create(struct sessions *ss, const struct session_spec *spec, const struct actor *actor,
                   struct session **ret, struct err *err);
struct session *session_find(struct sessions *ss, const char *id); /* alive ones; borrowed */
void session_ref(struct session *s);
void session_unref(struct session *s);
const char *session_id(const struct session *s);
enum session_state session_state(const struct session *s);
struct watched *session_watched(struct session *s); /* state, counts, folders, sites */
/* TERM, GRACE_MS, KILL of all in it; then ended. Idempotent. */
void session_stop(struct session *s, uint64_t grace_ms, const char *reason,
                  const struct actor *actor);
/* Runs the proof again; watch the state: verifying, then ready or refused (and ended). */
int session_verify(struct session *s, struct err *err);
/* Makes a sandbox anew, proves it, and lets it take over; the state is RESTARTING meanwhile, and
 * new commands are queued. What runs ends in the old one, or is stopped with STOP_RUNNING. DONE
 * (may be NULL) comes once, later: ERR is NULL when the new one took over; wall_unavailable when it
 * could not be made or proved: all is then as it was; session_ended. Negative with ERR
 * (session_not_ready, session_ended, too_many …): nothing was begun, and DONE is not called. */
typedef void session_renewed_fn(struct session *s, const struct err *err, void *arg);
int session_restart(struct session *s, bool stop_running, const struct actor *actor,
                    session_renewed_fn *done, void *arg, struct err *err);
int session_rename(struct session *s, const char *name, const struct actor *actor);
int session_set_approvals(struct session *s, enum approvals a, const struct actor *actor);

json_t *session_to_json(const struct session *s);     /* the resource of REST */
json_t *session_proof_json(const struct session *s);  /* NULL when none was run */
json_t *session_enforcement(const struct session *s); /* new reference */
json_t *session_access_json(struct session *s);
const struct policy *session_policy(const struct session *s);
const struct hostset *session_hosts(struct session *s); /* NULL without memory */
enum provider session_provider(const struct session *s);
int64_t session_rev(const struct session *s);

/* Sites of this session only; open at once. */
int session_site_add(struct session *s, const char *host, int port, bool allow_private,
                     const struct actor *actor, struct site *ret, struct err *err);
int session_site_remove(struct session *s, const char *site_id, const struct actor *actor,
                        struct err *err);
/* Machine sites or settings changed: every live session's set is compiled anew; open tunnels to
 * what is no longer allowed are closed. */
void sessions_sites_changed(struct sessions *ss);
/* The list SITES_MACHINE as a matcher, or that and SITES_GUARDED in one, where a bare name of the
 * latter has its subdomains too. Borrowed until the lists change; NULL without memory. */
const struct hostset *sessions_hosts(struct sessions *ss, enum site_list list);
/* The verdict for POST /sites/check; S NULL = the machine's list. */
json_t *sessions_site_check(struct sessions *ss, struct session *s, const char *host,
                            uint16_t port);

/* GET /status: {state, provider, platform, version, checks[], providers[], sessions_refused,
 * fix[]}. */
json_t *sessions_status_json(struct sessions *ss);
/* POST /status/check: puts a wall up in a folder of its own, proves it, takes it down; DONE once.
 */
int sessions_status_check(struct sessions *ss, void (*done)(json_t *status, void *arg), void *arg,
                          struct err *err);
/* What a session of SPEC would be allowed, without making it (policy/preview, GET /policy). */
int sessions_policy_preview(struct sessions *ss, const struct session_spec *spec,
                            const char *render, json_t **ret_json, char **ret_text,
                            struct err *err);
/* The compiled rules of a live session as text: render is "bwrap", "landlock", "seccomp". */
int session_policy_render(struct session *s, const char *render, char **ret_text, struct err *err);
