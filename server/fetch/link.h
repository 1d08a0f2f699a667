/* The daemon's end of this process: frames out at once, frames in when asked for. Blocking: one
 * call is all that this process does. A daemon that is gone, or talks nonsense, ends the process.
 */
#pragma once
#include "wire/frame.h"
#include "wire/msg.h"
#include "wire/pack.h"

void link_open(int fd);
/* Waits for the next frame, which must be of KIND; borrowed until the next call. */
struct unpack link_wait(enum msg_kind kind);
void link_send(enum msg_kind kind, struct pack *take_p);
_Noreturn void link_lost(const char *why); /* "" = in good order */
