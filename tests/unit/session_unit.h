/* Sessions without HTTP: a daemon's worth of parts in a folder of its own, and what tests do with
 * them. Under WALL_MUST_WORK=1 a missing wall is a failure. */
#pragma once
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include "sandbox/machine.h"
#include "sandbox/provider.h"
#include "session/command.h"
#include "session/files.h"
#include "session/parts.h"
#include "store/records.h"
#include "store/spool.h"
#include "unit.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#define WAIT_MS 20000

/* ---- A daemon's worth of parts, in a folder of its own ----------------------------------------
 */

struct world {
    char base[32], *project, *spool, *run;
    struct machine machine;
    uv_loop_t loop;
    uv_timer_t tick;
    struct db *db;
    struct settings *settings;
    struct sessions *ss;
};
static struct world w;
static const struct actor OWNER = {.kind = ACTOR_OWNER, .peer_uid = -1};

static inline char *below(const char *name)
{
    char *ret = NULL;
    assert_true(asprintf(&ret, "%s/%s", w.base, name) > 0);
    return ret;
}

static inline char *make_dir(const char *name)
{
    char *path = below(name);
    assert_int_equal(path_make_dirs(AT_FDCWD, path, 0700), 0);
    return path;
}

static inline void on_tick(uv_timer_t *t)
{
    (void)t;
}

static inline int world_up(void **state)
{
    struct err err = {0};
    (void)state;
    strcpy(w.base, "/tmp/ct-XXXXXX");
    assert_non_null(mkdtemp(w.base));
    w.project = make_dir("home/project");
    w.spool = make_dir("state/spool");
    w.run = make_dir("state/run");
    CLEANUP(freep)
    char *home = below("home"), *st = below("state"), *config = below("home/.config/cordon"),
         *cache = below("home/.cache/cordon"), *file = below("state/cordon.db");
    setenv("HOME", home, 1);
    struct machine_dirs dirs = {.state = st, .config = config, .cache = cache, .run = w.run};
    assert_int_equal(uv_loop_init(&w.loop), 0);
    (void)uv_timer_init(&w.loop, &w.tick);
    (void)uv_timer_start(&w.tick, on_tick, 50, 50);
    assert_int_equal(machine_look(&dirs, &w.machine, &err), 0);
    assert_int_equal(db_open(file, &w.db, &err), 0);
    assert_int_equal(settings_new(w.db, &w.settings, &err), 0);
    struct sessions_deps deps = {.loop = &w.loop,
                                 .db = w.db,
                                 .settings = w.settings,
                                 .machine = &w.machine,
                                 .spool_dir = w.spool,
                                 .api_socket = w.run,
                                 .version = "test"};
    assert_int_equal(sessions_new(&deps, &w.ss, &err), 0);
    return 0;
}

static inline void set_true(void *arg)
{
    *(bool *)arg = true;
}

static inline int world_down(void **state)
{
    bool stopped = false;
    (void)state;
    sessions_shutdown(w.ss, 0, set_true, &stopped);
    while (!stopped)
        (void)uv_run(&w.loop, UV_RUN_ONCE);
    sessions_free(w.ss);
    uv_close((uv_handle_t *)&w.tick, NULL);
    (void)uv_run(&w.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w.loop), 0);
    settings_free(w.settings);
    db_close(w.db);
    machine_done(&w.machine);
    free(w.project);
    free(w.spool);
    free(w.run);
    (void)path_remove_tree(AT_FDCWD, w.base);
    return 0;
}

static inline void turn(void)
{
    (void)db_commit(w.db);
    (void)uv_run(&w.loop, UV_RUN_ONCE);
}

#define UNTIL(condition)                                                                           \
    do {                                                                                           \
        uint64_t end_ = clock_now_ms() + WAIT_MS;                                                  \
        while (!(condition) && clock_now_ms() < end_)                                              \
            turn();                                                                                \
        assert_true(condition);                                                                    \
    } while (0)

