/* Named stop points and removable layers, in the programs of BUILD/bin/stop only
 * (tests/CMakeLists.txt): tests/wall kills the daemon at each point and takes one layer of the wall
 * away at a time. In any other build both are nothing at all.
 *
 * CORDON_TEST_STOP=name     the process that comes to that point calls itself "stopped" (comm) and
 *                           waits for ever
 * CORDON_TEST_WITHOUT=layer the wall is put up without that layer */
#pragma once
#include <stdbool.h>

#ifdef CORDON_STOP_POINTS
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
static inline bool stop_env_is(const char *variable, const char *name)
{
    const char *value = getenv(variable);
    return value && strcmp(value, name) == 0;
}
static inline void stop_point(const char *name)
{
    if (!stop_env_is("CORDON_TEST_STOP", name))
        return;
    (void)prctl(PR_SET_NAME, "stopped");
    for (;;)
        (void)pause();
}
static inline bool stop_without(const char *layer)
{
    return stop_env_is("CORDON_TEST_WITHOUT", layer);
}
#else
static inline void stop_point(const char *name)
{
    (void)name;
}
static inline bool stop_without(const char *layer)
{
    (void)layer;
    return false;
}
#endif
