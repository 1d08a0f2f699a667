/* Runs in: cli. Reads: trusted. May block: no. */
#include "cli/commands.h"
#include "cli/asks.h"
#include "cli/audit.h"
#include "cli/cli.h"
#include "cli/run.h"
#include "cli/serve.h"
#include "cli/session.h"
#include "cli/settings.h"
#include "cli/sites.h"
#include "cli/status.h"
#include "cli/token.h"
#include "cli/why.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LATER NULL
static const struct command COMMANDS[] = {
    {"run", "[options] -- CMD…", "a command in a fresh session; the exit code is the command's",
     RUN_OPTIONS, 0, 0, true, run_command},
    {"exec", "SESSION -- CMD…", "a command in a session that is there", EXEC_OPTIONS, 1, 1, true,
     exec_command},
    {"status", "", "can this machine put up the wall; --why proves it and says what to do",
     STATUS_OPTIONS, 0, 0, false, status_command},
    {"machine sandbox status", "", "the same as status", STATUS_OPTIONS, 0, 0, false,
     status_command},
    {"serve", "", "start the daemon, or say where it is", SERVE_OPTIONS, 0, 0, false,
     serve_command},
    {"stop", "", "end the daemon and all sessions", STOP_OPTIONS, 0, 0, false, stop_command},
    {"open", "", "the page, signed in by a code that works once", NULL, 0, 0, false, open_command},
    {"session new", "", "make a session and print its id", SESSION_OPTIONS, 0, 0, false,
     session_new_command},
    {"session list", "", "the sessions", SESSION_LIST_OPTIONS, 0, 0, false, session_list_command},
    {"session show", "SESSION", "all about one", NULL, 1, 1, false, session_show_command},
    {"session stop", "SESSION", "end one with all that runs in it", SESSION_STOP_OPTIONS, 1, 1,
     false, session_stop_command},
    {"session add-folder", "SESSION PATH", "grant one more folder", NULL, 0, 2, false, LATER},
    {"session restart", "SESSION", "make its wall anew", NULL, 0, 1, false, LATER},
    {"sites list", "", "the sites that sessions may reach", SITES_LIST_OPTIONS, 0, 0, false,
     sites_list_command},
    {"sites add", "HOST[:PORT]", "allow a site; no port means 443 and 80", SITES_ADD_OPTIONS, 1, 1,
     false, sites_add_command},
    {"sites remove", "HOST[:PORT]", "take a site back; its tunnels are closed",
     SITES_REMOVE_OPTIONS, 1, 1, false, sites_remove_command},
    {"sites check", "HOST[:PORT]", "may it be reached? exit 1 when not", SITES_CHECK_OPTIONS, 1, 1,
     false, sites_check_command},
    {"settings get", "[KEY]", "one value, or all with where they come from", SETTINGS_GET_OPTIONS,
     0, 1, false, settings_get_command},
    {"settings set", "KEY VALUE", "change a setting", NULL, 2, 2, false, settings_set_command},
    {"settings unset", "KEY", "the default again", NULL, 1, 1, false, settings_unset_command},
    {"audit", "", "what happened, newest last", AUDIT_OPTIONS, 0, 0, false, audit_command},
    {"audit verify", "", "is the record whole? exit 1 when not", NULL, 0, 0, false,
     audit_verify_command},
    {"policy", "[SESSION]", "the compiled policy: of a session, or of one made here now",
     POLICY_OPTIONS, 0, 1, false, policy_command},
    {"token new", "NAME", "a token for a client; it is shown once", TOKEN_NEW_OPTIONS, 1, 1, false,
     token_new_command},
    {"token list", "", "the tokens", TOKEN_LIST_OPTIONS, 0, 0, false, token_list_command},
    {"token revoke", "TOKEN", "end one, by its id", NULL, 1, 1, false, token_revoke_command},
    {"blocked", "[SESSION]", "what was refused, the latest first", BLOCKED_OPTIONS, 0, 1, false,
     blocked_command},
    {"shell", "[SESSION]", "a shell behind the wall", NULL, 0, 1, false, LATER},
    {"mcp", "", "an MCP server on standard in and out", NULL, 0, 0, false, LATER},
    {"asks list", "", "open questions of agents for sites", ASKS_LIST_OPTIONS, 0, 0, false,
     asks_list_command},
    {"asks allow", "ASK [once|session|always]", "answer one with yes; session is the default",
     ASKS_ALLOW_OPTIONS, 1, 2, false, asks_allow_command},
    {"asks deny", "ASK", "answer one with no, for that session", ASKS_DENY_OPTIONS, 1, 1, false,
     asks_deny_command},
    {"credentials list", "", "what sessions get a copy of", NULL, 0, 0, false, LATER},
    {"credentials add", "PATH", "offer one more", NULL, 0, 1, false, LATER},
    {"credentials on", "ID", "copy it into new sessions", NULL, 0, 1, false, LATER},
    {"credentials off", "ID", "no longer", NULL, 0, 1, false, LATER},
    {"credentials remove", "ID", "forget it", NULL, 0, 1, false, LATER},
    {"toolchains list", "", "toolchains under home", NULL, 0, 0, false, LATER},
    {"toolchains on", "ID", "grant it, read-only", NULL, 0, 1, false, LATER},
    {"toolchains off", "ID", "no longer", NULL, 0, 1, false, LATER},
    {"toolchains add", "PATH", "offer one more", NULL, 0, 1, false, LATER},
    {"trust list", "", "trusted projects", NULL, 0, 0, false, LATER},
    {"trust add", "PATH", "read a project's configuration", NULL, 0, 1, false, LATER},
    {"trust remove", "PATH", "no longer", NULL, 0, 1, false, LATER},
    {"why", "COMMAND", "what was refused while a command ran, by which rule, and the cure",
     WHY_OPTIONS, 1, 1, false, why_command},
    {"hostrun", "SESSION", "files that the host may run later", NULL, 0, 1, false, LATER},
    {"backup make", "FILE", "save settings and lists", NULL, 0, 1, false, LATER},
    {"backup restore", "FILE", "read them back", NULL, 0, 1, false, LATER},
    {"completions", "SHELL", "completions for bash, zsh or fish", NULL, 0, 1, false, LATER},
    {NULL, NULL, NULL, NULL, 0, 0, false, NULL}};

