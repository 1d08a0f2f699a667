/* `cordon-runner stage`: outside the wall, before bubblewrap. It makes the session's namespaces,
 * its doors and its view, and becomes bubblewrap, which starts the runner inside.
 *
 *   outer   unshares user, network, mount and pid namespaces, forks, waits. SIGTERM to it ends the
 *           whole wall and it exits only when nothing of the wall lives any more.
 *   inner   pid 1 of the new pid namespace: loopback, M_STAGE_ORDER, doors, view, exec.
 *
 * The namespaces are made before the order is read, while the daemon still renders it. The order
 * is one frame, and not a byte behind it is read: the runner inherits the same socket. Each failure
 * is one M_STAGE_FAILED (exit code, errno, "step: path") and that exit code. */
#pragma once

/* CONTROL is the control socket (FD_CONTROL), blocking. Descriptor 2 is the daemon's. Does not
 * return. */
int stage_main(int control) __attribute__((noreturn));
