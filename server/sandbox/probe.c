/* Runs in: daemon. Reads: trusted. May block: up to PROBE_MS.
 *
 * Can this machine put up the wall? bubblewrap is found, is root's, new enough, and makes its
 * namespaces, all by one start of it that prints its own version from inside them. */
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "sandbox/owner.h"
#include "sandbox/wall.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROBE_MS  5000
#define BWRAP_MIN 8 /* 0.8: --args, --add-seccomp-fd, --as-pid-1 */

static char version[32];

/* Root's, and changeable by root alone: the file and the folders it lies in. */
static bool is_roots(const char *path)
{
    struct stat st;
    CLEANUP(freep) char *dir = strdup(path);
    if (!dir || stat(path, &st) < 0 || !S_ISREG(st.st_mode) || !owner_is_system(st.st_uid) ||
        st.st_mode & (S_IWGRP | S_IWOTH) || !(st.st_mode & S_IXUSR))
        return false;
    *strrchr(dir, '/') = '\0';
    return stat(dir, &st) == 0 && owner_is_system(st.st_uid) && !(st.st_mode & (S_IWGRP | S_IWOTH));
}

const char *bwrap_find(struct err *err)
{
    static const char *const PATHS[] = {"/usr/bin/bwrap", "/bin/bwrap"};
    const char *seen = NULL;
    for (size_t i = 0; i < ARRAY_LEN(PATHS); i++) {
        if (access(PATHS[i], F_OK) < 0)
            continue;
        if (is_roots(PATHS[i]))
            return PATHS[i];
        seen = PATHS[i];
    }
    if (seen)
        (void)err_set(err, -ENOTSUP, "session_refused",
                      "install the package bubblewrap again: the file must be root's and not "
                      "writable by others",
                      "%s is not a program that only root can change", seen);
    else
        (void)err_set(err, -ENOTSUP, "session_refused",
                      "install the package bubblewrap, or use the tier open",
                      "bubblewrap is not installed (looked for /usr/bin/bwrap and /bin/bwrap)");
    return NULL;
}

/* Runs ARGV[0], both outputs into RET; its wait status, or a negative errno. */
static int run(char *const *argv, struct str *ret)
{
    CLEANUP(fd_done) int in = -1;
    int pipe[2], status = 0;
    int r = fd_pipe(pipe);
    if (r < 0)
        return r;
    in = pipe[0];
    char *none[] = {NULL};
    const int fds[] = {-1, pipe[1], pipe[1]};
    pid_t pid = fd_spawn(&(struct spawn){
        .file = argv[0], .argv = argv, .envp = none, .fds = fds, .n_fds = ARRAY_LEN(fds)});
    close(pipe[1]);
    if (pid < 0)
        return (int)pid;
    ret->max = 8192;
    for (;;) {
        struct pollfd p = {.fd = in, .events = POLLIN};
        char buf[1024];
        ssize_t n = poll(&p, 1, PROBE_MS) == 1 ? read(in, buf, sizeof buf) : 0;
        if (n <= 0)
            break;
        if (str_add(ret, buf, (size_t)n) < 0)
            break;
    }
    if (waitpid(pid, &status, WNOHANG) == 0) {
        struct pollfd none_left = {.fd = -1};
        (void)poll(&none_left, 1, 20); /* it closed its outputs: it is about to end */
        if (waitpid(pid, &status, WNOHANG) == 0) {
            (void)kill(pid, SIGKILL);
            (void)waitpid(pid, &status, 0);
        }
    }
    return status;
}

static bool version_take(const char *text)
{
    unsigned major, minor, patch = 0;
    const char *at = strstr(text, "bubblewrap ");
    if (!at || sscanf(at, "bubblewrap %u.%u.%u", &major, &minor, &patch) < 2)
        return false;
    snprintf(version, sizeof version, "%u.%u.%u", major, minor, patch);
    return major > 0 || minor >= BWRAP_MIN;
}

