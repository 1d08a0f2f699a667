/* A file that was built into a program (server/embed.cmake). */
#pragma once
#include <stddef.h>

struct embedded {
    const char *name;  /* the file's last name, NULL in the row that ends a table */
    const char *bytes; /* LEN bytes and a NUL behind them */
    size_t len;
};
