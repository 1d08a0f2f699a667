/* The step machine of sessions on real children, behind a real wall where this machine can put one
 * up. */
#include "session_unit.h"

/* ---- Tests, each with provider direct and behind the wall --------------------------------------
 */

static void basics(bool wall)
{
    struct session *s = ready_session(wall);
    run_and_expect(s, "true", 0, "");
    run_and_expect(s, "echo hello; exit 3", 3, "hello\n");
    run_and_expect(s, "cat; echo end", 0, "end\n"); /* standard input is /dev/null */
    CLEANUP(freep) char *here = NULL;
    assert_true(asprintf(&here, "%s\n", w.project) > 0);
    run_and_expect(s, "pwd", 0, here);
    end_session(s);
}

static void input(bool wall)
{
    struct session *s = ready_session(wall);
    struct command *c = start_shell(s, "cat; exit 4", true);
    struct err err = {0};
    uint64_t at = 0;
    assert_int_equal(command_stdin(c, 0, "one ", 4, false, &at, &err), 0);
    assert_int_equal(at, 4);
    assert_int_equal(command_stdin(c, 9, "x", 1, false, &at, &err), -ERANGE);
    assert_string_equal(err.code, "stdin_gap");
    assert_int_equal(command_stdin(c, 2, "e two", 5, true, &at, NULL), 0);
    assert_int_equal(at, 7);
    json_t *doc = end_of(c);
    assert_int_equal(exit_code(doc), 4);
    CLEANUP(freep) char *got = output_of(c, SPOOL_STDOUT);
    assert_string_equal(got, "one two");
    json_decref(doc);
    command_unref(c);
    end_session(s);
}

static void stop_and_clocks(bool wall)
{
    struct session *s = ready_session(wall);
    struct command *c = start_shell(s, "trap '' TERM; sleep 100 & wait; sleep 100", false);
    struct err err = {0};
    for (int i = 0; i < 5; i++)
        turn();
    uint64_t began = clock_now_ms();
    assert_int_equal(command_stop(c, 200, &err), 0);
    json_t *doc = end_of(c);
    assert_string_equal(state_of(doc), "killed");
    assert_true(clock_now_ms() - began < 3000);
    json_decref(doc);
    command_unref(c);

    struct command_spec spec = {.shell = strdup("sleep 100"),
                                .timeout_ms = 100,
                                .kill_grace_ms = 500,
                                .max_output_bytes = -1,
                                .origin_name = "agent"};
    assert_int_equal(command_create(s, &spec, &OWNER, &c, &err), 0);
    command_spec_done(&spec);
    command_ref(c);
    doc = end_of(c);
    assert_string_equal(state_of(doc), "timed_out");
    json_t *limit = json_object_get(json_object_get(doc, "result"), "limit");
    assert_string_equal(json_string_value(limit), "time");
    json_decref(doc);
    command_unref(c);
    end_session(s);
}

/* `server &` returns at once, with all its output; the server lives on until the session ends. */
static void background(bool wall)
{
    struct session *s = ready_session(wall);
    uint64_t began = clock_now_ms();
    struct command *c =
        start_shell(s, "(sleep 0.3; echo late; echo alive > alive; sleep 100) & echo now", false);
    json_t *doc = end_of(c);
    assert_true(clock_now_ms() - began < 2000);
    assert_string_equal(state_of(doc), "exited");
    CLEANUP(freep) char *got = output_of(c, SPOOL_STDOUT);
    assert_string_equal(got, "now\n");
    CLEANUP(freep) char *mark = below("home/project/alive");
    UNTIL(access(mark, F_OK) == 0); /* it was not killed by writing to a closed pipe */
    assert_ptr_equal(command_find(s, command_id(c)), c);
    assert_int_equal(unlink(mark), 0);
    json_decref(doc);
    command_unref(c);
    end_session(s);
}

static void queued(bool wall)
{
    struct session *s = start_session(wall);
    struct command *c = start_shell(s, "echo queued", false);
    json_t *doc = end_of(c);
    assert_string_equal(state_of(doc), "exited");
    json_decref(doc);
    command_unref(c);
    end_session(s);
}

