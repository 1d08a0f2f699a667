/* Bytes between a socket and a pair of descriptors, each direction with its own end. */
#pragma once

/* What comes from IN goes to SOCKET, whose sending side is shut at the end of IN; what comes from
 * SOCKET goes to OUT, which is closed at its end. Back when both ends were passed on, or OUT takes
 * no more. OUT may be the same file as IN. */
int relay(int socket, int in, int out);
