/* What went wrong, for a person and for a program.
 *
 * Functions return `int r`: >= 0 success, a negative errno otherwise. Where a person will read it
 * the last parameter is a struct err, filled once by the place that knows the cause; NULL is
 * allowed everywhere. The caller that handles the error logs or renders it.
 *
 *     struct err err = {0};
 *     if (session_start(s, &err) < 0)
 *         log_warn("session.refused", "code=%s detail=%s", err.code, err.detail); */
#pragma once
#include <stdbool.h>

struct err {
    char code[40];     /* stable, snake_case; of api/problem.c where it reaches a client */
    char pointer[160]; /* JSON pointer (RFC 6901) of the member at fault, or empty */
    char detail[640];  /* the cause, one line, outside bytes already escaped */
    char hint[400];    /* the cure, one line, or empty */
};

/* Fills ERR (if not NULL and not filled before) and returns R, so that it can stand in a return.
 * CODE and HINT may be NULL. */
int err_set(struct err *err, int r, const char *code, const char *hint, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* The same with the member at fault. */
int err_member(struct err *err, int r, const char *code, const char *pointer, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

static inline bool err_is_set(const struct err *err)
{
    return err && err->code[0] != '\0';
}
void err_clear(struct err *err);

/* How a child of ours that failed ends: _exit() with one of these, so that the parent can name the
 * step even when no message came. Below 64: what the program itself means. */
enum child_exit {
    CHILD_OK = 0,
    CHILD_USAGE = 2,
    CHILD_PROTOCOL = 64, /* the first frames were not what they had to be, or the socket failed */
    CHILD_PARENT_GONE,   /* the daemon died before the parent-death signal was set */
    CHILD_MEMORY,        /* out of memory */
    CHILD_NAMESPACES,    /* unshare(2) */
    CHILD_IDS,           /* uid_map, gid_map, setgroups */
    CHILD_FORK,          /* fork(2) */
    CHILD_NETWORK,       /* loopback, addresses, routes */
    CHILD_DOORS,         /* the listening sockets */
    CHILD_VIEW,          /* a join of the view; an identity that did not fit */
    CHILD_CAPABILITIES,  /* ambient capabilities dropped */
    CHILD_EXEC,          /* bubblewrap could not be started */
    CHILD_DESCRIPTORS,   /* stray descriptors closed */
    CHILD_DUMPABLE,      /* PR_SET_DUMPABLE */
    CHILD_LIMITS,        /* setrlimit(2) */
    CHILD_LANDLOCK,      /* the ruleset could not be made, filled or entered */
    CHILD_SECCOMP        /* the filter was refused */
};
const char *child_exit_name(int code); /* "namespaces" …; "unknown" for others */
