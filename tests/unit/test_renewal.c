/* A new sandbox takes over from the one in force, behind a real wall: asked for, and because the
 * host replaced a read-only folder inside a writable one. */
#include "session_unit.h"

struct told {
    bool is_over, took_over;
    char code[40];
};

static void renewed(struct session *s, const struct err *err, void *arg)
{
    struct told *o = arg;
    (void)s;
    assert_false(o->is_over);
    o->is_over = true;
    o->took_over = !err;
    if (err)
        snprintf(o->code, sizeof o->code, "%s", err->code);
}

static void begin_restart(struct session *s, bool stop_running, struct told *o)
{
    struct err err = {0};
    *o = (struct told){0};
    assert_int_equal(session_restart(s, stop_running, &OWNER, renewed, o, &err), 0);
    assert_int_equal(session_state(s), SESSION_RESTARTING);
    assert_false(o->is_over);
}

static struct told restart(struct session *s, bool stop_running)
{
    struct told o;
    begin_restart(s, stop_running, &o);
    UNTIL(o.is_over);
    return o;
}

static char *said(struct session *s, const char *text)
{
    struct command *c = start_shell(s, text, false);
    json_t *doc = end_of(c);
    assert_string_equal(state_of(doc), "exited");
    char *got = output_of(c, SPOOL_STDOUT);
    json_decref(doc);
    command_unref(c);
    return got;
}

static bool wrote(struct command *c, const char *text)
{
    CLEANUP(freep) char *got = output_of(c, SPOOL_STDOUT);
    return strcmp(got, text) == 0;
}

static void type(struct command *c, const char *text, uint64_t at, bool is_last)
{
    struct err err = {0};
    uint64_t to = 0;
    assert_int_equal(command_stdin(c, at, text, strlen(text), is_last, &to, &err), 0);
}

static const char NAMESPACE[] = "readlink /proc/self/ns/pid";

/* What runs goes on where it is, what is new starts in the new one, and the old one goes when
 * nothing runs in it any more. */
static void takes_over(void **state)
{
    (void)state;
    need_wall();
    struct session *s = ready_session(true);
    CLEANUP(freep) char *before = said(s, NAMESPACE);
    struct command *c = start_shell(s, "echo up; read x; readlink /proc/self/ns/pid", true);
    UNTIL(wrote(c, "up\n"));
    struct told o = restart(s, false);
    assert_true(o.took_over);
    assert_int_equal(session_state(s), SESSION_READY);
    assert_int_equal(s->n_generations, 2);
    CLEANUP(freep) char *after = said(s, NAMESPACE);
    assert_string_not_equal(before, after);
    type(c, "go\n", 0, true);
    json_t *doc = end_of(c);
    assert_string_equal(state_of(doc), "exited");
    CLEANUP(freep) char *text = output_of(c, SPOOL_STDOUT);
    assert_string_equal(text + 3, before);
    json_decref(doc);
    command_unref(c);
    UNTIL(s->n_generations == 1);
    assert_null(s->old);
    end_session(s);
}

/* The private folder is the same one. */
static void keeps_the_private_folder(void **state)
{
    (void)state;
    need_wall();
    struct session *s = ready_session(true);
    run_and_expect(s, "echo kept > ~/kept; echo kept > /tmp/kept", 0, "");
    assert_true(restart(s, false).took_over);
    run_and_expect(s, "cat ~/kept /tmp/kept", 0, "kept\nkept\n");
    end_session(s);
}

/* A server left behind keeps its sandbox; stop_running ends it and what runs. */
static void stops_what_runs(void **state)
{
    (void)state;
    need_wall();
    struct session *s = ready_session(true);
    run_and_expect(s, "sleep 1000 >/dev/null 2>&1 & echo left", 0, "left\n");
    assert_true(restart(s, false).took_over);
    run_and_expect(s, "true", 0, "");
    assert_int_equal(s->n_generations, 2);
    struct command *c = start_shell(s, "sleep 1000", false);
    assert_true(restart(s, true).took_over);
    json_t *doc = end_of(c);
    assert_string_equal(state_of(doc), "killed");
    json_decref(doc);
    command_unref(c);
    UNTIL(s->n_generations == 2); /* the first one, with its server, and the newest */
    end_session(s);
}

