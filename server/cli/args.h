/* Command lines by table: options, positionals, and the command behind them.
 *
 *     static const struct option OPTIONS[] = {
 *         {"folder", 'f', "PATH[:ro]", "grant a folder", OPTION_REPEATS},
 *         {"json", 0, NULL, "print one JSON document", 0},
 *         {NULL}};
 *     r = args_parse(command, argc, argv, &a, &err);
 *     for (size_t i = 0; i < args_count(&a, "folder"); i++) args_value(&a, "folder", i) … */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include <stdbool.h>
#include <stddef.h>

enum {
    OPTION_REPEATS = 1,
    OPTION_LATER = 2 /* known, but "not in this version": exit 125, never a pretence */
};
struct option {
    const char *name; /* long, without the dashes; NULL ends a table */
    char letter;      /* or 0 */
    const char *arg;  /* what it takes, for the help; NULL = it is a switch */
    const char *help;
    unsigned flags;
};

struct cli;
struct args;
struct command {
    const char *name; /* "session new" */
    const char *args; /* positionals, for the help */
    const char *help; /* one line */
    const struct option *options;
    unsigned min_args, max_args;                 /* positionals before a command to run */
    bool takes_command;                          /* what follows is a program and its arguments */
    int (*run)(struct cli *cli, struct args *a); /* NULL: not in this version */
};

#define ARGS_VALUES_MAX 512
struct args {
    const struct command *command;
    struct {
        const struct option *option;
        const char *value; /* NULL for a switch; borrowed from argv */
    } values[ARGS_VALUES_MAX];
    size_t n_values;
    const char *args[4]; /* positionals */
    size_t n_args;
    char **argv; /* the command to run, NULL-terminated; borrowed */
    size_t argc;
};
/* ARGV: what follows the command's name. -EINVAL with ERR: unknown option (with the nearest known
 * one), missing value, too few or too many arguments. */
int args_parse(const struct command *command, int argc, char **argv, struct args *ret,
               struct err *err);
bool args_has(const struct args *a, const char *name);
size_t args_count(const struct args *a, const char *name);
const char *args_value(const struct args *a, const char *name, size_t i); /* NULL beyond the last */

/* "500ms" "30s" "5m" "2h", or a number of seconds -> ms; 1 ms to 24 h. */
int parse_duration(const char *text, int64_t *ret_ms);