const char *wall_bwrap_version(void)
{
    struct str said = {0};
    struct err none = {0};
    const char *bwrap = version[0] ? NULL : bwrap_find(&none);
    CLEANUP(freep) char *file = bwrap ? strdup(bwrap) : NULL;
    char option[] = "--version";
    char *argv[] = {file, option, NULL};
    if (file && run(argv, &said) == 0)
        (void)version_take(str_c(&said));
    str_done(&said);
    return version;
}

/* bubblewrap with all its namespaces around `bwrap --version`. */
static int probe_bwrap(const char *bwrap, struct err *err)
{
    static const char *const ARGS[] = {"--unshare-user",
                                       "--unshare-pid",
                                       "--unshare-ipc",
                                       "--unshare-uts",
                                       "--unshare-net",
                                       "--unshare-cgroup",
                                       "--die-with-parent",
                                       "--cap-drop",
                                       "ALL",
                                       "--ro-bind",
                                       "/usr",
                                       "/usr",
                                       "--ro-bind-try",
                                       "/bin",
                                       "/bin",
                                       "--ro-bind-try",
                                       "/lib",
                                       "/lib",
                                       "--ro-bind-try",
                                       "/lib64",
                                       "/lib64",
                                       "--ro-bind-try",
                                       "/nix",
                                       "/nix",
                                       "--proc",
                                       "/proc",
                                       "--dev",
                                       "/dev",
                                       "--"};
    struct str said = {0}, text = {0};
    struct strv argv = {0};
    int r = strv_add(&argv, bwrap);
    for (size_t i = 0; i < ARRAY_LEN(ARGS) && r >= 0; i++)
        r = strv_add(&argv, ARGS[i]);
    if (r >= 0)
        r = strv_add(&argv, bwrap);
    if (r >= 0)
        r = strv_add(&argv, "--version");
    if (r >= 0)
        r = run(argv.items, &said);
    (void)str_put_escaped(&text, str_c(&said), said.len);
    if (r < 0)
        (void)err_set(err, r, "session_refused", "install the package bubblewrap again",
                      "%s cannot be started: %s", bwrap, strerror(-r));
    else if (r > 0)
        cure_namespaces(0, str_c(&text), err);
    else if (!version_take(str_c(&said)))
        (void)err_set(err, -ENOTSUP, "session_refused", "install bubblewrap 0.8 or newer",
                      "bubblewrap %s is too old", version[0] ? version : "of unknown version");
    strv_done(&argv);
    str_done(&said);
    str_done(&text);
    return err_is_set(err) ? -ENOTSUP : r;
}

static int probe_linux(const struct machine *m, struct err *err)
{
    const char *bwrap = bwrap_find(err);
    if (!bwrap)
        return -ENOTSUP;
    if (m->kernel_major * 1000 + m->kernel_minor < 5015)
        return err_set(err, -ENOTSUP, "session_refused", "use Linux 5.15 or newer",
                       "the kernel is %s", m->kernel);
    if (m->landlock_abi < 1)
        return cure_landlock(err);
    if (access(m->runner, X_OK) < 0)
        return err_set(err, -ENOTSUP, "session_refused", "install Cordon again",
                       "%s cannot be started: %s", m->runner, strerror(errno));
    return probe_bwrap(bwrap, err);
}

int provider_probe(enum provider provider, const struct machine *m, struct err *err)
{
    struct err own = {0};
    switch (provider) {
    case PROVIDER_BUBBLEWRAP: {
        int r = probe_linux(m, err ? err : &own);
        return r < 0 ? -ENOTSUP : 0;
    }
    case PROVIDER_DIRECT:
        return 0;
    case PROVIDER_SEATBELT:
    case PROVIDER_UNKNOWN:
        break;
    }
    return err_set(err, -ENOTSUP, "wall_unavailable", NULL, "this provider is not for this system");
}
