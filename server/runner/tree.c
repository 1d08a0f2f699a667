/* Runs in: runner. Reads: trusted (the kernel's). May block: no. */
#include "runner/tree.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STOP_ROUNDS 32

struct pids {
    pid_t *items;
    size_t n, cap;
};

static bool pids_add(struct pids *p, pid_t pid)
{
    if (p->n == p->cap) {
        size_t cap = p->cap ? p->cap * 2 : 64;
        pid_t *items = cap > TREE_MAX ? NULL : realloc(p->items, cap * sizeof *items);
        if (!items)
            return false;
        p->items = items;
        p->cap = cap;
    }
    p->items[p->n++] = pid;
    return true;
}

static void numbers_add(struct pids *p, const char *text)
{
    char *end;
    for (long pid; (pid = strtol(text, &end, 10)) > 0 && end != text; text = end)
        if (!pids_add(p, (pid_t)pid))
            return;
}

/* Reads PATH whole: the list of a thread's children has no bound of its own. */
static void children_read(struct pids *p, const char *path)
{
    char buf[8192];
    size_t held = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    for (ssize_t n; (n = read(fd, buf + held, sizeof buf - 1 - held)) > 0;) {
        held += (size_t)n;
        buf[held] = '\0';
        char *last = strrchr(buf, ' '); /* each number is followed by a space */
        if (!last)
            continue;
        *last = '\0';
        numbers_add(p, buf);
        held -= (size_t)(last + 1 - buf);
        memmove(buf, last + 1, held);
    }
    close(fd);
}

/* Children may have been forked by any thread of PID. */
static void children_of(struct pids *p, pid_t pid)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *tasks = opendir(path);
    if (!tasks)
        return;
    for (struct dirent *e; (e = readdir(tasks)) != NULL;) {
        char file[128];
        if (e->d_name[0] == '.')
            continue;
        (void)snprintf(file, sizeof file, "/proc/%d/task/%.20s/children", pid, e->d_name);
        children_read(p, file);
    }
    (void)closedir(tasks);
}

/* Everything below PID, parents before children. */
static void descendants_of(struct pids *p, pid_t pid)
{
    size_t at = p->n;
    children_of(p, pid);
    for (; at < p->n; at++)
        children_of(p, p->items[at]);
}

static void signal_all(const struct pids *p, int signo)
{
    for (size_t i = 0; i < p->n; i++)
        (void)kill(p->items[i], signo);
}

size_t tree_signal_below_of(pid_t pid, int signo)
{
    struct pids p = {0};
    descendants_of(&p, pid);
    for (int round = 0; signo == SIGKILL && p.n > 0 && round < STOP_ROUNDS; round++) {
        size_t before = p.n;
        signal_all(&p, SIGSTOP);
        p.n = 0;
        descendants_of(&p, pid);
        if (p.n == before)
            break;
    }
    signal_all(&p, signo);
    size_t n = p.n;
    free(p.items);
    return n;
}

size_t tree_signal_below(int signo)
{
    return tree_signal_below_of(getpid(), signo);
}

size_t tree_signal(pid_t pid, int signo)
{
    if (signo == SIGKILL)
        (void)kill(pid, SIGSTOP);
    size_t n = tree_signal_below_of(pid, signo);
    return kill(pid, signo) == 0 ? n + 1 : n;
}

size_t tree_children(pid_t *ret, size_t max)
{
    struct pids p = {0};
    children_of(&p, getpid());
    size_t n = p.n < max ? p.n : max;
    if (n > 0)
        memcpy(ret, p.items, n * sizeof *ret);
    free(p.items);
    return n;
}
