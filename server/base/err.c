/* Runs in: any. Reads: trusted. May block: no. */
#include "base/err.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 5, 0))) static void err_fill(struct err *err, const char *code,
                                                           const char *pointer, const char *hint,
                                                           const char *fmt, va_list ap)
{
    (void)snprintf(err->code, sizeof(err->code), "%s", code ? code : "internal");
    (void)snprintf(err->pointer, sizeof(err->pointer), "%s", pointer ? pointer : "");
    (void)snprintf(err->hint, sizeof(err->hint), "%s", hint ? hint : "");
    (void)vsnprintf(err->detail, sizeof(err->detail), fmt, ap);
}

int err_set(struct err *err, int r, const char *code, const char *hint, const char *fmt, ...)
{
    if (!err || err_is_set(err))
        return r;
    va_list ap;
    va_start(ap, fmt);
    err_fill(err, code, NULL, hint, fmt, ap);
    va_end(ap);
    return r;
}

int err_member(struct err *err, int r, const char *code, const char *pointer, const char *fmt, ...)
{
    if (!err || err_is_set(err))
        return r;
    va_list ap;
    va_start(ap, fmt);
    err_fill(err, code, pointer, NULL, fmt, ap);
    va_end(ap);
    return r;
}

void err_clear(struct err *err)
{
    if (err)
        memset(err, 0, sizeof(*err));
}

const char *child_exit_name(int code)
{
    static const char *const names[] = {"protocol", "parent_gone",  "memory",   "namespaces",
                                        "ids",      "fork",         "network",  "doors",
                                        "view",     "capabilities", "exec",     "descriptors",
                                        "dumpable", "limits",       "landlock", "seccomp"};
    if (code >= CHILD_PROTOCOL && code <= CHILD_SECCOMP)
        return names[code - CHILD_PROTOCOL];
    return code == CHILD_OK ? "ok" : code == CHILD_USAGE ? "usage" : "unknown";
}
