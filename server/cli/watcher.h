/* A process of our own that ends what we started when we cannot: the command line was killed with
 * SIGKILL, or crashed. It holds the read end of a pipe whose write end only we have; end of file
 * there without a farewell is our death. */
#pragma once
#include "cli/client.h"

struct watcher {
    int fd; /* the write end; -1 = none */
};
/* Forks it; C's connections are closed there. Failing is no error: it is a second net. */
void watcher_start(struct watcher *w, struct client *c);
/* What to POST to then: ".../stop". Replaces what was told before. */
void watcher_set(struct watcher *w, const char *path);
void watcher_done(struct watcher *w); /* farewell */
