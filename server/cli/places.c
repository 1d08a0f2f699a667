/* Runs in: cli. Reads: trusted (the person's environment). May block: no. */
#include "cli/places.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/str.h"
#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char *print_path(const char *a, const char *b)
{
    char *s = NULL;
    return asprintf(&s, "%s%s", a, b) < 0 ? NULL : s;
}

/* Under sudo HOME may still be the caller's: root's files must not land there. */
static bool is_callers_home(const char *home)
{
    struct stat st;
    return geteuid() == 0 && getenv("SUDO_UID") && stat(home, &st) == 0 && st.st_uid != 0;
}

static char *find_home(void)
{
    const char *home = getenv("HOME");
    if (home && home[0] == '/' && !is_callers_home(home))
        return strdup(home);
    const struct passwd *pw = getpwuid(geteuid());
    return pw && pw->pw_dir && pw->pw_dir[0] == '/' ? strdup(pw->pw_dir) : NULL;
}

static int find_programs(struct places *ret)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0)
        return -errno;
    self[n] = '\0';
    *strrchr(self, '/') = '\0';
    ret->programs = strdup(self);
    return ret->programs ? 0 : -ENOMEM;
}

static int add_run(struct places *p, char *take_dir)
{
    if (!take_dir)
        return -ENOMEM;
    p->run[p->n_run++] = take_dir;
    return 0;
}

int places_find(struct places *ret, struct err *err)
{
    memset(ret, 0, sizeof *ret);
    const char *xdg_state = getenv("XDG_STATE_HOME"), *xdg_run = getenv("XDG_RUNTIME_DIR");
    CLEANUP(freep) char *home = find_home();
    char tmp[48];
    if (xdg_state && xdg_state[0] == '/' && !is_callers_home(xdg_state))
        ret->state = print_path(xdg_state, "/cordon");
    else if (home)
        ret->state = print_path(home, "/.local/state/cordon");
    else
        return err_set(err, -ENOENT, "usage", "set HOME", "no home folder is known");
    snprintf(tmp, sizeof tmp, "/tmp/cordon-%u", (unsigned)geteuid());
    int r = 0;
    if (xdg_run && xdg_run[0] == '/' && place_is_ours(xdg_run) == 0)
        r = add_run(ret, print_path(xdg_run, "/cordon"));
    if (r < 0 || !ret->state || add_run(ret, print_path(ret->state, "/run")) < 0 ||
        add_run(ret, strdup(tmp)) < 0)
        return err_set(err, -ENOMEM, "internal", NULL, "out of memory");
    if ((r = find_programs(ret)) < 0)
        return err_set(err, r, "internal", NULL, "where this program lies is not known");
    return 0;
}

void places_done(struct places *p)
{
    free(p->state);
    free(p->programs);
    for (size_t i = 0; i < p->n_run; i++)
        free(p->run[i]);
    memset(p, 0, sizeof *p);
}

int place_is_ours(const char *dir)
{
    struct stat st;
    if (lstat(dir, &st) < 0)
        return -errno;
    if (!S_ISDIR(st.st_mode))
        return -ENOTDIR;
    return st.st_uid == geteuid() && !(st.st_mode & 022) ? 0 : -EPERM;
}
