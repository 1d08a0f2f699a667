/* Asks on real sessions: connections that are held (the policy is guarded's), who waits and leaves,
 * `once` as one request, denials, time, and the ends of sessions and egresses. Names below
 * .invalid are never resolved (RFC 6761, 6.4): allowed is 502 there, refused 403. */
#include "base/fields.h"
#include "session/ask_parts.h"
#include "session/asks.h"
#include "session_unit.h"
#include "store/owed.h"
#include "wire/msg.h"

#define CONNECT(host)                                                                              \
    "exec 3<>/dev/tcp/127.0.0.1/7410; printf 'CONNECT " host " HTTP/1.1\r\nHost: x\r\n\r\n' >&3; "
/* The status, and the body's second line. */
#define STATUS "read -r line <&3; echo ${line:9:3}"

static struct session *guarded_session(void)
{
    need_wall();
    struct session *s = ready_session(true);
    s->tier = s->now->policy.tier = TIER_GUARDED;
    return s;
}

static struct session *walled_session(void)
{
    need_wall();
    return ready_session(true);
}

static const char *first_ask(struct session *s)
{
    assert_non_null(s->asks.first);
    return s->asks.first->id;
}

static int decide(const char *id, enum ask_answer answer, struct err *err)
{
    struct ask_decision d = {.answer = answer};
    json_t *ask = NULL, *decided = NULL;
    char copy[ID_MAX]; /* the ask is gone in here */
    (void)snprintf(copy, sizeof copy, "%s", id);
    int r = ask_decide(w.ss, copy, &d, &OWNER, &ask, &decided, err);
    json_decref(ask);
    json_decref(decided);
    return r;
}

static char *state_of_ask(const char *id)
{
    static char state[20];
    json_t *ask = NULL;
    bool is_open;
    assert_int_equal(ask_show(w.ss, id, &ask, &is_open), 0);
    (void)snprintf(state, sizeof state, "%s", json_string_value(json_object_get(ask, "state")));
    assert_int_equal(is_open, strcmp(state, "open") == 0);
    json_decref(ask);
    return state;
}

static void expect_output(struct command *c, const char *want)
{
    json_t *doc = end_of(c);
    CLEANUP(freep) char *got = output_of(c, SPOOL_STDOUT);
    assert_string_equal(state_of(doc), "exited");
    assert_string_equal(got, want);
    json_decref(doc);
    command_unref(c);
}

static void held_until_answered(void **state)
{
    static const enum ask_answer ANSWERS[] = {ANSWER_SESSION, ANSWER_ALWAYS, ANSWER_ONCE,
                                              ANSWER_DENY};
    static const char *const WANT[] = {"502\n", "502\n", "502\n", "403\n"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ANSWERS); i++) {
        struct session *s = guarded_session();
        struct err err = {0};
        struct command *c = start_shell(s, CONNECT("held.invalid:443") STATUS, false);
        UNTIL(s->asks.n_held == 1);
        assert_int_equal(s->asks.n_open, 1);
        assert_string_equal(s->asks.first->evidence.command_id, command_id(c));
        assert_false(command_is_ended(c)); /* it waits */
        assert_int_equal(decide(first_ask(s), ANSWERS[i], &err), 0);
        expect_output(c, WANT[i]);
        assert_int_equal(s->asks.n_held + s->asks.n_open, 0);
        end_session(s);
        if (ANSWERS[i] != ANSWER_ALWAYS)
            continue;
        /* T13: 443 is one of the two that no port means. */
        struct site row;
        assert_int_equal(site_find(w.db, SITES_GUARDED, NULL, "held.invalid", 0, &row), 0);
        assert_string_equal(row.source, "ask");
        assert_int_equal(site_delete(w.db, row.id), 0);
        sessions_sites_changed(w.ss);
    }
}

