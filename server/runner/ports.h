/* Ports on loopback inside, by order of the daemon: a listener that stands for a service of the
 * host, handed out (M_LISTEN), and a connection to a server inside, handed out too (M_CONNECT). The
 * runner keeps neither. */
#pragma once
#include "wire/frame.h"

/* Answers M_LISTENING or M_CONNECTED to CONTROL, with what it made or why not. Negative: F is
 * nonsense, or CONTROL failed. */
int port_listen(const struct frame *f, int control);
int port_connect(const struct frame *f, int control);
