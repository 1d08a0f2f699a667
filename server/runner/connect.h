/* `cordon-runner connect HOST PORT [pass]`, inside the wall: a ProxyCommand (ssh_config(5)) that
 * needs no other program. It asks the session's door for a tunnel (RFC 9110, 9.3.6) and then
 * carries bytes between it and standard input and output, each direction with its own end; with
 * `pass` it hands the tunnel's socket to standard output, a unix socket, and is done
 * (ProxyUseFdpass).
 *
 * A loopback HOST is a server inside and dialled directly. A refusal is one line on standard error
 * that names host, port, reason and cure. */
#pragma once

/* ARGV begins with HOST. The exit code: 0, or 1 when there was no tunnel. */
int connect_main(int argc, char **argv);