static void never_ran(bool wall)
{
    struct session *s = ready_session(wall);
    struct command *c = NULL;
    struct err err = {0};
    struct command_spec spec = {.timeout_ms = -1, .kill_grace_ms = 500, .max_output_bytes = -1};
    assert_int_equal(strv_add(&spec.argv, "/no/such/program"), 0);
    assert_int_equal(command_create(s, &spec, &OWNER, &c, &err), 0);
    command_ref(c);
    json_t *doc = end_of(c);
    assert_string_equal(state_of(doc), "failed");
    json_t *why = json_object_get(doc, "start_error");
    assert_string_equal(json_string_value(json_object_get(why, "stage")), "exec");
    assert_int_equal(json_integer_value(json_object_get(why, "errno")), ENOENT);
    json_decref(doc);
    command_unref(c);
    command_spec_done(&spec);
    end_session(s);
}

struct got_file {
    bool done;
    int r, fd;
    char code[40];
    json_t *json;
};

static void file_done(struct file_answer *a, void *arg)
{
    struct got_file *g = arg;
    g->done = true;
    g->r = a->r;
    g->fd = a->fd;
    a->fd = -1;
    g->json = a->json ? json_incref(a->json) : NULL;
    snprintf(g->code, sizeof g->code, "%s", a->err.code);
}

static struct got_file call_file(struct session *s, struct file_call call)
{
    struct got_file g = {.fd = -1};
    struct err err = {0};
    assert_int_equal(session_file_call(s, &call, &OWNER, file_done, &g, &err), 0);
    UNTIL(g.done);
    return g;
}

static void files(bool wall)
{
    char buf[8] = "";
    struct session *s = ready_session(wall);
    int content = fd_memfd("content", "text\n", 5);
    struct got_file g =
        call_file(s, (struct file_call){.op = TOOL_WRITE, .path = "a.txt", .take_fd = content});
    assert_int_equal(g.r, 0);
    json_decref(g.json);
    g = call_file(s, (struct file_call){.op = TOOL_READ, .path = "a.txt", .take_fd = -1});
    assert_int_equal(g.r, 0);
    assert_int_equal(pread(g.fd, buf, sizeof buf, 0), 5);
    assert_string_equal(buf, "text\n");
    fd_close(g.fd);
    json_decref(g.json);
    g = call_file(s, (struct file_call){.op = TOOL_LIST, .path = ".", .take_fd = -1, .n = 10});
    assert_int_equal(g.r, 0);
    assert_int_equal(json_array_size(json_object_get(g.json, "items")), 1);
    json_decref(g.json);
    g = call_file(s, (struct file_call){.op = TOOL_READ, .path = "/etc/passwd", .take_fd = -1});
    assert_true(g.r < 0);
    assert_string_equal(g.code, "outside_session");
    g = call_file(s, (struct file_call){.op = TOOL_READ, .path = "none", .take_fd = -1});
    assert_string_equal(g.code, "not_found");
    g = call_file(s, (struct file_call){.op = TOOL_REMOVE, .path = "a.txt", .take_fd = -1});
    assert_int_equal(g.r, 0);
    json_decref(g.json);
    end_session(s);
}

#define BOTH(name)                                                                                 \
    static void name##_direct(void **state)                                                        \
    {                                                                                              \
        (void)state;                                                                               \
        name(false);                                                                               \
    }                                                                                              \
    static void name##_wall(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        need_wall();                                                                               \
        name(true);                                                                                \
    }
BOTH(basics)
BOTH(input)
BOTH(stop_and_clocks)
BOTH(background)
BOTH(queued)
BOTH(never_ran)
BOTH(files)

/* ---- Tests of one kind ------------------------------------------------------------------------
 */

