/* A process of our own that ends what we started when we cannot: the command line was killed with
 * SIGKILL, or crashed. It reads the answer to the request that makes a thing, and hands it on to
 * us, so that there is no moment at which the thing is there and nobody who lives knows of it. End
 * of file on its socket without a farewell is our death. */
#pragma once
#include "cli/client.h"

struct watcher {
    int fd; /* a socket to it; -1 = none */
};
/* Forks it while C's request is out. COLLECTION is what the request was posted to: of an answer
 * {"id": …} it knows that COLLECTION/id/stop is what to POST to. C's other descriptors are closed
 * there. Failing is no error, as it is a second net: C waits for its answer itself then. */
void watcher_start(struct watcher *w, struct client *c, const char *collection);
/* The answer, as httpc_wait gives it. */
int watcher_answer(struct watcher *w, struct httpc *h);
/* What to POST to when we die, in place of what was known before; "" is nothing. */
void watcher_set(struct watcher *w, const char *path);
void watcher_done(struct watcher *w); /* farewell */