static void commands_wait(void **state)
{
    struct told o;
    (void)state;
    need_wall();
    struct session *s = ready_session(true);
    CLEANUP(freep) char *before = said(s, NAMESPACE);
    begin_restart(s, false, &o);
    struct command *c = start_shell(s, NAMESPACE, false);
    json_t *doc = command_to_json(c);
    assert_string_equal(state_of(doc), "queued");
    json_decref(doc);
    doc = end_of(c);
    assert_string_equal(state_of(doc), "exited");
    CLEANUP(freep) char *after = output_of(c, SPOOL_STDOUT);
    assert_string_not_equal(before, after);
    assert_true(o.is_over && o.took_over);
    json_decref(doc);
    command_unref(c);
    end_session(s);
}

/* 16 wait, one more is told so; those that wait run when 64 others do not. */
static void a_bounded_number_waits(void **state)
{
    struct told o;
    struct err err = {0};
    struct command *all[SESSION_QUEUED], *one_more = NULL;
    (void)state;
    need_wall();
    struct session *s = ready_session(true);
    begin_restart(s, false, &o);
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        all[i] = start_shell(s, "echo ran", false);
    struct command_spec spec = {.shell = strdup("true"), .timeout_ms = -1, .max_output_bytes = -1};
    assert_int_equal(command_create(s, &spec, &OWNER, &one_more, &err), -E2BIG);
    assert_string_equal(err.code, "too_many");
    command_spec_done(&spec);
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        json_t *doc = end_of(all[i]);
        assert_string_equal(state_of(doc), "exited");
        json_decref(doc);
        command_unref(all[i]);
    }
    end_session(s);
}

/* The folder that was granted is another one now: no wall is made for that, and the one in force
 * stays. */
static void fails_and_stays(void **state)
{
    (void)state;
    need_wall();
    CLEANUP(freep) char *away = below("home/away");
    struct session *s = ready_session(true);
    CLEANUP(freep) char *before = said(s, NAMESPACE);
    struct command *c = start_shell(s, "echo up; read x; exit 7", true);
    UNTIL(wrote(c, "up\n"));
    assert_int_equal(rename(w.project, away), 0);
    assert_int_equal(mkdir(w.project, 0700), 0);
    struct told o = restart(s, false);
    assert_false(o.took_over);
    assert_string_equal(o.code, "wall_unavailable");
    assert_int_equal(session_state(s), SESSION_READY);
    CLEANUP(freep) char *still = said(s, NAMESPACE);
    assert_string_equal(before, still);
    type(c, "x\n", 0, true);
    json_t *doc = end_of(c);
    assert_int_equal(exit_code(doc), 7);
    json_decref(doc);
    command_unref(c);
    UNTIL(s->n_generations == 1);
    assert_int_equal(rmdir(w.project), 0);
    assert_int_equal(rename(away, w.project), 0);
    assert_true(restart(s, false).took_over);
    end_session(s);
}

static void ends_meanwhile(void **state)
{
    struct told o;
    (void)state;
    need_wall();
    struct session *s = ready_session(true);
    begin_restart(s, false, &o);
    UNTIL(s->making);
    session_stop(s, 0, "test", &OWNER);
    assert_true(o.is_over);
    assert_string_equal(o.code, "session_ended");
    UNTIL(session_state(s) == SESSION_ENDED);
    session_unref(s);
}

/* The one in force dies while the new one is made: the new one takes over all the same. */
static void old_one_dies(void **state)
{
    struct told o;
    (void)state;
    need_wall();
    struct session *s = ready_session(true);
    begin_restart(s, false, &o);
    UNTIL(s->making);
    assert_int_equal(kill(wall_pid(s->now->wall), SIGKILL), 0);
    UNTIL(o.is_over);
    assert_true(o.took_over);
    run_and_expect(s, "echo works", 0, "works\n");
    end_session(s);
}

