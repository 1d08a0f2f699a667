/* The redirect: in the calling process's network namespace every address of the world is its own,
 * and each TCP connection to one that is not loopback goes to the door instead, which asks the
 * kernel where it was meant for (SO_ORIGINAL_DST). What is sent by UDP reaches nobody outside.
 *
 * Made of 198.18.0.1 and a unique local address on "lo" (programs look for an address that is not
 * loopback before they ask for names), a local route for everything, and one nf_tables rule a
 * family. Needs CAP_NET_ADMIN in the namespace's user namespace and no program. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* Sends TCP to PORT of loopback. IPV6: the kernel has it, and the door too. Negative errno, with
 * *ret_what the step, when this kernel does not let us: no route leads anywhere then. */
int redirect_set_up(uint16_t port, bool ipv6, const char **ret_what);