static void refusals(void **state)
{
    struct session *s = NULL;
    struct err err = {0};
    (void)state;
    struct session_spec spec = spec_of("relative", false);
    assert_true(try_create(&spec, &s, &err) < 0);
    assert_string_equal(err.code, "path_invalid");
    assert_string_equal(err.pointer, "/folders/0/path");

    CLEANUP(freep) char *home = below("home");
    err_clear(&err);
    spec = spec_of(home, false);
    assert_true(try_create(&spec, &s, &err) < 0);
    assert_string_equal(err.code, "protected_place");

    err_clear(&err);
    spec = spec_of(w.project, false);
    spec.folders[spec.n_folders++].path = strdup(w.project);
    assert_true(try_create(&spec, &s, &err) < 0);
    assert_string_equal(err.pointer, "/folders/1/path");

    err_clear(&err);
    spec = spec_of(w.project, true);
    spec.cwd = strdup("/usr");
    assert_true(try_create(&spec, &s, &err) < 0);
    assert_string_equal(err.pointer, "/cwd");
    assert_int_equal(sessions_alive(w.ss), 0);
}

/* What a session leaves: nothing in /tmp, a document, a chain of rows. */
static void nothing_left(void **state)
{
    json_t *doc = NULL;
    (void)state;
    need_wall();
    struct session *s = ready_session(true);
    char id[ID_MAX], private_dir[64];
    snprintf(id, sizeof id, "%s", session_id(s));
    snprintf(private_dir, sizeof private_dir, "%s", session_policy(s)->private_dir);
    assert_int_equal(access(private_dir, F_OK), 0);
    json_t *proof = session_proof_json(s);
    assert_true(json_array_size(json_object_get(proof, "checks")) >= 8);
    json_decref(proof);
    struct command *c = start_shell(s, "sleep 1000", false);
    turn();
    session_stop(s, 100, "test", &OWNER);
    json_t *ended = end_of(c);
    assert_string_equal(state_of(ended), "killed");
    json_decref(ended);
    command_unref(c);
    UNTIL(session_state(s) == SESSION_ENDED);
    session_unref(s);
    assert_int_equal(access(private_dir, F_OK), -1);
    assert_null(session_find(w.ss, id));
    assert_int_equal(record_get(w.db, RECORD_SESSION, id, &doc), 0);
    assert_string_equal(state_of(doc), "ended");
    json_decref(doc);
}

/* A host that is not listed is refused at the door, named, and counted for the command. */
static void blocked(void **state)
{
    (void)state;
    need_wall();
    struct session *s = ready_session(true);
    struct command *c =
        start_shell(s,
                    "port=${HTTPS_PROXY##*:}; port=${port%%/*}; exec 3<>/dev/tcp/127.0.0.1/$port; "
                    "printf 'CONNECT no.test:443 HTTP/1.1\\r\\nHost: no.test:443\\r\\n\\r\\n' >&3; "
                    "head -1 <&3",
                    false);
    json_t *doc = end_of(c);
    CLEANUP(freep) char *got = output_of(c, SPOOL_STDOUT);
    assert_non_null(strstr(got, "403"));
    json_t *list = json_object_get(json_object_get(doc, "result"), "blocked");
    assert_int_equal(json_array_size(list), 1);
    json_t *row = json_array_get(list, 0);
    assert_string_equal(json_string_value(json_object_get(row, "host")), "no.test");
    assert_string_equal(json_string_value(json_object_get(row, "reason")), "not_listed");
    json_decref(doc);
    command_unref(c);
    end_session(s);
}

static void verified_again(void **state)
{
    struct err err = {0};
    (void)state;
    need_wall();
    struct session *s = ready_session(true);
    assert_int_equal(session_verify(s, &err), 0);
    assert_int_equal(session_state(s), SESSION_VERIFYING);
    UNTIL(session_state(s) != SESSION_VERIFYING);
    assert_int_equal(session_state(s), SESSION_READY);
    run_and_expect(s, "echo still", 0, "still\n");
    end_session(s);
}

static struct command_spec sleep_spec(void)
{
    struct command_spec spec = {.timeout_ms = -1, .kill_grace_ms = 500, .max_output_bytes = -1};
    assert_int_equal(strv_add(&spec.argv, "/bin/sleep"), 0);
    assert_int_equal(strv_add(&spec.argv, "1000"), 0);
    return spec;
}

