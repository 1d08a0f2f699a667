/* Runs in: any. Reads: trusted. May block: no. */
#include "base/log.h"
#include "base/clock.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LINE_MAX_BYTES 4096

static const char *log_program = "cordon";

void log_open(const char *program)
{
    log_program = program;
}

/* One write a line, so that lines of several processes do not mix. */
__attribute__((format(printf, 3, 0))) static void log_line(const char *level, const char *event,
                                                           const char *fmt, va_list ap)
{
    int saved = errno;
    char line[LINE_MAX_BYTES], when[CLOCK_TEXT_MAX];
    clock_text(clock_wall_ms(), when);
    int head = snprintf(line, sizeof(line), "%s %s %s %s ", when, log_program, level, event);
    if (head < 0 || (size_t)head >= sizeof(line) - 1)
        return;
    size_t room = sizeof(line) - (size_t)head - 1; /* for the line feed */
    int body = vsnprintf(line + head, room, fmt, ap);
    size_t n = (size_t)head + (body < 0 ? 0 : (size_t)body >= room ? room - 1 : (size_t)body);
    for (size_t i = 0; i < n; i++) /* the last guard: one event stays one line */
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = '?';
    line[n++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, n);
    (void)written; /* nowhere to tell it */
    errno = saved;
}

#define LOG_FUNCTION(name, level)                                                                  \
    void name(const char *event, const char *fmt, ...)                                             \
    {                                                                                              \
        va_list ap;                                                                                \
        va_start(ap, fmt);                                                                         \
        log_line(level, event, fmt, ap);                                                           \
        va_end(ap);                                                                                \
    }
LOG_FUNCTION(log_info, "info")
LOG_FUNCTION(log_warn, "warn")
LOG_FUNCTION(log_error, "error")
