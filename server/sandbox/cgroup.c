/* Runs in: daemon. Reads: trusted (the kernel's files). May block: no (cgroupfs). */
#include "sandbox/cgroup.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/stop.h"
#include "base/str.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GROUP_PREFIX "cordon."
#define PERIOD_US    100000

/* One limit: its controller, its file by version, and where its hits are counted. */
struct control {
    enum wall_limit limit;
    const char *controller;
    const char *set[2], *hits[2], *counter[2]; /* [0] version 1, [1] version 2 */
};
static const struct control CONTROLS[] = {
    {WALL_MEMORY,
     "memory",
     {"memory.limit_in_bytes", "memory.max"},
     {"memory.oom_control", "memory.events"},
     {"oom_kill", "oom_kill"}},
    {WALL_PROCESSES,
     "pids",
     {"pids.max", "pids.max"},
     {"pids.events", "pids.events"},
     {"max", "max"}},
    {WALL_CPU,
     "cpu",
     {"cpu.cfs_quota_us", "cpu.max"},
     {"cpu.stat", "cpu.stat"},
     {"nr_throttled", "nr_throttled"}},
};
#define N_CONTROLS ARRAY_LEN(CONTROLS)

struct cgroup {
    char *dirs[N_CONTROLS]; /* by control; NULL = not held */
    char *made[CGROUPS_MAX];
    size_t n_made;
    int hits[N_CONTROLS]; /* open files, read anew from the start */
    bool is_v2;
};

/* The folders that groups are made in, by control; looked for once. */
static struct {
    bool was_looked_for, is_v2;
    char *parents[N_CONTROLS];
} machine;

/* ---- Where ------------------------------------------------------------------------------------
 */

static bool has_word(const char *list, const char *word, const char *separators)
{
    size_t n = strlen(word);
    for (const char *at = list; (at = strstr(at, word)) != NULL; at += n)
        if ((at == list || strchr(separators, at[-1])) && (!at[n] || strchr(separators, at[n])))
            return true;
    return false;
}

/* Our own group in the hierarchy whose list of controllers has WORD ("" = version 2), from
 * /proc/self/cgroup: "ID:CONTROLLERS:PATH". */
static bool own_group(const char *text, const char *word, char ret[static PATH_MAX])
{
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
        if (!path)
            return false;
        char names[256];
        (void)snprintf(names, sizeof names, "%.*s", (int)(path - list - 1), list + 1);
        if (*word ? !has_word(names, word, ",") : *names != '\0')
            continue;
        (void)snprintf(ret, PATH_MAX, "%.*s", (int)strcspn(path + 1, "\n"), path + 1);
        return true;
    }
    return false;
}

/* Where that hierarchy is mounted, from /proc/self/mountinfo (proc(5)): ROOT is the group that the
 * mount shows. WORD is the controller, "" for version 2. */
static bool mounted_at(const char *text, const char *word, char root[static PATH_MAX],
                       char point[static PATH_MAX])
{
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        char type[32], options[256];
        line += *line == '\n';
        const char *dash = strstr(line, " - "), *end = strchr(line, '\n');
        if (!dash || (end && dash > end) ||
            sscanf(line, "%*s %*s %*s %4095s %4095s", root, point) != 2 ||
            sscanf(dash + 3, "%31s %*s %255s", type, options) != 2)
            continue;
        if (*word ? strcmp(type, "cgroup") == 0 && has_word(options, word, ",")
                  : strcmp(type, "cgroup2") == 0)
            return true;
    }
    return false;
}

/* The folder of our own group; NULL when it cannot be seen. */
static char *own_folder(const char *groups, const char *mounts, const char *word)
{
    char group[PATH_MAX], root[PATH_MAX], point[PATH_MAX], *ret = NULL;
    if (!own_group(groups, word, group) || !mounted_at(mounts, word, root, point))
        return NULL;
    const char *below = group;
    if (strcmp(root, "/") != 0) {
        if (!path_is_under(group, root))
            return NULL;
        below = group + strlen(root);
    }
    return asprintf(&ret, "%s%s", point, strcmp(below, "/") == 0 ? "" : below) < 0 ? NULL : ret;
}

static bool may_divide(const char *dir)
{
    char procs[PATH_MAX];
    return (size_t)snprintf(procs, sizeof procs, "%s/cgroup.procs", dir) < sizeof procs &&
           access(dir, W_OK) == 0 && access(procs, W_OK) == 0;
}

