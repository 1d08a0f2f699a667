/* Addresses that mean something inside a session's network namespace only: its own, and those that
 * stand for names. They lie where nobody on the internet is (RFC 2544: 198.18.0.0/15; RFC 4193: a
 * fixed unique local /64). What is made of them: egress/names; what leads there: runner/redirect.
 *
 * The namespace's own are 198.18.0.1 and the /64's ::1; names begin at 198.18.1.0 and at the /64's
 * ::c612:100, the same four bytes. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#define SYNTHETIC_V4_NET   0xc6120000u /* 198.18.0.0/15, host byte order */
#define SYNTHETIC_V4_MASK  0xfffe0000u
#define SYNTHETIC_V4_OWN   0xc6120001u /* 198.18.0.1 */
#define SYNTHETIC_V4_NAMES 0xc6120100u /* 198.18.1.0 */
#define SYNTHETIC_V6_BYTES                                                                         \
    0xfd, 0x63, 0x6f, 0x72, 0x64, 0x6f, 0x6e, 0x00       /* its first eight bytes */
#define SYNTHETIC_NAMES       16384                      /* that a session can have */
#define SYNTHETIC_NAMES_BYTES (((size_t)4 << 20) + 4096) /* of the memory they are kept in */
/* fd63:6f72:646f:6e00::1 */
#define SYNTHETIC_V6_OWN                                                                           \
    {                                                                                              \
        SYNTHETIC_V6_BYTES, 0, 0, 0, 0, 0, 0, 0, 1                                                 \
    }

/* In either of the two networks, whether or not it stands for a name. */
bool synthetic_is(const struct sockaddr *sa);
