/* Runs in: cli. Reads: trusted (the person's environment). May block: no. */
#include "cli/places.h"
#include "base/mem.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

int places_find(struct places *ret, struct err *err)
{
    memset(ret, 0, sizeof *ret);
    CLEANUP(freep) char *home = home_find();
    if (!home)
        return err_set(err, -ENOENT, "usage", "set HOME", "no home folder is known");
    ret->state = home_folder("XDG_STATE_HOME", home, ".local/state");
    /* A runtime folder of our own settles it: /tmp/cordon-UID would be another home's daemon. */
    for (enum home_run i = 0; ret->state && i < HOME_RUNS; i++) {
        int r = home_run_folder(ret->state, i, &ret->run[ret->n_run]);
        if (r == -ENOMEM)
            return err_set(err, r, "internal", NULL, "out of memory");
        ret->n_run += r == 0;
        if (r == 0 && i == HOME_RUN_XDG)
            break;
    }
    if (!ret->state)
        return err_set(err, -ENOMEM, "internal", NULL, "out of memory");
    int r = find_programs(ret);
    if (r < 0)
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