static bool gives(const char *dir, const char *controller)
{
    char file[PATH_MAX];
    CLEANUP(freep) char *text = NULL;
    (void)snprintf(file, sizeof file, "%s/cgroup.subtree_control", dir);
    return fd_read_file(AT_FDCWD, file, 4096, &text, NULL) >= 0 &&
           has_word(text, controller, " \n");
}

/* Version 2: a group that holds processes divides nothing (but the root), so the nearest one above
 * ours that is ours and hands its controllers down. */
static void look_v2(const char *groups, const char *mounts)
{
    char root[PATH_MAX], point[PATH_MAX];
    CLEANUP(freep) char *dir = own_folder(groups, mounts, "");
    if (!dir || !mounted_at(mounts, "", root, point))
        return;
    for (;; *strrchr(dir, '/') = '\0') {
        bool any = false;
        for (size_t i = 0; i < N_CONTROLS && may_divide(dir); i++)
            any |= gives(dir, CONTROLS[i].controller);
        for (size_t i = 0; i < N_CONTROLS && any; i++)
            if (gives(dir, CONTROLS[i].controller))
                machine.parents[i] = strdup(dir);
        machine.is_v2 = any;
        if (any || strcmp(dir, point) == 0 || !strrchr(dir, '/'))
            return;
    }
}

static void look_v1(const char *groups, const char *mounts)
{
    for (size_t i = 0; i < N_CONTROLS; i++) {
        char *dir = own_folder(groups, mounts, CONTROLS[i].controller);
        if (dir && may_divide(dir))
            machine.parents[i] = dir;
        else
            free(dir);
    }
}

static void look(void)
{
    CLEANUP(freep) char *groups = NULL, *mounts = NULL;
    if (machine.was_looked_for)
        return;
    machine.was_looked_for = true;
    if (fd_read_file(AT_FDCWD, "/proc/self/cgroup", 65536, &groups, NULL) < 0 ||
        fd_read_file(AT_FDCWD, "/proc/self/mountinfo", (size_t)4 << 20, &mounts, NULL) < 0)
        return;
    look_v2(groups, mounts);
    if (!machine.is_v2)
        look_v1(groups, mounts);
}

/* ---- One group --------------------------------------------------------------------------------
 */

static int put(const char *dir, const char *file, const char *value)
{
    char path[PATH_MAX];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, file) >= sizeof path)
        return -ENAMETOOLONG;
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int r = fd_write_all(fd, value, strlen(value));
    fd_close(fd);
    return r;
}

static uint64_t wanted(const struct policy_limits *l, enum wall_limit limit)
{
    switch (limit) {
    case WALL_MEMORY:
        return l->memory_bytes;
    case WALL_PROCESSES:
        return l->processes ? l->processes + WALL_PROCESSES_OWN : 0;
    case WALL_CPU:
        return l->cpu_percent * (PERIOD_US / 100);
    }
    return 0;
}

static int set_limit(const struct cgroup *cg, const struct control *c, const char *dir, uint64_t n)
{
    char value[64];
    if (c->limit == WALL_CPU && cg->is_v2)
        (void)snprintf(value, sizeof value, "%llu %d", (unsigned long long)n, PERIOD_US);
    else
        (void)snprintf(value, sizeof value, "%llu", (unsigned long long)n);
    int r = put(dir, c->set[cg->is_v2], value);
    if (r >= 0 && c->limit == WALL_MEMORY) /* nor by way of swap, where that is counted */
        (void)put(dir, cg->is_v2 ? "memory.swap.max" : "memory.memsw.limit_in_bytes",
                  cg->is_v2 ? "0" : value);
    return r;
}

static bool was_made(const struct cgroup *cg, const char *dir)
{
    for (size_t i = 0; i < cg->n_made; i++)
        if (strcmp(cg->made[i], dir) == 0)
            return true;
    return false;
}

static int hold(struct cgroup *cg, size_t at, const char *name, uint64_t n)
{
    char dir[PATH_MAX], file[PATH_MAX + 32];
    if (!machine.parents[at] ||
        (size_t)snprintf(dir, sizeof dir, "%s/%s", machine.parents[at], name) >= sizeof dir)
        return -ENOTSUP;
    if (!was_made(cg, dir)) {
        if (mkdir(dir, 0755) < 0)
            return -errno;
        if (!(cg->made[cg->n_made] = strdup(dir))) {
            (void)rmdir(dir);
            return -ENOMEM;
        }
        cg->n_made++;
    }
    int r = set_limit(cg, &CONTROLS[at], dir, n);
    if (r < 0)
        return r;
    (void)snprintf(file, sizeof file, "%s/%s", dir, CONTROLS[at].hits[cg->is_v2]);
    cg->hits[at] = open(file, O_RDONLY | O_CLOEXEC);
    cg->dirs[at] = strdup(dir);
    return cg->dirs[at] ? 0 : -ENOMEM;
}