/* 16 wait while the session starts, 64 run, one more is refused by name. */
static void limits_have_codes(void **state)
{
    struct command *c = NULL;
    struct err err = {0};
    (void)state;
    struct session *s = start_session(false);
    struct command_spec spec = sleep_spec();
    for (int i = 0; i < SESSION_QUEUED; i++)
        assert_int_equal(command_create(s, &spec, &OWNER, &c, &err), 0);
    assert_int_equal(command_create(s, &spec, &OWNER, &c, &err), -E2BIG);
    assert_string_equal(err.code, "too_many");
    UNTIL(session_state(s) == SESSION_READY);
    for (int i = SESSION_QUEUED; i < SESSION_COMMANDS; i++)
        assert_int_equal(command_create(s, &spec, &OWNER, &c, &err), 0);
    err_clear(&err);
    assert_int_equal(command_create(s, &spec, &OWNER, &c, &err), -E2BIG);
    assert_string_equal(err.code, "too_many");
    command_spec_done(&spec);
    end_session(s);
}

static json_t *record_of(enum record_kind kind, const char *id)
{
    json_t *doc = NULL;
    assert_int_equal(record_get(w.db, kind, id, &doc), 0);
    return doc;
}

static bool has_written(struct command *c, const char *text)
{
    CLEANUP(freep) char *got = output_of(c, SPOOL_STDOUT);
    return strcmp(got, text) == 0;
}

/* The wall is killed from outside: the session ends, what ran in it is lost, and both say so. */
static void wall_dies(void **state)
{
    (void)state;
    need_wall();
    struct session *s = ready_session(true);
    struct command *c = start_shell(s, "echo before; sleep 1000", false);
    UNTIL(has_written(c, "before\n"));
    assert_int_equal(kill(wall_pid(s->now->wall), SIGKILL), 0);
    json_t *doc = end_of(c);
    assert_string_equal(state_of(doc), "lost");
    json_decref(doc);
    command_unref(c);
    UNTIL(session_state(s) == SESSION_ENDED);
    doc = record_of(RECORD_SESSION, session_id(s));
    assert_string_equal(json_string_value(json_object_get(doc, "end_reason")), "wall_died");
    json_decref(doc);
    session_unref(s);
}

/* The egress is killed: another takes over on the same doors, and the session stays as it is. */
static void egress_dies(void **state)
{
    struct err err = {0};
    (void)state;
    need_wall();
    struct session *s = ready_session(true);
    pid_t before = egress_link_pid(s->now->egress);
    assert_int_equal(kill(before, SIGKILL), 0);
    UNTIL(s->now->way_out == WAY_READY && egress_link_pid(s->now->egress) != before);
    assert_int_equal(session_state(s), SESSION_READY);
    json_t *last = json_array_get(s->warnings, json_array_size(s->warnings) - 1);
    const char *code = json_string_value(json_object_get(last, "code"));
    assert_true(!code || strcmp(code, "proxy_off") != 0);
    run_and_expect(s, "echo works", 0, "works\n");
    assert_int_equal(session_verify(s, &err), 0);
    UNTIL(session_state(s) != SESSION_VERIFYING);
    assert_int_equal(session_state(s), SESSION_READY);
    assert_int_equal(s->now->way_out, WAY_READY);
    end_session(s);
}

static const char DOOR[] =
    "port=${HTTPS_PROXY##*:}; port=${port%%/*}; exec 3<>/dev/tcp/127.0.0.1/$port; "
    "printf 'CONNECT %s HTTP/1.1\\r\\nHost: %s\\r\\n\\r\\n' $T $T >&3; head -1 <&3";

static char *ask_door(struct session *s, const char *target)
{
    CLEANUP(freep) char *text = NULL;
    assert_true(asprintf(&text, "T=%s; %s", target, DOOR) > 0);
    struct command *c = start_shell(s, text, false);
    json_decref(end_of(c));
    char *got = output_of(c, SPOOL_STDOUT);
    command_unref(c);
    return got;
}

/* A site of the session opens at once, and is shut at once. A name below .invalid resolves nowhere,
 * so what is allowed is told from what is refused by the status line. */
