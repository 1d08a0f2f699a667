/* Runs in: cli. Reads: trusted. May block: yes. */
#include "cli/serve.h"
#include "base/clock.h"
#include "base/fd.h"
#include "cli/start.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

const struct option SERVE_OPTIONS[] = {
    {"port", 0, "N", "this port and no other, 1024 to 65535", 0},
    {"foreground", 0, NULL, "stay in front, log to standard error", 0},
    {NULL, 0, NULL, NULL, 0}};
const struct option STOP_OPTIONS[] = {
    {"drain", 0, "DURATION", "let running commands end by themselves for so long (0)", 0},
    {NULL, 0, NULL, NULL, 0}};

#define STOP_WAIT_MS 30000
#define CODE_LIFE_MS 60000

int serve_command(struct cli *cli, struct args *a)
{
    struct err err = {0};
    const char *port_text = args_value(a, "port", 0);
    uint64_t port = 0;
    bool started;
    if (port_text && parse_u64(port_text, 1024, 65535, &port) < 0) {
        err_set(&err, -EINVAL, "usage", "1024 to 65535", "bad --port '%s'", port_text);
        return cli_fail(&err);
    }
    if (args_has(a, "foreground")) {
        (void)start_foreground(&cli->places, (uint16_t)port, &err);
        return cli_fail(&err);
    }
    if (start_daemon(&cli->places, (uint16_t)port, &cli->client, &started, &err) < 0)
        return cli_fail(&err);
    puts(cli->client->url);
    if (port && cli->client->port != port)
        cli_note("it runs already, on this port; stop it first for another one");
    return EXIT_DONE;
}

/* The daemon is gone when its connection is: it holds on to it until its sessions have ended. */
static int wait_gone(struct cli *cli)
{
    uint64_t end = clock_now_ms() + STOP_WAIT_MS;
    struct timespec pause = {0, 10000000};
    while (clock_now_ms() < end) {
        struct client *again = NULL;
        if (client_open(&cli->places, &again, NULL) == -ENOENT)
            return 0;
        bool other = strcmp(again->instance_id, cli->client->instance_id) != 0;
        client_close(again);
        if (other)
            return 0;
        (void)nanosleep(&pause, NULL);
    }
    return -ETIMEDOUT;
}

int stop_command(struct cli *cli, struct args *a)
{
    struct err err = {0};
    const char *drain = args_value(a, "drain", 0);
    int64_t ms = 0;
    if (drain && parse_duration(drain, &ms) < 0) {
        err_set(&err, -EINVAL, "usage", "500ms, 30s, 5m or 2h", "bad --drain '%s'", drain);
        return cli_fail(&err);
    }
    int r = client_open(&cli->places, &cli->client, &err);
    if (r == -ENOENT) {
        puts("cordond is not running");
        return EXIT_DONE;
    }
    CLEANUP(json_decrefp) json_t *body = json_pack("{s:I}", "drain_ms", (json_int_t)ms);
    if (r < 0 || cli_call(cli, "POST", "/v1/shutdown", body, NULL, &err) < 0)
        return cli_fail(&err);
    if (wait_gone(cli) < 0) {
        err_set(&err, -ETIMEDOUT, "internal", "cordond.log in the state folder says more",
                "cordond (pid %lld) still runs", (long long)cli->client->pid);
        return cli_fail(&err);
    }
    return EXIT_DONE;
}

/* ---- open
 * --------------------------------------------------------------------------------------*/

/* The browser gets a file's name, never the code, in its argv: the file (0600) leads on to the page
 * and is gone once the code is worth nothing. */
static int write_redirect(const struct cli *cli, const char *address, char ret[static 4200])
{
    CLEANUP(str_done) struct str html = {0};
    char id[ID_MAX], name[48];
    int r = str_printf(&html,
                       "<!doctype html><meta name=\"referrer\" content=\"no-referrer\">"
                       "<meta http-equiv=\"refresh\" content=\"0;url=%s\">\n",
                       address);
    CLEANUP(fd_done) int at = open(cli->places.state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (at < 0 || r < 0)
        return at < 0 ? -errno : r;
    id_new("brw", id);
    snprintf(name, sizeof name, "open-%s.html", id);
    snprintf(ret, 4200, "%s/%s", cli->places.state, name);
    return fd_write_file(at, name, html.data, html.len, 0600);
}

/* Only this one, never what a PATH leads to. */
static const char *find_browser(void)
{
    struct stat st;
    if (!getenv("DISPLAY") && !getenv("WAYLAND_DISPLAY"))
        return NULL;
    return stat("/usr/bin/xdg-open", &st) == 0 && st.st_uid == 0 ? "/usr/bin/xdg-open" : NULL;
}

extern char **environ;
static int open_browser(const char *browser, const char *file)
{
    char url[4300], name[] = "xdg-open";
    snprintf(url, sizeof url, "file://%s", file);
    char *argv[] = {name, url, NULL};
    const int fds[] = {-1, -1, -1};
    struct spawn sp = {.file = browser, .argv = argv, .envp = environ, .fds = fds, .n_fds = 3};
    pid_t pid = fd_spawn(&sp);
    if (pid < 0)
        return pid;
    if (fork() == 0) { /* outlives us, to take the file away again */
        struct timespec life = {CODE_LIFE_MS / 1000, 0};
        (void)setsid();
        (void)nanosleep(&life, NULL);
        (void)unlink(file);
        _exit(0);
    }
    return 0;
}

int open_command(struct cli *cli, struct args *a)
{
    struct err err = {0};
    char file[4200];
    CLEANUP(json_decrefp) json_t *doc = NULL;
    CLEANUP(str_done) struct str address = {0};
    (void)a;
    int r = cli_call(cli, "POST", "/v1/auth/codes", NULL, &doc, &err);
    if (r >= 0)
        r = str_printf(&address, "%s/ui/#c=", cli->client->url);
    if (r >= 0)
        r = url_put(&address, json_text(doc, "code"));
    if (r < 0)
        return cli_fail(&err);
    puts(str_c(&address));
    (void)fflush(stdout);
    const char *browser = find_browser();
    if (browser && ((r = write_redirect(cli, str_c(&address), file)) < 0 ||
                    (r = open_browser(browser, file)) < 0))
        cli_note("the browser could not be started: %s", strerror(-r));
    return EXIT_DONE;
}
