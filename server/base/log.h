/* One event, one line on standard error: time, level, event word, key=value. Outside bytes go
 * through str_put_escaped first; no token, no env value, no file content. */
#pragma once

void log_open(const char *program); /* names the program in each line */
void log_info(const char *event, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void log_warn(const char *event, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void log_error(const char *event, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