static void too_many(void **state)
{
    struct err err = {0};
    (void)state;
    struct session *s = ready_session(false);
    struct command *all[16];
    size_t n = 0;
    int r;
    while (n < ARRAY_LEN(all)) {
        all[n++] = start_shell(s, "sleep 1000", false);
        UNTIL(session_state(s) == SESSION_READY);
        r = session_restart(s, false, &OWNER, NULL, NULL, &err);
        if (r < 0)
            break;
        UNTIL(session_state(s) == SESSION_READY);
    }
    assert_int_equal(r, -E2BIG);
    assert_string_equal(err.code, "too_many");
    assert_int_equal(n, 8);
    session_stop(s, 0, "test", &OWNER);
    while (n > 0) {
        json_t *doc = end_of(all[--n]);
        assert_string_equal(state_of(doc), "killed");
        json_decref(doc);
        command_unref(all[n]);
    }
    UNTIL(session_state(s) == SESSION_ENDED);
    session_unref(s);
}

/* ---- A read-only folder inside a writable one -------------------------------------------------
 */

static char *inner; /* in the project */

static struct session *nested_session(void)
{
    struct session *s = NULL;
    struct err err = {0};
    inner = make_dir("home/project/sub/inner");
    struct session_spec spec = spec_of(w.project, true);
    spec.n_folders = 2;
    spec.folders[1] = (struct spec_folder){.path = strdup(inner), .access = ACCESS_RO};
    assert_int_equal(try_create(&spec, &s, &err), 0);
    UNTIL(session_state(s) >= SESSION_READY);
    print_refusal(s);
    assert_int_equal(session_state(s), SESSION_READY);
    return s;
}

static void nested_over(struct session *s)
{
    CLEANUP(freep) char *sub = below("home/project/sub");
    end_session(s);
    assert_int_equal(path_remove_tree(AT_FDCWD, sub), 0);
    free(TAKE(inner));
}

static const char WRITES[] = "echo x > sub/inner/mark && echo wrote || echo refused";

/* The writers: each leaves another folder at the path. */
static void by_rename_over(void)
{
    CLEANUP(freep) char *fresh = make_dir("home/project/sub/fresh");
    assert_int_equal(rename(fresh, inner), 0);
}

static void by_remake(void)
{
    assert_int_equal(path_remove_tree(AT_FDCWD, inner), 0);
    assert_int_equal(mkdir(inner, 0700), 0);
}

static void by_parent(void)
{
    CLEANUP(freep) char *sub = below("home/project/sub"), *was = below("home/project/was");
    assert_int_equal(rename(sub, was), 0);
    free(make_dir("home/project/sub/inner"));
    assert_int_equal(path_remove_tree(AT_FDCWD, was), 0);
}

/* The control: what ran before sees that the mount has fallen off, which is why a new command must
 * not start there. */
static void replaced(void (*replace)(void))
{
    CLEANUP(freep) char *mark = below("home/project/sub/inner/mark"), *text = NULL;
    need_wall();
    struct session *s = nested_session();
    run_and_expect(s, WRITES, 0, "refused\n");
    assert_true(asprintf(&text, "echo up; read x; %s", WRITES) > 0);
    struct command *c = start_shell(s, text, true);
    UNTIL(wrote(c, "up\n"));
    replace();
    run_and_expect(s, WRITES, 0, "refused\n");
    assert_int_equal(access(mark, F_OK), -1);
    assert_int_equal(s->n_generations, 2);
    type(c, "go\n", 0, true);
    UNTIL(wrote(c, "up\nwrote\n"));
    json_decref(end_of(c));
    command_unref(c);
    assert_int_equal(access(mark, F_OK), 0);
    run_and_expect(s, "cat sub/inner/mark; rm sub/inner/mark || echo refused", 0, "x\nrefused\n");
    run_and_expect(s, "mv sub other || mv sub/inner other || echo pinned", 0, "pinned\n");
    assert_int_equal(unlink(mark), 0);
    nested_over(s);
}

