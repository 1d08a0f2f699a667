/* Runs in: daemon. Reads: trusted. May block: no (a few descriptors and files are made). */
#include "base/fields.h"
#include "base/path.h"
#include "base/stop.h"
#include "session/command_parts.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define ARGS_BYTES ((size_t)1 << 20) /* argv and environment together */
#define ARG_BYTES  ((size_t)128 << 10)

/* The policy's paths are resolved ones; a client names a folder as it was given. */
static bool is_spelled_folder(const struct session *s, const char *path)
{
    for (size_t i = 0; i < s->n_folders; i++)
        if (path_is_under(path, s->folders[i].path))
            return true;
    return false;
}

int command_check_cwd(const struct command *c, const char *asked, char **ret, struct err *err)
{
    const struct session *s = c->session;
    char *path = NULL;
    int r = path_join(s->cwd, asked ? asked : ".", &path);
    if (r < 0)
        return err_member(err, r, "body_invalid", "/cwd", "not a path");
    bool inside = s->provider == PROVIDER_DIRECT ||
                  pathset_match(&session_policy(s)->paths, path, NULL) != PATH_DENY ||
                  is_spelled_folder(s, path);
    if (!inside) {
        err_member(err, -EINVAL, "body_invalid", "/cwd", "%s is not inside the session's wall",
                   path);
        free(path);
        return -EINVAL;
    }
    *ret = path;
    return 0;
}

static int make_argv(const struct command *c, struct strv *ret)
{
    if (!c->shell)
        return strv_copy(ret, &c->argv);
    int r = strv_add(ret, c->session->ss->shell);
    if (r == 0)
        r = strv_add(ret, "-c");
    if (r == 0)
        r = strv_add(ret, c->shell);
    return r;
}

static bool is_overridden(const struct command *c, const char *pair)
{
    const char *eq = strchr(pair, '=');
    char name[256];
    if (!c->env || !eq)
        return false;
    size_t n = (size_t)(eq - pair);
    if (n < sizeof name) {
        memcpy(name, pair, n);
        name[n] = '\0';
        return json_object_get(c->env, name) != NULL;
    }
    const char *key;
    json_t *value;
    json_object_foreach(c->env, key,
                        value) if (strlen(key) == n && strncmp(key, pair, n) == 0) return true;
    return false;
}

static int bad_env(struct err *err, const char *name, const char *why)
{
    char pointer[160] = "/env";
    json_pointer_add(pointer, sizeof pointer, name);
    return err_member(err, -EINVAL, "body_invalid", pointer, "%s", why);
}

static int add_own_env(const struct command *c, struct strv *ret, struct err *err)
{
    const char *name;
    json_t *value;
    json_object_foreach(c->env, name, value)
    {
        if (!*name || strchr(name, '='))
            return bad_env(err, name, "not a name of a variable");
        if (json_is_null(value))
            continue;
        if (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value))
            return bad_env(err, name, "a text without NUL, or null");
        int r = strv_addf(ret, "%s=%s", name, json_string_value(value));
        if (r < 0)
            return err_set(err, r, "internal", NULL, "out of memory");
    }
    return 0;
}

static int make_env(const struct command *c, struct strv *ret, struct err *err)
{
    const struct strv *base = &session_policy(c->session)->env;
    for (size_t i = 0; i < base->n; i++) {
        if (is_overridden(c, base->items[i]))
            continue;
        int r = strv_add(ret, base->items[i]);
        if (r < 0)
            return err_set(err, r, "internal", NULL, "out of memory");
    }
    return c->env ? add_own_env(c, ret, err) : 0;
}

static int check_size(const struct strv *argv, const struct strv *env, struct err *err)
{
    size_t all = 0;
    for (size_t i = 0; i < argv->n; i++) {
        size_t n = strlen(argv->items[i]) + 1;
        if (n > ARG_BYTES)
            return err_member(err, -E2BIG, "body_invalid", "/argv",
                              "argument %zu is longer than 128 KiB", i);
        all += n;
    }
    for (size_t i = 0; i < env->n; i++)
        all += strlen(env->items[i]) + 1;
    if (all > ARGS_BYTES)
        return err_member(err, -E2BIG, "body_invalid", "/argv",
                          "argv and environment together are more than 1 MiB");
    return 0;
}

int command_words(struct command *c, struct err *err)
{
    int r = make_argv(c, &c->start_argv);
    if (r < 0)
        return err_set(err, r, "internal", NULL, "out of memory");
    r = make_env(c, &c->start_env, err);
    return r < 0 ? r : check_size(&c->start_argv, &c->start_env, err);
}

/* Our and their ends of what a command is started with. */
struct ends {
    int input[2], out[2], err[2], channel[2]; /* [0] read, [1] write; channel: ours, theirs */
};

static void ends_close(struct ends *e)
{
    int *all[] = {e->input, e->out, e->err, e->channel};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        fd_done(&all[i][0]);
        fd_done(&all[i][1]);
    }
}

static int ends_open(const struct command *c, struct ends *e)
{
    int r = fd_pipe(e->out);
    if (r == 0)
        r = fd_pipe(e->err);
    if (r == 0 && c->stdin_pipe)
        r = fd_pipe(e->input);
    if (r == 0)
        r = fd_pair(e->channel);
    return r;
}

static int take_fd(int *fd)
{
    int taken = *fd;
    *fd = -1;
    return taken;
}

static int send_start(struct command *c, const struct ends *e)
{
    struct session *s = c->session;
    struct runner_link *runner = c->generation->runner;
    if (!runner)
        return -EPIPE;
    c->start_id = runner_link_new_id(runner);
    struct runner_start st = {
        .id = c->start_id,
        .flags = c->stdin_pipe ? 0 : START_STDIN_NULL,
        .argv = &c->start_argv,
        .env = &c->start_env,
        .cwd = c->cwd,
        .umask = c->umask,
        .fds = {c->stdin_pipe ? e->input[0] : s->ss->null_fd, e->out[1], e->err[1], e->channel[1]}};
    int r = runner_link_start(runner, &st);
    stop_point("command-sent");
    return r;
}

static const uint8_t KINDS[] = {M_CMD_STARTED, M_CMD_FAILED, M_CMD_EXIT, M_CMD_GONE, 0};

static int connect_ends(struct command *c, struct ends *e)
{
    static const struct output_events events = {command_wrote, command_output_failed,
                                                command_output_finished};
    uv_loop_t *loop = c->session->ss->deps.loop;
    int fds[] = {take_fd(&e->out[0]), take_fd(&e->err[0])};
    int r = output_new(loop, c->spool, c->started_ms, fds, &events, c, &c->output);
    if (r == 0 && c->stdin_pipe)
        r = command_input_open(c, take_fd(&e->input[1]));
    if (r == 0)
        r = channel_open(&c->ch, loop, &c->closing, take_fd(&e->channel[0]), KINDS, command_got,
                         command_channel_ended);
    return r;
}

int command_launch(struct command *c)
{
    struct ends e = {{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
    int r = ends_open(c, &e);
    if (r == 0)
        r = send_start(c, &e);
    if (r == 0)
        r = connect_ends(c, &e);
    ends_close(&e);
    strv_done(&c->start_argv);
    strv_done(&c->start_env);
    json_decref(c->env);
    c->env = NULL;
    return r;
}
