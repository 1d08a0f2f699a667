/* Runs in: daemon. Reads: trusted (the kernel's settings). May block: no.
 *
 * Why a machine cannot put up the wall, and the smallest thing that helps. */
#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/wall.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The number in a file of /proc/sys, or FALLBACK when there is none. */
static long sysctl_of(const char *path, long fallback)
{
    CLEANUP(freep) char *text = NULL;
    size_t n;
    char *end;
    if (fd_read_file(AT_FDCWD, path, 64, &text, &n) < 0)
        return fallback;
    long value = strtol(text, &end, 10);
    return end == text ? fallback : value;
}

static const char *container_of_ours(void)
{
    if (access("/.dockerenv", F_OK) == 0)
        return "a container";
    if (access("/run/.containerenv", F_OK) == 0)
        return "a container";
    if (getenv("KUBERNETES_SERVICE_HOST"))
        return "a pod";
    return NULL;
}

int cure_landlock(struct err *err)
{
    return err_set(err, -ENOTSUP, "session_refused",
                   "add landlock to the kernel's lsm= list and restart the machine",
                   "the kernel has no Landlock, or it is switched off");
}

void cure_namespaces(int errnum, const char *what, struct err *err)
{
    const char *cause = errnum ? strerror(errnum) : "bubblewrap gave up";
    const char *place = container_of_ours();
    if (sysctl_of("/proc/sys/user/max_user_namespaces", 1) == 0)
        (void)err_set(err, -ENOTSUP, "session_refused",
                      "as root: sysctl -w user.max_user_namespaces=15000",
                      "this machine allows no user namespaces (%s: %s)", what, cause);
    else if (sysctl_of("/proc/sys/kernel/unprivileged_userns_clone", 1) == 0 && geteuid() != 0)
        (void)err_set(err, -ENOTSUP, "session_refused",
                      "as root: sysctl -w kernel.unprivileged_userns_clone=1",
                      "this machine allows user namespaces to root alone (%s: %s)", what, cause);
    else if (sysctl_of("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", 0) == 1 &&
             geteuid() != 0)
        (void)err_set(err, -ENOTSUP, "session_refused",
                      "as root: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or give "
                      "cordon-runner and bwrap an AppArmor profile with `userns,`",
                      "AppArmor refuses user namespaces to Cordon's programs (%s: %s)", what,
                      cause);
    else if (place)
        (void)err_set(err, -ENOTSUP, "session_refused",
                      "start the container with --security-opt seccomp=unconfined --security-opt "
                      "apparmor=unconfined --security-opt systempaths=unconfined (a pod: an "
                      "unconfined seccompProfile and procMount Unmasked)",
                      "Cordon itself runs inside %s that refuses namespaces (%s: %s)", place, what,
                      cause);
    else if (errnum == ENOSPC || errnum == EUSERS)
        (void)err_set(err, -ENOTSUP, "session_refused",
                      "end some sessions, or as root: sysctl -w user.max_user_namespaces=15000 "
                      "user.max_net_namespaces=15000 user.max_mnt_namespaces=15000",
                      "this user has as many namespaces as the kernel allows, or they are nested "
                      "too deep (%s)",
                      what);
    else
        (void)err_set(err, -ENOTSUP, "session_refused",
                      "if Cordon itself runs inside a sandbox, run it outside; else allow user "
                      "namespaces to this user",
                      "the kernel refuses the wall's namespaces (%s: %s)", what, cause);
}