static void replaced_by_rename(void **state)
{
    (void)state;
    replaced(by_rename_over);
}

static void replaced_by_remake(void **state)
{
    (void)state;
    replaced(by_remake);
}

static void replaced_with_its_parent(void **state)
{
    (void)state;
    replaced(by_parent);
}

/* The watch alone: the new wall is there before anything is asked of it. */
static void watched_folder(void **state)
{
    (void)state;
    need_wall();
    struct session *s = nested_session();
    struct generation *before = s->now;
    by_remake();
    UNTIL(s->now != before && session_state(s) == SESSION_READY);
    by_rename_over();
    before = s->now;
    UNTIL(s->now != before && session_state(s) == SESSION_READY);
    nested_over(s);
}

/* Gone, or something else: nothing new starts until it is there again. */
static void gone(void **state)
{
    (void)state;
    need_wall();
    struct session *s = nested_session();
    assert_int_equal(rmdir(inner), 0);
    struct command *c = start_shell(s, "mkdir sub/inner; echo ran", false);
    json_t *doc = end_of(c);
    assert_string_equal(state_of(doc), "failed");
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(doc, "start_error"), "stage")), "wall");
    json_decref(doc);
    command_unref(c);
    assert_int_equal(session_state(s), SESSION_READY);
    assert_true(s->folders[1].missing);
    assert_int_equal(symlink(w.spool, inner), 0);
    c = start_shell(s, "echo x > sub/inner/mark; echo ran", false);
    doc = end_of(c);
    assert_string_equal(state_of(doc), "failed");
    json_decref(doc);
    command_unref(c);
    assert_int_equal(unlink(inner), 0);
    assert_int_equal(mkdir(inner, 0700), 0);
    run_and_expect(s, WRITES, 0, "refused\n");
    assert_false(s->folders[1].missing);
    nested_over(s);
}

/* A writer that never rests cannot keep a command out for ever, nor let one in. */
static void replaced_again_and_again(void **state)
{
    (void)state;
    need_wall();
    struct session *s = nested_session();
    for (unsigned i = 0; i < 5; i++) {
        struct command *c = start_shell(s, WRITES, false);
        for (unsigned k = 0; k < 20; k++) {
            by_remake();
            turn();
        }
        json_t *doc = end_of(c);
        if (strcmp(state_of(doc), "exited") == 0) {
            CLEANUP(freep) char *got = output_of(c, SPOOL_STDOUT);
            /* it may have run behind a wall that was whole when it started */
            assert_true(strcmp(got, "refused\n") == 0 || strcmp(got, "wrote\n") == 0);
        } else {
            assert_string_equal(state_of(doc), "failed");
        }
        json_decref(doc);
        command_unref(c);
        CLEANUP(freep) char *mark = below("home/project/sub/inner/mark");
        (void)unlink(mark);
    }
    run_and_expect(s, WRITES, 0, "refused\n");
    nested_over(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_over),
        cmocka_unit_test(keeps_the_private_folder),
        cmocka_unit_test(stops_what_runs),
        cmocka_unit_test(commands_wait),
        cmocka_unit_test(a_bounded_number_waits),
        cmocka_unit_test(fails_and_stays),
        cmocka_unit_test(ends_meanwhile),
        cmocka_unit_test(old_one_dies),
        cmocka_unit_test(too_many),
        cmocka_unit_test(replaced_by_rename),
        cmocka_unit_test(replaced_by_remake),
        cmocka_unit_test(replaced_with_its_parent),
        cmocka_unit_test(watched_folder),
        cmocka_unit_test(gone),
        cmocka_unit_test(replaced_again_and_again),
    };
    return cmocka_run_group_tests(tests, world_up, world_down);
}
