/* What the proof tries from inside (M_PROBE): each kind of enum probe_kind is one function that
 * does what an attacker would do and tells how it went. It decides nothing: session/proof judges.
 * Everything that succeeds leaves nothing behind. */
#pragma once
#include "wire/pack.h"
#include <stdbool.h>

/* U stands at the start of an M_PROBE payload. Adds the frame of one M_PROBED to OUT. Runs in the
 * runner itself, as what is proved is that process; waits at most 2 s for the network. */
void probe_call(struct unpack *u, struct str *out);

/* By runner.c: does the runner itself hold this descriptor, on purpose? */
bool runner_owns_fd(int fd);
