/* The table of commands: names, arguments, options, what runs. Help, man page (tests/cli compares)
 * and completions come from it. */
#pragma once
#include "cli/args.h"

/* Rows in the order of the help; ended by a NULL name. */
const struct command *commands(void);
/* The row whose words ARGV begins with; the longest wins. *RET_WORDS: how many words it took. */
const struct command *commands_find(int argc, char **argv, int *ret_words);
/* The whole help, or that of the command(s) whose name begins with the words; 0 or EXIT_CORDON. */
int commands_help(int argc, char **argv);
/* `cordon help --list`: a line a command and one an option, for tests and completions:
 * "session new\tFILE…\tlater|now" and "session new\t--folder\t-f\tPATH[:ro]\tnow". */
void commands_list(void);
