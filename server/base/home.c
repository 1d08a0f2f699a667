/* Runs in: daemon, cli. Reads: trusted (the person's environment). May block: yes (stat). */
#include "base/home.h"
#include "base/mem.h"
#include "base/path.h"
#include <errno.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_callers(const char *dir)
{
    struct stat st;
    return geteuid() == 0 && getenv("SUDO_UID") && stat(dir, &st) == 0 && st.st_uid != 0;
}

char *home_find(void)
{
    const char *home = getenv("HOME");
    if (home && home[0] == '/' && !is_callers(home))
        return strdup(home);
    const struct passwd *pw = getpwuid(geteuid());
    return pw && pw->pw_dir && pw->pw_dir[0] == '/' ? strdup(pw->pw_dir) : NULL;
}

static char *print_path(const char *a, const char *b, const char *c)
{
    char *s = NULL;
    return asprintf(&s, "%s%s%s", a, b, c) < 0 ? NULL : s;
}

char *home_folder(const char *variable, const char *home, const char *fallback)
{
    const char *xdg = getenv(variable);
    CLEANUP(freep) char *dir = NULL, *text = NULL;
    char *ret = NULL;
    if (xdg && xdg[0] == '/' && !is_callers(xdg))
        text = print_path(xdg, "/cordon", "");
    else if ((dir = print_path(home, "/", fallback)))
        text = print_path(dir, "/cordon", "");
    return text && path_canonical(text, &ret) >= 0 ? ret : NULL;
}

int home_run_folder(const char *state, enum home_run which, char **ret)
{
    const char *xdg = getenv("XDG_RUNTIME_DIR");
    char uid[24];
    char *dir = NULL;
    switch (which) {
    case HOME_RUN_XDG:
        if (!xdg || xdg[0] != '/' || home_is_ours(xdg) < 0)
            return -ENOENT;
        dir = print_path(xdg, "/cordon", "");
        break;
    case HOME_RUN_STATE:
        dir = print_path(state, "/run", "");
        break;
    case HOME_RUN_TMP:
        (void)snprintf(uid, sizeof uid, "%u", (unsigned)geteuid());
        dir = print_path("/tmp/cordon-", uid, "");
        break;
    case HOME_RUNS:
        return -ENOENT;
    }
    if (!dir)
        return -ENOMEM;
    *ret = dir;
    return 0;
}

int home_is_ours(const char *dir)
{
    struct stat st;
    if (lstat(dir, &st) < 0)
        return -errno;
    if (!S_ISDIR(st.st_mode))
        return -ENOTDIR;
    return st.st_uid == geteuid() && !(st.st_mode & 022) ? 0 : -EPERM;
}
