/* Answers of the runner and of its workers: one message is one frame (wire/frame). */
#pragma once
#include "wire/pack.h"

/* Sends P as one frame of KIND, with FD unless it is -1 (it travels with the first byte). SOCK may
 * be non-blocking: waits until all is written. P's own error, -EMSGSIZE, or the socket's. */
int runner_answer(int sock, uint8_t kind, const struct pack *p, int fd);
int runner_answer_fds(int sock, uint8_t kind, const struct pack *p, const int *fds, size_t n);
/* Sends whole frames that were put into FRAMES, at once, and empties it. */
int runner_flush(int sock, struct str *frames);
