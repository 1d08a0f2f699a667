/* The file tools (M_TOOL): one row a tool, one function each. Runs in a worker, a forked child of
 * the runner for each call, so that a slow one holds up nothing and can be killed. The wall decides
 * what can be opened; roots narrow further (runner/place). */
#pragma once
#include "wire/pack.h"

/* U stands at the start of an M_TOOL payload. TAKE_FD is the content of a WRITE or -1. Answers one
 * M_TOOLED on SOCK; ID is what it answers with when the request cannot be read. */
void tool_call(struct unpack *u, uint32_t id, int take_fd, int sock);
