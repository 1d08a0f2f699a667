/* Runs in: cli. Reads: trusted (what the person typed). May block: yes.
 *
 * cordon: the command line. Finds the command in the table, reads its options, runs it. */
#include "cli/cli.h"
#include "cli/commands.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int unknown_command(const char *word)
{
    struct err err = {0};
    const struct command *best = NULL;
    unsigned best_distance = 3;
    char hint[100] = "cordon help";
    for (const struct command *c = commands(); c->name; c++) {
        unsigned d = str_distance(word, c->name);
        if (d < best_distance) {
            best_distance = d;
            best = c;
        }
    }
    if (best)
        snprintf(hint, sizeof hint, "did you mean cordon %s?", best->name);
    for (const struct command *c = commands(); c->name; c++)
        if (str_starts(c->name, word) && c->name[strlen(word)] == ' ')
            snprintf(hint, sizeof hint, "cordon help %.60s", word);
    err_set(&err, -EINVAL, "usage", hint, "no command '%s'", word);
    return cli_fail(&err);
}

static bool wants_help(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0 && argv[i][0] == '-'; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

static int run_row(const struct command *c, int argc, char **argv)
{
    static struct args args;
    struct cli cli = {0};
    struct err err = {0};
    if (!c->run) {
        err_set(&err, -ENOTSUP, "not_in_this_version", NULL, "%s: not in this version", c->name);
        return cli_fail(&err);
    }
    if (args_parse(c, argc, argv, &args, &err) < 0 || places_find(&cli.places, &err) < 0)
        return cli_fail(&err);
    int code = c->run(&cli, &args);
    cli_done(&cli);
    return code;
}

/* What could not be written is no success; a reader that left (`| head`) is not our failure. */
static int finish(int code)
{
    if ((fflush(stdout) == 0 && !ferror(stdout)) || errno == EPIPE || errno == EBADF)
        return code;
    fprintf(stderr, "cordon: standard output cannot be written: %s\n", strerror(errno));
    return EXIT_CORDON;
}

int main(int argc, char **argv)
{
    int words;
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return finish(commands_help(0, NULL));
    if (strcmp(argv[1], "--version") == 0) {
        puts("cordon " CORDON_VERSION);
        return finish(EXIT_DONE);
    }
    if (strcmp(argv[1], "help") == 0) {
        if (argc == 3 && strcmp(argv[2], "--list") == 0) {
            commands_list();
            return finish(EXIT_DONE);
        }
        return finish(commands_help(argc - 2, argv + 2));
    }
    const struct command *c = commands_find(argc - 1, argv + 1, &words);
    if (!c) /* a group without its second word: its help, as a failure */
        return unknown_command(argv[1]);
    argc -= words + 1;
    argv += words + 1;
    if (wants_help(argc, argv)) {
        char *name = strdup(c->name), *word[4], *save = NULL;
        int n = 0;
        for (char *w = name ? strtok_r(name, " ", &save) : NULL; w && n < 4;
             w = strtok_r(NULL, " ", &save))
            word[n++] = w;
        int code = commands_help(n, word);
        free(name);
        return finish(code);
    }
    return finish(run_row(c, argc, argv));
}
