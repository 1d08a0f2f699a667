/* Runs in: cli. Reads: trusted (what the person typed). May block: no. */
#include "cli/args.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define DURATION_MAX_MS 86400000 /* 24 h, the most that the daemon takes */

static const struct option *option_by_letter(const struct option *table, char letter)
{
    for (const struct option *o = table; o && o->name; o++)
        if (o->letter == letter)
            return o;
    return NULL;
}

static const struct option *option_by_name(const struct option *table, const char *name, size_t n)
{
    for (const struct option *o = table; o && o->name; o++)
        if (strlen(o->name) == n && memcmp(o->name, name, n) == 0)
            return o;
    return NULL;
}

static int fail_unknown(const struct command *c, const char *typed, struct err *err)
{
    const struct option *best = NULL;
    unsigned best_distance = 4;
    for (const struct option *o = c->options; o && o->name; o++) {
        unsigned d = typed[0] == '-' && typed[1] == '-' ? str_distance(typed + 2, o->name) : 9;
        if (d < best_distance) {
            best_distance = d;
            best = o;
        }
    }
    char hint[200];
    if (best)
        snprintf(hint, sizeof hint, "did you mean --%s?", best->name);
    else
        snprintf(hint, sizeof hint, "see: cordon help %s", c->name);
    return err_set(err, -EINVAL, "usage", hint, "unknown option %s", typed);
}

static int add_value(struct args *a, const struct option *o, const char *value, struct err *err)
{
    if (o->flags & OPTION_LATER)
        return err_set(err, -ENOTSUP, "not_in_this_version", NULL, "--%s: not in this version",
                       o->name);
    if (!(o->flags & OPTION_REPEATS) && args_has(a, o->name))
        return err_set(err, -EINVAL, "usage", NULL, "--%s is given twice", o->name);
    if (a->n_values == ARGS_VALUES_MAX)
        return err_set(err, -E2BIG, "usage", NULL, "more than %d options", ARGS_VALUES_MAX);
    a->values[a->n_values].option = o;
    a->values[a->n_values++].value = value;
    return 0;
}

/* --name, --name=value, --name value. Returns how many of ARGV it took. */
static int parse_long(struct args *a, int argc, char **argv, struct err *err)
{
    const char *name = argv[0] + 2, *equals = strchr(name, '=');
    size_t n = equals ? (size_t)(equals - name) : strlen(name);
    const struct option *o = option_by_name(a->command->options, name, n);
    if (!o)
        return fail_unknown(a->command, argv[0], err);
    if (!o->arg) {
        if (equals)
            return err_set(err, -EINVAL, "usage", NULL, "--%s takes no value", o->name);
        int r = add_value(a, o, NULL, err);
        return r < 0 ? r : 1;
    }
    if (!equals && argc < 2)
        return err_set(err, -EINVAL, "usage", NULL, "--%s needs %s", o->name, o->arg);
    int r = add_value(a, o, equals ? equals + 1 : argv[1], err);
    return r < 0 ? r : equals ? 1 : 2;
}

/* -x, -xVALUE, -x VALUE; letters of switches may stand together. */
static int parse_letters(struct args *a, int argc, char **argv, struct err *err)
{
    for (const char *p = argv[0] + 1; *p; p++) {
        const struct option *o = option_by_letter(a->command->options, *p);
        int r;
        if (!o)
            return fail_unknown(a->command, argv[0], err);
        if (!o->arg) {
            if ((r = add_value(a, o, NULL, err)) < 0)
                return r;
            continue;
        }
        if (!p[1] && argc < 2)
            return err_set(err, -EINVAL, "usage", NULL, "-%c needs %s", o->letter, o->arg);
        r = add_value(a, o, p[1] ? p + 1 : argv[1], err);
        return r < 0 ? r : p[1] ? 1 : 2;
    }
    return 1;
}

static int check_counts(const struct args *a, struct err *err)
{
    const struct command *c = a->command;
    char hint[300];
    snprintf(hint, sizeof hint, "cordon %s %s", c->name, c->args ? c->args : "");
    if (a->n_args < c->min_args)
        return err_set(err, -EINVAL, "usage", hint, "%s: an argument is missing", c->name);
    if (c->takes_command && a->argc == 0)
        return err_set(err, -EINVAL, "usage", hint, "%s: which command?", c->name);
    return 0;
}

int args_parse(const struct command *command, int argc, char **argv, struct args *ret,
               struct err *err)
{
    memset(ret, 0, sizeof *ret);
    ret->command = command;
    int i = 0, r;
    bool only_args = false;
    while (i < argc) {
        const char *s = argv[i];
        if (!only_args && strcmp(s, "--") == 0) {
            i++;
            if (command->takes_command)
                break;
            only_args = true;
        } else if (!only_args && s[0] == '-' && s[1]) {
            r = (s[1] == '-' ? parse_long : parse_letters)(ret, argc - i, argv + i, err);
            if (r < 0)
                return r;
            i += r;
        } else if (ret->n_args < command->max_args) {
            ret->args[ret->n_args++] = argv[i++];
        } else if (command->takes_command) {
            break; /* the first word of the command */
        } else {
            return err_set(err, -EINVAL, "usage", NULL, "%s: '%s' is one argument too many",
                           command->name, s);
        }
    }
    if (command->takes_command) {
        ret->argv = argv + i;
        ret->argc = (size_t)(argc - i);
    }
    return check_counts(ret, err);
}

bool args_has(const struct args *a, const char *name)
{
    return args_count(a, name) > 0;
}

size_t args_count(const struct args *a, const char *name)
{
    size_t n = 0;
    for (size_t i = 0; i < a->n_values; i++)
        n += strcmp(a->values[i].option->name, name) == 0;
    return n;
}

const char *args_value(const struct args *a, const char *name, size_t i)
{
    for (size_t k = 0; k < a->n_values; k++)
        if (strcmp(a->values[k].option->name, name) == 0 && i-- == 0)
            return a->values[k].value;
    return NULL;
}

int parse_duration(const char *text, int64_t *ret_ms)
{
    static const struct {
        const char *unit;
        uint64_t ms;
    } UNITS[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"", 1000}};
    size_t digits = strspn(text, "0123456789");
    char number[12];
    if (digits == 0 || digits >= sizeof number)
        return -EINVAL;
    memcpy(number, text, digits);
    number[digits] = '\0';
    for (size_t i = 0; i < sizeof UNITS / sizeof UNITS[0]; i++) {
        if (strcmp(text + digits, UNITS[i].unit) != 0)
            continue;
        uint64_t n;
        int r = parse_u64(number, 1, DURATION_MAX_MS / UNITS[i].ms, &n);
        if (r < 0)
            return r;
        *ret_ms = (int64_t)(n * UNITS[i].ms);
        return 0;
    }
    return -EINVAL;
}
