/* Attached to a running command: its output comes to our standard out and error as it is written
 * there, our standard in goes to it with back-pressure, signals are passed on. */
#pragma once
#include "cli/asking.h"
#include "cli/client.h"
#include <jansson.h>
#include <stdbool.h>

struct attach {
    struct client *client;
    const char *command_path; /* /v1/sessions/S/commands/C */
    bool pass_stdin;          /* the command was started with a pipe */
    bool discard_output;      /* --json: only the end counts */
    struct asking *asking;    /* who is asked about sites, or NULL */
    json_t *end;              /* the end frame: state, result; owned; NULL when we left before it */
    int left_by_signal;       /* its number when the person insisted */
    uint64_t lost_bytes;      /* in gaps */

    /* internal */
    struct httpc side; /* standard in and signals: one exchange at a time */
    bool side_is_stdin, in_eof, in_done;
    struct str in;
    uint64_t in_offset, in_retry_at;
    unsigned pending_signals, n_signals;
    int write_errno;
};

/* Whether standard in is something to pass on: not closed, not /dev/null. */
bool attach_has_stdin(void);
/* From here on signals are noted, not died of. Before any connection is open: descriptors 0, 1, 2
 * that are closed get /dev/null, so that none of ours lands there. */
void attach_prepare(void);
int attach_signal(void); /* a signal that came and was not taken yet, else 0 */
/* Until the command ended or there is a reason to leave. */
int attach_run(struct attach *a, struct err *err);
void attach_done(struct attach *a);