/* The oldest goes; the other waits in a new ask, and a deny is remembered. */
static void once_is_one_request(void **state)
{
    struct session *s = guarded_session();
    struct err err = {0};
    (void)state;
    struct command *one = start_shell(s, CONNECT("one.invalid:443") STATUS, false);
    UNTIL(s->asks.n_held == 1);
    struct command *two = start_shell(s, CONNECT("one.invalid:443") STATUS, false);
    UNTIL(s->asks.n_held == 2);
    assert_int_equal(s->asks.n_open, 1);
    assert_int_equal(s->asks.first->evidence.count, 2);
    char id[ID_MAX];
    memcpy(id, first_ask(s), sizeof id);
    assert_int_equal(decide(id, ANSWER_ONCE, &err), 0);
    expect_output(one, "502\n");
    assert_int_equal(s->asks.n_open, 1);
    assert_int_equal(s->asks.n_held, 1);
    assert_string_not_equal(first_ask(s), id);
    assert_string_equal(state_of_ask(id), "decided");
    assert_int_equal(decide(id, ANSWER_DENY, &err), -ESTALE);
    assert_string_equal(err.code, "ask_closed");
    assert_int_equal(decide(first_ask(s), ANSWER_DENY, &err), 0);
    expect_output(two, "403\n");
    struct command *three = start_shell(
        s, CONNECT("one.invalid:443") "cat <&3 | grep -q 'denied by a person' && echo 1", false);
    expect_output(three, "1\n");
    assert_int_equal(s->asks.n_open, 0);
    end_session(s);
}

static void a_client_that_leaves(void **state)
{
    struct session *s = guarded_session();
    struct err err = {0};
    (void)state;
    struct command *c = start_shell(s, CONNECT("left.invalid:443") "sleep 0.2", false);
    UNTIL(s->asks.n_held == 1);
    UNTIL(s->asks.n_held == 0); /* its process ended */
    assert_int_equal(s->asks.n_open, 1);
    assert_int_equal(decide(first_ask(s), ANSWER_ONCE, &err), -EINVAL);
    assert_string_equal(err.code, "answer_not_offered");
    json_t *doc = end_of(c);
    json_decref(doc);
    command_unref(c);
    assert_int_equal(decide(first_ask(s), ANSWER_SESSION, &err), 0);
    c = start_shell(s, CONNECT("left.invalid:443") STATUS, false);
    expect_output(c, "502\n");
    /* One that ends its sending side alone reads why. */
    c = start_shell(s,
                    "/usr/bin/python3 -c 'import socket\n"
                    "s=socket.create_connection((\"127.0.0.1\",7410))\n"
                    "s.sendall(b\"CONNECT half.invalid:443 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n\")\n"
                    "s.shutdown(1)\nprint(s.makefile().read().count(\"ended its side\"))'",
                    false);
    expect_output(c, "1\n");
    assert_int_equal(s->asks.n_held, 0);
    assert_int_equal(s->asks.n_open, 1);
    end_session(s);
}

static void set(const char *text)
{
    const char *confirm = NULL;
    json_t *patch = json_loads(text, 0, NULL), *changed = NULL;
    struct field_errors errors = {0};
    struct err err = {0};
    assert_int_equal(
        settings_patch(w.settings, patch, false, NULL, &confirm, &changed, &errors, &err), 0);
    json_decref(changed);
    json_decref(patch);
}

static void nobody_answers(void **state)
{
    struct session *s = guarded_session();
    (void)state;
    set("{\"asks\":{\"expiry_ms\":1000}}");
    struct command *c = start_shell(
        s, CONNECT("late.invalid:443") "cat <&3 | grep -q 'nobody answered' && echo 1", false);
    UNTIL(s->asks.n_open == 1);
    char id[ID_MAX];
    memcpy(id, first_ask(s), sizeof id);
    expect_output(c, "1\n");
    assert_string_equal(state_of_ask(id), "expired");
    set("{\"asks\":{\"expiry_ms\":null}}");
    c = start_shell(s, CONNECT("late.invalid:443") STATUS, false);
    UNTIL(s->asks.n_held == 1); /* asked again */
    /* Learning: what waits is refused, and the next is refused at once. */
    set("{\"asks\":{\"learn\":true}}");
    expect_output(c, "403\n");
    c = start_shell(s, CONNECT("late.invalid:443") STATUS, false);
    expect_output(c, "403\n");
    set("{\"asks\":{\"learn\":null}}");
    assert_int_equal(s->asks.n_open, 0);
    /* The same with full access, and for somebody who is not there. */
    c = start_shell(s, CONNECT("late.invalid:443") STATUS, false);
    UNTIL(s->asks.n_held == 1);
    assert_int_equal(session_set_approvals(s, APPROVALS_FULL, &OWNER), 0);
    expect_output(c, "403\n");
    assert_int_equal(session_set_approvals(s, APPROVALS_AUTO, &OWNER), 0);
    s->unattended = true;
    c = start_shell(s, CONNECT("late.invalid:443") STATUS, false);
    expect_output(c, "403\n");
    end_session(s);
}