/* ---- Sessions and commands --------------------------------------------------------------------
 */

static char *no_env[] = {NULL};

static inline int try_create(struct session_spec *spec, struct session **ret, struct err *err)
{
    spec->caller_env = environ;
    int r = session_create(w.ss, spec, &OWNER, ret, err);
    if (r == 0)
        session_ref(*ret);
    session_spec_done(spec);
    return r;
}

static inline struct session_spec spec_of(const char *folder, bool wall)
{
    struct session_spec spec = {
        .n_folders = 1, .tier = -1, .network = -1, .require_wall = wall, .caller_env = no_env};
    spec.folders[0].path = strdup(folder);
    spec.folders[0].access = ACCESS_RW;
    return spec;
}

static inline struct session *start_session(bool wall)
{
    struct session *s = NULL;
    struct err err = {0};
    struct session_spec spec = spec_of(w.project, wall);
    assert_int_equal(try_create(&spec, &s, &err), 0);
    return s;
}

static inline void print_refusal(struct session *s)
{
    if (session_state(s) != SESSION_REFUSED)
        return;
    json_t *doc = session_to_json(s);
    char *text = json_dumps(doc, JSON_INDENT(1));
    fprintf(stderr, "%s\n", text);
    free(text);
    json_decref(doc);
}

static inline struct session *ready_session(bool wall)
{
    struct session *s = start_session(wall);
    UNTIL(session_state(s) >= SESSION_READY);
    print_refusal(s);
    assert_int_equal(session_state(s), SESSION_READY);
    return s;
}

static inline void end_session(struct session *s)
{
    session_stop(s, 2000, "test", &OWNER);
    UNTIL(session_state(s) == SESSION_ENDED);
    session_unref(s);
}

static inline struct command *start_shell(struct session *s, const char *text, bool input)
{
    struct command *c = NULL;
    struct err err = {0};
    struct command_spec spec = {.shell = strdup(text),
                                .stdin_pipe = input,
                                .timeout_ms = -1,
                                .kill_grace_ms = 500,
                                .max_output_bytes = -1,
                                .origin_name = "agent"};
    int r = command_create(s, &spec, &OWNER, &c, &err);
    if (r < 0)
        fprintf(stderr, "command_create: %s %s\n", err.code, err.detail);
    assert_int_equal(r, 0);
    command_spec_done(&spec);
    command_ref(c);
    return c;
}

static inline json_t *end_of(struct command *c)
{
    UNTIL(command_is_ended(c));
    return command_to_json(c);
}

static const char *state_of(json_t *doc)
{
    return json_string_value(json_object_get(doc, "state"));
}

static inline json_int_t exit_code(json_t *doc)
{
    json_t *result = json_object_get(doc, "result");
    return json_integer_value(json_object_get(result, "exit_code"));
}

/* One stream of C's output, NUL-terminated. */
static inline char *output_of(struct command *c, enum spool_stream stream)
{
    struct spool_reader *r = NULL;
    uint64_t resume = 0;
    char *text = calloc(1, 65536);
    assert_int_equal(spool_reader_new(w.spool, command_id(c), &r), 0);
    ssize_t n = spool_pread(r, stream, 0, text, 65535, &resume);
    assert_true(n >= 0);
    spool_reader_free(r);
    return text;
}

static inline void run_and_expect(struct session *s, const char *text, json_int_t code,
                                  const char *out)
{
    struct command *c = start_shell(s, text, false);
    json_t *doc = end_of(c);
    assert_string_equal(state_of(doc), "exited");
    assert_int_equal(exit_code(doc), code);
    CLEANUP(freep) char *got = output_of(c, SPOOL_STDOUT);
    assert_string_equal(got, out);
    json_decref(doc);
    command_unref(c);
}

static inline void need_wall(void)
{
    struct err err = {0};
    if (provider_probe(PROVIDER_BUBBLEWRAP, &w.machine, &err) < 0)
        SKIP_UNLESS_MUST(err.detail);
}
