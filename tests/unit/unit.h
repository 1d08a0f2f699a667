/* What every unit test includes first: cmocka wants its four headers in this order. */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* For a test that this machine cannot run, as behind a wall it has no namespaces to give: skipped
 * and said so, but failed under WALL_MUST_WORK=1. Does not return. */
#define SKIP_UNLESS_MUST(why)                                                                      \
    do {                                                                                           \
        const char *must_ = getenv("WALL_MUST_WORK");                                              \
        if (must_ && strcmp(must_, "1") == 0)                                                      \
            fail_msg("%s", why);                                                                   \
        (void)fprintf(stderr, "skipped: %s\n", why);                                               \
        skip();                                                                                    \
    } while (0)

/* argv and environments in tests are literals; posix_spawn and kin want char *. */
#ifdef __clang__
#pragma clang diagnostic ignored "-Wincompatible-pointer-types-discards-qualifiers"
#else
#pragma GCC diagnostic ignored "-Wdiscarded-qualifiers"
#endif
