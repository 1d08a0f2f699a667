/* Runs in: daemon. Reads: trusted. May block: no. */
#include "daemon/options.h"
#include "base/str.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

void options_help(void)
{
    puts("usage: cordond [--foreground] [--port N] [--ready-fd N]\n"
         "       cordond --help | --version\n"
         "\n"
         "The daemon of Cordon. `cordon serve` starts it in the background; started directly it\n"
         "stays in front and logs to standard error.\n"
         "\n"
         "  --foreground   stay in front (the default)\n"
         "  --port N       this port and no other, 1024 to 65535\n"
         "  --ready-fd N   write one line to descriptor N: `ready`, `running` (another daemon "
         "holds\n"
         "                 the state folder) or `failed CAUSE<tab>CURE`; then close it");
}

static int bad(const char *what, const char *value)
{
    fprintf(stderr, "cordond: %s '%s'; see cordond --help\n", what, value);
    return -EINVAL;
}

static int number(const char *name, const char *value, uint64_t min, uint64_t max, int *ret)
{
    uint64_t n = 0;
    if (!value || parse_u64(value, min, max, &n) < 0)
        return bad(name, value ? value : "");
    *ret = (int)n;
    return 0;
}

int options_parse(int argc, char **argv, struct options *ret)
{
    int r = 0;
    *ret = (struct options){.ready_fd = -1};
    for (int i = 1; i < argc && r == 0; i++) {
        const char *arg = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0)
            ret->help = true;
        else if (strcmp(arg, "--version") == 0)
            ret->version = true;
        else if (strcmp(arg, "--foreground") == 0)
            continue; /* as it is anyway */
        else if (strcmp(arg, "--port") == 0 && ++i)
            r = number("bad --port", value, 1024, 65535, &ret->port);
        else if (strcmp(arg, "--ready-fd") == 0 && ++i)
            r = number("bad --ready-fd", value, 3, 1023, &ret->ready_fd);
        else
            r = bad("unknown option", arg);
    }
    return r;
}
