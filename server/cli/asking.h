/* What `cordon run --ask` does about sites: of each that was refused, or is held, the person at the
 * terminal is asked, and the answer goes to the daemon. While a question stands, the command's
 * output and the terminal's input wait; the command itself does not.
 *
 *     q.client = …; q.session_path = "/v1/sessions/ses_…";
 *     asking_open(&q);                                 // false: there is nobody to ask
 *     asking_frame(&q, frame, signal_fd);              // of the output: kinds ask and blocked
 *     asking_close(&q); */
#pragma once
#include "cli/client.h"
#include "cli/prompt.h"
#include <jansson.h>

struct asking {
    struct client *client;
    const char *session_path;
    struct prompt prompt;
    struct httpc calls, news; /* short calls, and the long poll */
    bool told_background;
};
bool asking_open(struct asking *q);
/* Asks, when FRAME is about a site that may be asked for. Comes back with the answer given, when
 * the question was settled elsewhere, or when SIGNAL_FD becomes readable: a signal came, and is
 * whoever called's. */
void asking_frame(struct asking *q, const json_t *frame, int signal_fd);
void asking_close(struct asking *q);
