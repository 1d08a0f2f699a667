/* What one ask is made of: shared by asks.c (its life, who waits), ask_answer.c (a person's answer)
 * and ask_json.c (what is told of it), and by nobody else. */
#pragma once
#include "session/asks.h"
#include "session/parts.h"

struct ask {
    struct ask *next; /* among the open ones of its session */
    struct session *s;
    char id[ID_MAX];
    enum asker by;
    char host[HOST_MAX];
    uint16_t port;
    char *reason; /* or NULL */
    struct blocked_evidence evidence;

    struct ask_wait *waits; /* oldest first */
    unsigned n_waits, n_returning;
    bool is_being_answered; /* what its own answer opens does not supersede it */

    enum ask_state state;
    int64_t created_at, expires_at;  /* wall ms */
    uint64_t created_ms, expires_ms; /* monotonic: what counts */
    int64_t rev;

    /* Once decided. */
    enum ask_answer answer;
    struct actor decider;
    int64_t decided_at;
    char *note;
    char site_id[32];
};

struct ask *ask_find(const struct session *s, const char *host, uint16_t port);
struct ask *ask_live(struct sessions *ss, const char *id); /* open, or NULL */
/* A new open one. ERR: too_many, disk_full, internal. */
int ask_raise(struct session *s, enum asker by, const char *host, uint16_t port, const char *reason,
              const struct actor *actor, struct ask **ret, struct err *err);
void ask_move_waits(struct ask *from, struct ask *to); /* all but the oldest */
/* It is closed: recorded, told, those that wait get V, and it is gone. */
void ask_close(struct ask *a, enum ask_state state, const struct verdict_out *v);
void ask_changed(struct ask *a); /* rev, watchers */
void ask_clock_set(struct session *s);
bool ask_host_is_same(const struct ask_given *g, const char *host, uint16_t port);

const char *ask_state_name(enum ask_state state);
void verdict_once(struct verdict_out *v);
void verdict_denied(struct verdict_out *v);
void verdict_unanswered(struct verdict_out *v);

json_t *ask_to_json(const struct ask *a);
json_t *ask_actor_json(const struct actor *actor); /* "tok_…", "brw_…", "owner" */
/* The hosts that ANSWER may be given for, none when it is not on offer: the one asked for, and
 * where it may be widened "*.host". */
json_t *ask_hosts(const struct ask *a, enum ask_answer answer);