const struct command *commands(void)
{
    return COMMANDS;
}

/* How many words of NAME stand at the start of ARGV; 0 unless all do. */
static int words_matched(const char *name, int argc, char **argv)
{
    int n = 0;
    while (*name) {
        size_t len = strcspn(name, " ");
        if (n == argc || strlen(argv[n]) != len || memcmp(argv[n], name, len) != 0)
            return 0;
        n++;
        name += len;
        name += *name == ' ';
    }
    return n;
}

const struct command *commands_find(int argc, char **argv, int *ret_words)
{
    const struct command *best = NULL;
    *ret_words = 0;
    for (const struct command *c = COMMANDS; c->name; c++) {
        int n = words_matched(c->name, argc, argv);
        if (n > *ret_words) {
            *ret_words = n;
            best = c;
        }
    }
    return best;
}

/* Columns TEXT takes up beyond its bytes: the bytes of UTF-8 that continue a character. */
static int continued(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += (*text & 0xc0) == 0x80;
    return n;
}

static void help_line(const struct command *c)
{
    char left[64];
    snprintf(left, sizeof left, "%s %s", c->name, c->args);
    printf("  %-*s %s%s\n", 34 + continued(left), left, c->help,
           c->run ? "" : " (not in this version)");
}

static void help_of(const struct command *c)
{
    printf("cordon %s %s\n    %s%s\n", c->name, c->args, c->help,
           c->run ? "" : " (not in this version)");
    for (const struct option *o = c->options; o && o->name; o++) {
        char left[64];
        snprintf(left, sizeof left, "%c%c%s --%s%s%s", o->letter ? '-' : ' ',
                 o->letter ? o->letter : ' ', o->letter ? "," : " ", o->name, o->arg ? " " : "",
                 o->arg ? o->arg : "");
        printf("    %-28s %s%s\n", left, o->help,
               o->flags & OPTION_LATER ? " (not in this version)" : "");
    }
}

int commands_help(int argc, char **argv)
{
    bool any = false;
    if (argc == 0) {
        puts("cordon: runs the commands of an agent behind a wall that the operating system "
             "enforces\n");
        for (const struct command *c = COMMANDS; c->name; c++)
            help_line(c);
        puts("\ncordon help COMMAND says more; cordon --version. The manual: man cordon.");
        return EXIT_DONE;
    }
    for (const struct command *c = COMMANDS; c->name; c++) {
        CLEANUP(freep) char *name = strndup(c->name, strcspn(c->name, " "));
        int n;
        bool is_first = name && strcmp(name, argv[0]) == 0;
        if (argc == 1 ? !is_first : commands_find(argc, argv, &n) != c)
            continue;
        help_of(c);
        any = true;
    }
    if (any)
        return EXIT_DONE;
    struct err err = {0};
    err_set(&err, -ENOENT, "usage", "cordon help", "no command '%s'", argv[0]);
    return cli_fail(&err);
}

void commands_list(void)
{
    for (const struct command *c = COMMANDS; c->name; c++) {
        printf("%s\t%s\t%s\n", c->name, c->args, c->run ? "now" : "later");
        for (const struct option *o = c->options; o && o->name; o++)
            printf("%s\t--%s\t%s%c\t%s\t%s\n", c->name, o->name, o->letter ? "-" : "",
                   o->letter ? o->letter : '-', o->arg ? o->arg : "",
                   o->flags & OPTION_LATER ? "later" : "now");
    }
}
