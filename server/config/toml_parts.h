/* The reader's place in the document; of toml.c (structure) and toml_scalar.c (values) alone. */
#pragma once
#include "base/str.h"
#include "config/toml.h"

struct reader {
    const char *at, *end;
    unsigned line;
    struct err *err;
};

/* Both end the reading: -EBADMSG with the line, or -ENOMEM. */
int toml_bad(struct reader *rd, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int toml_no_memory(struct reader *rd);

/* The byte at I from here, '\0' behind the end: no valid document holds one. */
static inline char peek_at(const struct reader *rd, size_t i)
{
    return (size_t)(rd->end - rd->at) > i ? rd->at[i] : '\0';
}
static inline char peek(const struct reader *rd)
{
    return peek_at(rd, 0);
}
/* A line's end: its length in bytes, 0 = none here. */
static inline size_t newline_here(const struct reader *rd)
{
    return peek(rd) == '\n' ? 1 : peek(rd) == '\r' && peek_at(rd, 1) == '\n' ? 2 : 0;
}

/* At a quote: the string, as bytes. MULTI: the forms of three quotes are allowed. */
int toml_read_string(struct reader *rd, bool multi, struct str *ret);
/* At the first byte of a number, boolean or date: fills V. */
int toml_read_scalar(struct reader *rd, struct toml *v);
