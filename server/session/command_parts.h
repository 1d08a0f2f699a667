/* What one command is made of: shared by the command files of this room only. command.c its life ·
 * command_start.c what it is started with · command_input.c standard input · command_clock.c
 * signals and time-outs · command_end.c its end · command_record.c, command_json.c what is told of
 * it. */
#pragma once
#include "session/channel.h"
#include "session/output.h"
#include "session/parts.h"
#include "store/events.h"

#define COMMAND_STDIN_MAX   ((size_t)256 << 10) /* buffered, and one POST */
#define COMMAND_BLOCKED_MAX 64                  /* different hosts told in one result */
#define COMMAND_DISPLAY_MAX 4096

struct blocked_host {
    char host[HOST_MAX];
    uint16_t port;
    char reason[24];
    char *rule, *hint;
    uint64_t count, unsaid; /* in all, and those of them that the store does not have yet */
};
struct command_result {
    bool is_signaled;
    int code; /* exit code or signal number */
    uint64_t cpu_us, max_rss_bytes;
    char *cwd;
    const char *limit; /* NULL, or what was hit */
};
struct command_input {
    int fd; /* the daemon's write end; -1 = none, or closed */
    uv_poll_t poll;
    struct str buffer;
    uint64_t accepted_to;
    bool close_after, is_waiting;
};

struct command {
    struct command *next; /* in its session, newest first */
    unsigned refs;
    struct session *session; /* a reference */
    /* The sandbox it runs in, or left something running in: counted there; NULL before and after.
     */
    struct generation *generation;
    struct closing closing;
    struct deadline deadline;
    struct channel ch; /* to its supervisor */
    struct watched watched;
    char id[ID_MAX];
    enum command_state state;
    uint32_t start_id; /* of M_START; 0 = not started */

    /* What was sent. */
    struct strv argv;
    struct strv start_argv, start_env; /* until it is started */
    char *shell, *cwd;
    json_t *env; /* until it is started: values are kept nowhere */
    json_t *env_names, *origin;
    bool stdin_pipe, kill_on_disconnect;
    int64_t timeout_ms, idle_timeout_ms, kill_grace_ms, max_output_bytes;
    unsigned umask;
    struct actor actor;

    struct wall_hits hits; /* of the wall's limits, when it was started */
    json_t *enforcement;   /* of the wall it was started behind */
    struct spool *spool;
    struct output *output;
    struct command_input input;
    int64_t started_at, ended_at;  /* wall ms */
    uint64_t started_ms, ended_ms; /* monotonic */
    uint64_t last_output_ms;

    /* How it goes. */
    bool has_result;     /* M_CMD_EXIT came; the output is drained next */
    bool is_stopped;     /* by a client */
    bool is_timed_out;   /* by one of its clocks */
    bool is_output_lost; /* the spool took no more */
    uint64_t kill_at_ms; /* 0 = no KILL is due */
    unsigned n_kills;    /* sent, and no end was told */
    bool has_tail;       /* ended, but background processes of it live */
    bool is_unsent;      /* M_START could not be sent: start_errno says why */
    struct command_result result;
    int start_errno;
    enum start_stage start_stage;
    struct blocked_host *blocked;
    size_t n_blocked;
    char asked_id[ID_MAX]; /* of the ask that was told last in its output */
    json_t *output_counts; /* once the spool is closed */
};
void command_unlist(struct command *c);       /* may free it */
void command_blocked_said(struct command *c); /* the store gets what it does not have yet */

int command_record_start(struct command *c); /* committed, or it must not start */
/* What follows events is told: created, or its state is another. */
void command_tell(struct command *c, enum event_change change);
void command_record_end(struct command *c); /* owed: it has ended, come what may */

/* Its end, once: recorded, told to who watches; a tail is kept. */
void command_finish(struct command *c, enum command_state state);
/* Why it ended, once its process has and its output is read. */
enum command_state command_end_state(const struct command *c);
void command_fail_start(struct command *c, enum start_stage stage, uint32_t error); /* never ran */
void command_cut_off(
    struct command *c); /* the wall went down: the end of its process is not told */

void command_set_clock(struct command *c);
void command_clock_passed(struct deadline *d);

/* The arguments and the environment it is started with, checked, into start_argv and start_env. */
int command_words(struct command *c, struct err *err);
/* Sends it off: pipes made, M_START sent, our ends watched. */
int command_launch(struct command *c);
int command_send_signal(struct command *c, int signo, enum signal_to to);
int command_got(struct channel *ch, const struct frame *f);
void command_channel_ended(struct channel *ch, int r);
void command_wrote(void *arg);
void command_output_failed(int r, void *arg);
void command_output_finished(void *arg);
int command_check_cwd(const struct command *c, const char *asked, char **ret, struct err *err);

void command_input_init(struct command *c);
int command_input_open(struct command *c, int take_fd);
void command_input_close(struct command *c);

json_t *command_result_json(const struct command *c);
json_t *command_start_error_json(const struct command *c);