int cgroup_new(const struct policy_limits *limits, struct cgroup **ret)
{
    static unsigned number;
    char name[64];
    struct cgroup *cg = calloc(1, sizeof *cg);
    if (!cg)
        return -ENOMEM;
    look();
    cg->is_v2 = machine.is_v2;
    (void)snprintf(name, sizeof name, GROUP_PREFIX "%d.%u", (int)getpid(), number++);
    for (size_t i = 0; i < N_CONTROLS; i++) {
        uint64_t n = wanted(limits, CONTROLS[i].limit);
        cg->hits[i] = -1;
        if (n > 0 && !stop_without("limits"))
            (void)hold(cg, i, name, n); /* what is not held is told by the proof */
    }
    *ret = cg;
    return 0;
}

unsigned cgroup_holds(const struct cgroup *cg)
{
    unsigned held = 0;
    for (size_t i = 0; cg && i < N_CONTROLS; i++)
        if (cg->dirs[i])
            held |= (unsigned)CONTROLS[i].limit;
    return held;
}

static bool is_entered(const char *dir)
{
    char file[PATH_MAX];
    CLEANUP(freep) char *text = NULL;
    size_t n = 0;
    (void)snprintf(file, sizeof file, "%s/cgroup.procs", dir);
    return fd_read_file(AT_FDCWD, file, 1 << 20, &text, &n) >= 0 && n > 0;
}

unsigned cgroup_keeps(const struct cgroup *cg)
{
    unsigned kept = 0;
    for (size_t i = 0; cg && i < N_CONTROLS; i++)
        if (cg->dirs[i] && is_entered(cg->dirs[i]))
            kept |= (unsigned)CONTROLS[i].limit;
    return kept;
}

int cgroup_open(const struct cgroup *cg, int fds[static CGROUPS_MAX])
{
    int n = 0;
    for (size_t i = 0; cg && i < cg->n_made; i++) {
        char path[PATH_MAX + 32];
        (void)snprintf(path, sizeof path, "%s/cgroup.procs", cg->made[i]);
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0) {
            int r = -errno;
            while (n > 0)
                fd_close(fds[--n]);
            return r;
        }
        fds[n++] = fd;
    }
    return n;
}

/* The number behind NAME in the lines "NAME NUMBER" of FD. */
static uint64_t counter(int fd, const char *name)
{
    char text[1024];
    ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof text - 1, 0);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    for (const char *line = text; line; line = strchr(line, '\n')) {
        unsigned long long value;
        size_t len = strlen(name);
        line += *line == '\n';
        if (strncmp(line, name, len) == 0 && sscanf(line + len, " %llu", &value) == 1 &&
            line[len] == ' ')
            return value;
    }
    return 0;
}

void cgroup_count(const struct cgroup *cg, struct wall_hits *ret)
{
    uint64_t all[N_CONTROLS] = {0};
    for (size_t i = 0; cg && i < N_CONTROLS; i++)
        all[i] = counter(cg->hits[i], CONTROLS[i].counter[cg->is_v2]);
    *ret = (struct wall_hits){.memory = all[0], .processes = all[1], .cpu = all[2]};
}

void cgroup_free(struct cgroup *cg)
{
    if (!cg)
        return;
    for (size_t i = 0; i < N_CONTROLS; i++) {
        fd_close(cg->hits[i]);
        free(cg->dirs[i]);
    }
    for (size_t i = 0; i < cg->n_made; i++) {
        (void)rmdir(cg->made[i]);
        free(cg->made[i]);
    }
    free(cg);
}

/* Ours by name, of a process that is no more; rmdir takes only what nobody is in. */
static int sweep_folder(const char *parent)
{
    int n = 0;
    DIR *dir = opendir(parent);
    for (struct dirent *e; dir && (e = readdir(dir)) != NULL;) {
        int pid;
        if (sscanf(e->d_name, GROUP_PREFIX "%d.", &pid) != 1 || pid <= 0 || pid == getpid() ||
            kill(pid, 0) == 0 || errno != ESRCH)
            continue;
        n += unlinkat(dirfd(dir), e->d_name, AT_REMOVEDIR) == 0;
    }
    if (dir)
        (void)closedir(dir);
    return n;
}

int cgroup_sweep(void)
{
    int n = 0;
    look();
    for (size_t i = 0; i < N_CONTROLS; i++)
        if (machine.parents[i])
            n += sweep_folder(machine.parents[i]);
    return n;
}
