/* One command of a session: its pipes, clocks, end and record. Alive while its process runs; after
 * that it is a document in the store and a spool on disk. */
#pragma once
#include "session/session.h"
#include "store/spool.h"

enum command_state {
    COMMAND_QUEUED = 0,
    COMMAND_STARTING,
    COMMAND_RUNNING,
    COMMAND_EXITED,
    COMMAND_KILLED,
    COMMAND_TIMED_OUT,
    COMMAND_FAILED,
    COMMAND_LOST
};
extern const char *const COMMAND_STATE_NAMES[];
struct command;
struct command_spec { /* of POST S/commands */
    struct strv argv; /* or */
    char *shell;      /* run by bash where the wall holds one, else sh */
    char *cwd;
    json_t *env; /* object of string or null (null removes) */
    bool stdin_pipe;
    int64_t timeout_ms; /* -1 = the setting's; 0 = none */
    int64_t idle_timeout_ms, kill_grace_ms, max_output_bytes /* -1 = the setting's */;
    bool kill_on_disconnect;
    bool has_umask; /* else of who started the daemon */
    unsigned umask;
    int origin;
    const char *origin_name; /* agent user watch */
    json_t *origin_json;
};
void command_spec_done(struct command_spec *spec);

/* Recorded before it starts. Queued while the session starts. ERR: session_not_ready,
 * session_ended, too_many, body_invalid (cwd, env), disk_full. */
int command_create(struct session *s, const struct command_spec *spec, const struct actor *actor,
                   struct command **ret, struct err *err);
struct command *command_find(struct session *s,
                             const char *id); /* alive (or just ended); borrowed */
void command_ref(struct command *c);
void command_unref(struct command *c);
const char *command_id(const struct command *c);
bool command_is_ended(const struct command *c);
struct watched *command_watched(struct command *c); /* state and output: new frames */
json_t *command_to_json(const struct command *c);   /* the resource, without `text` */

/* Bytes at OFFSET of standard input; what was taken before is skipped. *ret_accepted_to is the new
 * offset. ERR: stdin_none, stdin_gap, stdin_full, command_ended. */
int command_stdin(struct command *c, uint64_t offset, const void *bytes, size_t n, bool close_after,
                  uint64_t *ret_accepted_to, struct err *err);
int command_signal(struct command *c, int signo, bool to_group,
                   struct err *err); /* command_ended */
int command_stop(struct command *c, int64_t grace_ms,
                 struct err *err); /* TERM, grace, KILL; whole tree */