static void allowed_elsewhere(void **state)
{
    struct session *s = guarded_session();
    struct site row;
    struct err err = {0};
    (void)state;
    struct command *c = start_shell(s, CONNECT("else.invalid:443") STATUS, false);
    UNTIL(s->asks.n_held == 1);
    char id[ID_MAX];
    memcpy(id, first_ask(s), sizeof id);
    assert_int_equal(session_site_add(s, "other.invalid", 443, false, &OWNER, &row, &err), 0);
    assert_int_equal(s->asks.n_held, 1);
    assert_int_equal(session_site_add(s, "*.invalid", 443, false, &OWNER, &row, &err), 0);
    expect_output(c, "502\n");
    assert_string_equal(state_of_ask(id), "superseded");
    end_session(s);
}

static void what_ends_meanwhile(void **state)
{
    struct session *s = guarded_session();
    (void)state;
    struct command *c =
        start_shell(s, CONNECT("end.invalid:443") "read -r line <&3; echo gone", false);
    UNTIL(s->asks.n_held == 1);
    char id[ID_MAX];
    memcpy(id, first_ask(s), sizeof id);
    assert_int_equal(kill(egress_link_pid(s->now->egress), SIGKILL), 0);
    UNTIL(s->asks.n_held == 0);
    expect_output(c, "gone\n");
    assert_string_equal(state_of_ask(id), "open"); /* answerable, for the next */
    UNTIL(s->now->way_out == WAY_READY);
    c = start_shell(s, CONNECT("end.invalid:443") STATUS, false);
    UNTIL(s->asks.n_held == 1);
    assert_string_equal(first_ask(s), id);
    session_stop(s, 0, "test", &OWNER);
    UNTIL(session_state(s) == SESSION_ENDED);
    assert_string_equal(state_of_ask(id), "cancelled");
    assert_int_equal(s->asks.n_held + s->asks.n_open, 0);
    command_unref(c);
    session_unref(s);
}

/* ---- Waits without a connection: the agent's own web calls ------------------------------------
 */

struct call {
    struct ask_wait wait;
    unsigned n;
    uint8_t verdict;
    const char *reason;
};

static void over(struct ask_wait *wait, const struct verdict_out *v)
{
    struct call *c = container_of(wait, struct call, wait);
    assert_null(wait->ask);
    c->n++;
    c->verdict = v->verdict;
    c->reason = v->reason;
}

static uint8_t hold(struct session *s, const char *host, struct call *c)
{
    struct verdict_out v;
    const struct host_entry *why;
    *c = (struct call){.wait.over = over};
    site_judge(s, s->tier, s->network, ASKER_WEB_FETCH, host, 443, &v, &why);
    if (v.verdict == EG_HOLD)
        ask_hold(s, ASKER_WEB_FETCH, host, 443, &c->wait, &v);
    return v.verdict;
}