static void own_sites(void **state)
{
    struct err err = {0};
    struct site site;
    (void)state;
    need_wall();
    struct session *s = ready_session(true);
    CLEANUP(freep) char *shut = ask_door(s, "far.invalid:443");
    assert_non_null(strstr(shut, "403"));
    assert_int_equal(session_site_add(s, "Far.Invalid.", 443, false, &OWNER, &site, &err), 0);
    assert_string_equal(site.host, "far.invalid");
    assert_int_equal(session_site_add(s, "far.invalid", 443, false, &OWNER, &site, &err), -EEXIST);
    CLEANUP(freep) char *open = ask_door(s, "far.invalid:443");
    assert_null(strstr(open, "403"));
    char id[32];
    strcpy(id, s->sites->row.id);
    assert_int_equal(session_site_remove(s, id, &OWNER, &err), 0);
    CLEANUP(freep) char *again = ask_door(s, "far.invalid:443");
    assert_non_null(strstr(again, "403"));
    err_clear(&err);
    assert_true(session_site_add(s, "http://far.invalid/", 0, false, &OWNER, &site, &err) < 0);
    assert_string_equal(err.code, "site_invalid");
    end_session(s);
}

static void put_site(enum site_list list, const char *host, bool allow_private)
{
    struct site row = {.list = list,
                       .port = 443,
                       .enabled = true,
                       .allow_private = allow_private,
                       .source = "user",
                       .created_by = "owner",
                       .rev = 1};
    id_new("sit", row.id);
    (void)snprintf(row.host, sizeof row.host, "%s", host);
    assert_int_equal(site_put(w.db, &row), 0);
}

static const char *allowed_by(struct session *s, enum tier tier, const char *host)
{
    const struct host_entry *why = NULL;
    bool allowed = session_hosts_match(s, tier, host, 443, &why) == VERDICT_ALLOW;
    assert_int_equal(allowed, why != NULL);
    return allowed ? why->text : "";
}

/* A bare name is that host alone in the list machine, with its subdomains in guarded, which counts
 * in that tier alone; both stand in one matcher, and the more specific entry decides. */
static void two_meanings_of_a_name(void **state)
{
    struct err err = {0};
    struct site site;
    (void)state;
    put_site(SITES_MACHINE, "mach.test", false);
    put_site(SITES_GUARDED, "guard.test", false);
    put_site(SITES_GUARDED, "2001:db8::10", false);
    put_site(SITES_MACHINE, "lan.guard.test", true);
    assert_int_equal(db_commit(w.db), 0);
    sessions_sites_changed(w.ss); /* others were compiled before */
    struct session *s = ready_session(false);
    static const struct {
        const char *host, *walled, *guarded;
    } ROWS[] = {
        {"mach.test", "mach.test:443", "mach.test:443"},
        {"x.mach.test", "", ""},
        {"guard.test", "", "guard.test:443"},
        {"x.guard.test", "", "guard.test:443"},
        {"xguard.test", "", ""},
        {"2001:db8::10", "", "[2001:db8::10]:443"},
        {"2001:db8::11", "", ""},
        {"lan.guard.test", "lan.guard.test:443", "lan.guard.test:443"},
    };
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        assert_string_equal(allowed_by(s, TIER_WALLED, ROWS[i].host), ROWS[i].walled);
        assert_string_equal(allowed_by(s, TIER_GUARDED, ROWS[i].host), ROWS[i].guarded);
    }
    /* A site of its own: from the next look on, beside the machine's. */
    assert_int_equal(session_site_add(s, "*.guard.test", 443, false, &OWNER, &site, &err), 0);
    assert_string_equal(allowed_by(s, TIER_WALLED, "x.guard.test"), "*.guard.test:443");
    assert_string_equal(allowed_by(s, TIER_WALLED, "lan.guard.test"), "lan.guard.test:443");
    assert_string_equal(allowed_by(s, TIER_WALLED, "guard.test"), "");
    /* A list that changed is compiled anew. */
    put_site(SITES_GUARDED, "late.test", false);
    assert_string_equal(allowed_by(s, TIER_GUARDED, "late.test"), "");
    sessions_sites_changed(w.ss);
    assert_string_equal(allowed_by(s, TIER_GUARDED, "a.late.test"), "late.test:443");
    assert_string_equal(allowed_by(s, TIER_WALLED, "late.test"), "");
    end_session(s);
}

