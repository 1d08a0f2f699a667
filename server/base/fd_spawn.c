/* Runs in: daemon, CLI. Reads: trusted. May block: no. */
#include "base/fd.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>

#define SPAWN_FDS_MAX 16

/* Copies that stand in the way of the child's numbers are moved above them first. */
static int spawn_sources(const struct spawn *sp, int *source, int *moved)
{
    for (size_t i = 0; i < sp->n_fds; i++) {
        source[i] = sp->fds[i];
        if (source[i] < 0 || source[i] >= (int)sp->n_fds)
            continue;
        moved[i] = fcntl(source[i], F_DUPFD_CLOEXEC, (int)sp->n_fds);
        if (moved[i] < 0)
            return -errno;
        source[i] = moved[i];
    }
    return 0;
}

static int spawn_actions(const struct spawn *sp, const int *source, posix_spawn_file_actions_t *a)
{
    int r = 0;
    for (size_t i = 0; i < sp->n_fds && r == 0; i++)
        r = source[i] < 0 ? posix_spawn_file_actions_addopen(a, (int)i, "/dev/null", O_RDWR, 0)
                          : posix_spawn_file_actions_adddup2(a, source[i], (int)i);
    if (r == 0)
        r = posix_spawn_file_actions_addclosefrom_np(a, (int)sp->n_fds);
    if (r == 0)
        r = posix_spawn_file_actions_addchdir_np(a, sp->cwd ? sp->cwd : "/");
    return r;
}

static int spawn_attributes(posix_spawnattr_t *attr)
{
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    int r = posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    if (r == 0)
        r = posix_spawnattr_setsigdefault(attr, &all);
    if (r == 0)
        r = posix_spawnattr_setsigmask(attr, &none);
    return r;
}

pid_t fd_spawn(const struct spawn *sp)
{
    int source[SPAWN_FDS_MAX], moved[SPAWN_FDS_MAX];
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    pid_t pid = -1;
    if (sp->n_fds > SPAWN_FDS_MAX)
        return -EINVAL;
    memset(moved, -1, sizeof(moved));
    if (posix_spawn_file_actions_init(&actions) != 0)
        return -ENOMEM;
    if (posix_spawnattr_init(&attr) != 0) {
        (void)posix_spawn_file_actions_destroy(&actions);
        return -ENOMEM;
    }
    int r = spawn_sources(sp, source, moved);
    if (r == 0)
        r = -spawn_actions(sp, source, &actions);
    if (r == 0)
        r = -spawn_attributes(&attr);
    if (r == 0)
        r = -posix_spawn(&pid, sp->file, &actions, &attr, sp->argv, sp->envp);
    for (size_t i = 0; i < sp->n_fds; i++)
        fd_close(moved[i]);
    (void)posix_spawnattr_destroy(&attr);
    (void)posix_spawn_file_actions_destroy(&actions);
    return r < 0 ? r : pid;
}