static void a_caller_that_comes_back(void **state)
{
    struct session *s = walled_session(); /* holds them too */
    struct verdict_out v;
    struct err err = {0};
    struct call c;
    char id[ID_MAX];
    (void)state;
    assert_int_equal(hold(s, "web.invalid", &c), EG_HOLD);
    memcpy(id, c.wait.ask_id, sizeof id);
    ask_leave(&c.wait, true); /* 202 */
    assert_int_equal(ask_use(s, id, "web.invalid", 443, &v), 0);
    assert_int_equal(v.verdict, EG_HOLD);
    assert_int_equal(ask_use(s, id, "web.invalid", 80, &v), -ENOENT);
    assert_int_equal(ask_use(s, id, "other.invalid", 443, &v), -ENOENT);
    assert_int_equal(ask_use(s, "ask_1", "web.invalid", 443, &v), -ENOENT);
    assert_int_equal(decide(id, ANSWER_ONCE, &err), 0);
    assert_int_equal(ask_use(s, id, "other.invalid", 443, &v), -ENOENT);
    assert_int_equal(ask_use(s, id, "web.invalid", 443, &v), 0);
    assert_int_equal(v.verdict, EG_ALLOW);
    assert_string_equal(v.reason, "once");
    assert_int_equal(ask_use(s, id, "web.invalid", 443, &v), 0);
    assert_int_equal(v.verdict, EG_HOLD); /* it was spent */
    assert_int_equal(c.n, 0);
    /* One that gave up leaves no `once` behind. */
    assert_int_equal(hold(s, "web.invalid", &c), EG_HOLD);
    ask_leave(&c.wait, false);
    assert_int_equal(decide(c.wait.ask_id, ANSWER_ONCE, &err), -EINVAL);
    assert_int_equal(decide(c.wait.ask_id, ANSWER_SESSION, &err), 0);
    assert_int_equal(ask_use(s, c.wait.ask_id, "web.invalid", 443, &v), 0);
    assert_int_equal(v.verdict, EG_ALLOW);
    end_session(s);
}

static void as_many_as_may(void **state)
{
    struct session *s = walled_session();
    struct call calls[ASKS_HELD_MAX + 1];
    struct err err = {0};
    char host[40];
    (void)state;
    for (size_t i = 0; i < ASKS_HELD_MAX; i++)
        assert_int_equal(hold(s, "many.invalid", &calls[i]), EG_HOLD);
    assert_int_equal(hold(s, "many.invalid", &calls[ASKS_HELD_MAX]), EG_DENY);
    assert_int_equal(s->asks.n_open, 1);
    assert_int_equal(decide(first_ask(s), ANSWER_SESSION, &err), 0);
    for (size_t i = 0; i < ASKS_HELD_MAX; i++) {
        assert_int_equal(calls[i].n, 1);
        assert_int_equal(calls[i].verdict, EG_ALLOW);
    }
    assert_int_equal(s->asks.n_held, 0);
    for (size_t i = 0; i < ASKS_OPEN_MAX; i++) {
        (void)snprintf(host, sizeof host, "h%zu.invalid", i);
        assert_int_equal(hold(s, host, &calls[i]), EG_HOLD);
    }
    assert_int_equal(hold(s, "more.invalid", &calls[ASKS_OPEN_MAX]), EG_DENY);
    end_session(s); /* all are told */
    for (size_t i = 0; i < ASKS_OPEN_MAX; i++)
        assert_int_equal(calls[i].verdict, EG_DENY);
}

/* What was open when the daemon died is cancelled at the next start. */
static void a_daemon_that_died(void **state)
{
    struct session *s = walled_session();
    struct call c;
    (void)state;
    assert_int_equal(hold(s, "died.invalid", &c), EG_HOLD);
    json_t *doc = NULL, *items = NULL;
    char id[ID_MAX];
    bool more;
    memcpy(id, first_ask(s), sizeof id);
    assert_int_equal(db_commit(w.db), 0);
    owed_write(w.db);
    assert_true(record_mark_lost(w.db, NULL, NULL) >= 2);
    assert_int_equal(record_get(w.db, RECORD_ASK, id, &doc), 0);
    assert_string_equal(json_string_value(json_object_get(doc, "state")), "cancelled");
    assert_int_equal(json_array_size(json_object_get(doc, "answers")), 0);
    json_decref(doc);
    struct record_query q = {.kind = RECORD_ASK, .session_id = s->id, .state = "cancelled"};
    assert_int_equal(record_list(w.db, &q, &items, &more), 0);
    assert_int_equal(json_array_size(items), 1);
    json_decref(items);
    end_session(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(held_until_answered),      cmocka_unit_test(once_is_one_request),
        cmocka_unit_test(a_client_that_leaves),     cmocka_unit_test(nobody_answers),
        cmocka_unit_test(allowed_elsewhere),        cmocka_unit_test(what_ends_meanwhile),
        cmocka_unit_test(a_caller_that_comes_back), cmocka_unit_test(as_many_as_may),
        cmocka_unit_test(a_daemon_that_died),
    };
    return cmocka_run_group_tests(tests, world_up, world_down);
}