/* Much output: the head and the newest stay, the counts are whole, nothing waits for a reader. */
static void much_output(void **state)
{
    (void)state;
    struct session *s = ready_session(false);
    struct command *c = NULL;
    struct err err = {0};
    struct command_spec spec = {.shell = strdup("head -c 60000000 /dev/zero"),
                                .timeout_ms = -1,
                                .kill_grace_ms = 500,
                                .max_output_bytes = 4 << 20};
    assert_int_equal(command_create(s, &spec, &OWNER, &c, &err), 0);
    command_spec_done(&spec);
    command_ref(c);
    json_t *doc = end_of(c), *output = json_object_get(doc, "output");
    assert_string_equal(state_of(doc), "exited");
    assert_int_equal(json_integer_value(json_object_get(output, "stdout_bytes")), 60000000);
    assert_true(json_integer_value(json_object_get(output, "dropped_bytes")) > 50000000);
    json_decref(doc);
    command_unref(c);
    end_session(s);
}

static void idle_clock(void **state)
{
    (void)state;
    struct session *s = ready_session(false);
    struct command *c = NULL;
    struct err err = {0};
    struct command_spec spec = {
        .shell = strdup("for i in 1 2 3 4 5; do echo $i; sleep 0.1; done; sleep 1000"),
        .timeout_ms = -1,
        .idle_timeout_ms = 400,
        .kill_grace_ms = 500,
        .max_output_bytes = -1};
    assert_int_equal(command_create(s, &spec, &OWNER, &c, &err), 0);
    command_spec_done(&spec);
    command_ref(c);
    json_t *doc = end_of(c);
    assert_string_equal(state_of(doc), "timed_out");
    CLEANUP(freep) char *got = output_of(c, SPOOL_STDOUT);
    assert_string_equal(got, "1\n2\n3\n4\n5\n");
    json_decref(doc);
    command_unref(c);
    end_session(s);
}

struct checked {
    bool done;
    json_t *status;
};

static void status_came(json_t *status, void *arg)
{
    struct checked *c = arg;
    c->done = true;
    c->status = status;
}

static void status_and_preview(void **state)
{
    struct checked c = {0};
    struct err err = {0};
    json_t *doc = NULL;
    char *text = NULL;
    (void)state;
    struct session_spec spec = {
        .tier = -1, .network = -1, .require_wall = true, .caller_env = environ};
    assert_int_equal(sessions_policy_preview(w.ss, &spec, NULL, &doc, &text, &err), 0);
    assert_non_null(json_object_get(doc, "readable"));
    json_decref(doc);
    assert_int_equal(sessions_policy_preview(w.ss, &spec, "seccomp", &doc, &text, &err), 0);
    assert_true(strlen(text) > 100);
    free(text);
    need_wall();
    assert_int_equal(sessions_status_check(w.ss, status_came, &c, &err), 0);
    UNTIL(c.done);
    assert_true(json_array_size(json_object_get(c.status, "checks")) >= 8);
    assert_true(json_is_false(json_object_get(c.status, "sessions_refused")));
    json_decref(c.status);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals),
        cmocka_unit_test(basics_direct),
        cmocka_unit_test(input_direct),
        cmocka_unit_test(stop_and_clocks_direct),
        cmocka_unit_test(background_direct),
        cmocka_unit_test(queued_direct),
        cmocka_unit_test(never_ran_direct),
        cmocka_unit_test(files_direct),
        cmocka_unit_test(basics_wall),
        cmocka_unit_test(input_wall),
        cmocka_unit_test(stop_and_clocks_wall),
        cmocka_unit_test(background_wall),
        cmocka_unit_test(queued_wall),
        cmocka_unit_test(never_ran_wall),
        cmocka_unit_test(files_wall),
        cmocka_unit_test(nothing_left),
        cmocka_unit_test(blocked),
        cmocka_unit_test(verified_again),
        cmocka_unit_test(limits_have_codes),
        cmocka_unit_test(wall_dies),
        cmocka_unit_test(egress_dies),
        cmocka_unit_test(own_sites),
        cmocka_unit_test(two_meanings_of_a_name),
        cmocka_unit_test(much_output),
        cmocka_unit_test(idle_clock),
        cmocka_unit_test(status_and_preview),
    };
    return cmocka_run_group_tests(tests, world_up, world_down);
}
