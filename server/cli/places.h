/* Where the daemon of this user keeps its things, as the daemon itself finds them (man
 * cordond): XDG variables are honoured when absolute. */
#pragma once
#include "base/err.h"
#include "base/home.h"
#include <stddef.h>

struct places {
    char *state;          /* $XDG_STATE_HOME/cordon or ~/.local/state/cordon */
    char *run[HOME_RUNS]; /* where a socket with its copy of server.json may lie */
    size_t n_run;
    char *programs; /* the folder this program lies in: cordond is beside it */
};
int places_find(struct places *ret, struct err *err);
void places_done(struct places *p);
