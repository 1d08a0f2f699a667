#include "store_unit.h"

#include "base/clock.h"
#include "base/hash.h"
#include "store/audit.h"
#include "store/canonical.h"
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

/* What an optimised build must reach on a quiet machine: asserted with CORDON_LONG, else shown. */
#define ROWS_A_SECOND 40000
#define PAGE_US       1000

static const struct actor AGENT = {ACTOR_AGENT, "tok_01JAGENT", -1};
static const struct actor OWNER = {ACTOR_OWNER, "", 1000};

static int add(struct db *db, const char *action, const char *session, const char *target)
{
    json_t *enforcement = json_pack("{s:s, s:s, s:s}", "provider", "bubblewrap", "tier", "walled",
                                    "level", "files+network");
    int r = audit_add(db, &(struct audit_entry){.actor = &AGENT,
                                                .action = action,
                                                .session_id = session,
                                                .target = target,
                                                .take_after = json_pack("{s:i, s:s}", "exit_code",
                                                                        0, "state", "exited"),
                                                .outcome = OUTCOME_OK,
                                                .enforcement = enforcement});
    json_decref(enforcement);
    return r;
}

static void fill(struct db *db, int n)
{
    for (int i = 0; i < n; i++)
        assert_int_equal(add(db, "command.started", "ses_1", "true"), 0);
    assert_int_equal(db_commit(db), 0);
}

static struct audit_verify verify(struct db *db)
{
    struct audit_verify v = {0};
    int r;
    while ((r = audit_verify_step(db, &v, 7)) > 0)
        ;
    assert_int_equal(r, 0);
    return v;
}

static void ok_rows(struct db *db, int64_t rows)
{
    struct audit_verify v = verify(db);
    if (!v.ok)
        fail_msg("broken at %lld", (long long)v.broken_at);
    assert_true(v.rows == rows && v.broken_at == 0);
}

static json_t *list(struct db *db, struct audit_query q, int64_t *ret_next)
{
    json_t *items = NULL;
    int64_t next;
    assert_int_equal(audit_list(db, &q, &items, &next), 0);
    if (ret_next)
        *ret_next = next;
    return items;
}

static size_t count(struct db *db, struct audit_query q)
{
    json_t *items = list(db, q, NULL);
    size_t n = json_array_size(items);
    json_decref(items);
    return n;
}

static const char *text_of(const json_t *row, const char *member)
{
    return json_string_value(json_object_get(row, member));
}

/* ---- Rows --------------------------------------------------------------------------------------
 */

static void a_row_as_it_is_shown(void **state)
{
    struct place *p = *state;
    json_t *enforcement = json_pack("{s:s}", "level", "none");
    assert_int_equal(
        audit_add(p->db, &(struct audit_entry){.actor = &OWNER,
                                               .action = "settings.changed",
                                               .target = "a\x01\"\\\n\xc3\xa9",
                                               .take_before = json_pack("{s:b}", "x", 1),
                                               .take_after = json_pack("{s:n}", "x"),
                                               .outcome = OUTCOME_REFUSED,
                                               .enforcement = enforcement}),
        0);
    json_decref(enforcement);
    assert_int_equal(audit_add(p->db, &(struct audit_entry){.action = "auth.failed",
                                                            .target = "\xff\xfe bad",
                                                            .outcome = OUTCOME_ERROR}),
                     0);
    assert_int_equal(db_commit(p->db), 0);
    json_t *items = list(p->db, (struct audit_query){0}, NULL);
    assert_int_equal(json_array_size(items), 2);
    json_t *row = json_array_get(items, 1), *second = json_array_get(items, 0);
    assert_int_equal(json_integer_value(json_object_get(row, "seq")), 1);
    assert_true(id_is(text_of(row, "id"), "aud"));
    int64_t at;
    assert_int_equal(clock_parse(text_of(row, "at"), &at), 0);
    assert_true(clock_wall_ms() - at < 5000);
    const char *kind;
    int uid;
    assert_int_equal(json_unpack(row, "{s:{s:s, s:i}}", "actor", "kind", &kind, "peer_uid", &uid),
                     0);
    assert_string_equal(kind, "owner");
    assert_int_equal(uid, 1000);
    assert_null(json_object_get(json_object_get(row, "actor"), "id"));
    assert_string_equal(text_of(row, "target"), "a\x01\"\\\n\xc3\xa9");
    assert_string_equal(text_of(row, "outcome"), "refused");
    assert_true(json_is_true(json_object_get(json_object_get(row, "before"), "x")));
    assert_true(json_is_null(json_object_get(json_object_get(row, "after"), "x")));
    assert_null(json_object_get(row, "session_id"));
    assert_string_equal(text_of(row, "prev_hash"),
                        "0000000000000000000000000000000000000000000000000000000000000000");
    assert_string_equal(text_of(second, "prev_hash"), text_of(row, "hash"));
    assert_string_equal(text_of(second, "target"), "\\xff\\xfe bad");
    assert_string_equal(text_of(json_object_get(second, "actor"), "kind"), "daemon");
    /* Anybody can compute the hash again from what the API shows. */
    struct str text = {0};
    char hash[HASH_TEXT_MAX], *want = strdup(text_of(row, "hash"));
    assert_int_equal(json_object_del(row, "hash"), 0);
    assert_int_equal(str_puts(&text, text_of(row, "prev_hash")), 0);
    assert_int_equal(canonical_add(&text, row), 0);
    hash_sha256_hex(text.data, text.len, hash);
    assert_string_equal(hash, want);
    free(want);
    str_done(&text);
    json_decref(items);
    ok_rows(p->db, 2);
}

static void bounds_of_a_row(void **state)
{
    struct place *p = *state;
    char *big = malloc(100001);
    memset(big, 'x', 100000);
    big[100000] = '\0';
    memcpy(big + AUDIT_TARGET_MAX - 1, "\xc3\xa9", 2); /* the cut falls into a character */
    assert_int_equal(
        audit_add(p->db, &(struct audit_entry){.action = "file.read",
                                               .target = big,
                                               .take_after = json_pack("{s:s}", "x", big),
                                               .outcome = OUTCOME_OK}),
        0);
    free(big);
    json_t *items = list(p->db, (struct audit_query){0}, NULL), *row = json_array_get(items, 0);
    assert_int_equal(strlen(text_of(row, "target")), AUDIT_TARGET_MAX - 1);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(row, "after"), "too_large")), 100008);
    json_decref(items);
    ok_rows(p->db, 1);
}

/* ---- The chain ---------------------------------------------------------------------------------
 */

static void chain_over_restarts(void **state)
{
    struct place *p = *state;
    ok_rows(p->db, 0);
    fill(p->db, 10);
    ok_rows(p->db, 10);
    place_close(p);
    place_open(p);
    fill(p->db, 5);
    ok_rows(p->db, 15);
    /* Uncommitted rows count as well. */
    assert_int_equal(add(p->db, "x", NULL, NULL), 0);
    ok_rows(p->db, 16);
}

static void edits_are_found_where_they_are(void **state)
{
    static const struct {
        const char *sql;
        int64_t broken_at;
    } EDITS[] = {
        {"UPDATE audit SET target = 'false' WHERE seq = 5", 5},
        {"UPDATE audit SET target_key = 5 WHERE seq = 5", 5},
        {"UPDATE audit SET outcome = 2 WHERE seq = 1", 1},
        {"UPDATE audit SET outcome = 77 WHERE seq = 2", 2},
        {"UPDATE audit SET actor_kind = -3 WHERE seq = 2", 2},
        {"UPDATE audit SET at = at + 1 WHERE seq = 20", 20},
        {"UPDATE audit SET id = 'aud_x' WHERE seq = 6", 6},
        {"UPDATE audit SET actor_id = NULL WHERE seq = 6", 6},
        {"UPDATE audit SET peer_uid = 0 WHERE seq = 6", 6},
        {"UPDATE audit SET action = 'x' WHERE seq = 6", 6},
        {"UPDATE audit SET session_id = 'ses_2' WHERE seq = 6", 6},
        {"UPDATE audit SET command_id = 'c' WHERE seq = 6", 6},
        {"UPDATE audit SET before = '1' WHERE seq = 6", 6},
        {"UPDATE audit SET after = after || ' ' WHERE seq = 6", 6},
        {"UPDATE audit SET after = 'no json' WHERE seq = 6", 6},
        {"UPDATE audit SET enforcement = NULL WHERE seq = 6", 6},
        {"UPDATE audit SET hash = zeroblob(32) WHERE seq = 6", 6},
        {"UPDATE audit SET hash = x'00' WHERE seq = 6", 6},
        {"UPDATE audit SET prev_hash = zeroblob(32) WHERE seq = 6", 6},
        {"DELETE FROM audit WHERE seq = 7", 7},
        {"DELETE FROM audit WHERE seq = 1", 1},
        {"DELETE FROM audit WHERE seq = 20", 20},
        {"DELETE FROM audit WHERE seq > 15", 16},
        {"DELETE FROM audit", 1},
        {"UPDATE audit SET seq = 100 WHERE seq = 8", 8},
        {"INSERT INTO audit SELECT 21, id, at, actor_kind, actor_id, peer_uid, action, session_id,"
         " command_id, target, before, after, outcome, enforcement, prev_hash, hash, target_key"
         " FROM audit WHERE seq = 20",
         21},
    };
    (void)state;
    for (size_t i = 0; i < sizeof EDITS / sizeof EDITS[0]; i++) {
        struct place p;
        place_make(&p);
        place_open(&p);
        fill(p.db, 20);
        place_close(&p);
        sql_outside(p.path, EDITS[i].sql);
        place_open(&p);
        struct audit_verify v = verify(p.db);
        if (v.ok || v.broken_at != EDITS[i].broken_at)
            fail_msg("%s: ok=%d broken_at=%lld", EDITS[i].sql, v.ok, (long long)v.broken_at);
        /* Lists go on, and what was broken stays broken when more is written. */
        (void)count(p.db, (struct audit_query){.limit = 500});
        if (EDITS[i].broken_at <= 20) {
            fill(p.db, 3);
            v = verify(p.db);
            assert_true(!v.ok && v.broken_at <= 21 && v.broken_at >= 1);
        }
        place_done(&p);
    }
}

static void retention_keeps_the_hash(void **state)
{
    struct place *p = *state;
    fill(p->db, 20);
    int64_t future = clock_wall_ms() + 1000;
    assert_int_equal(audit_retain(p->db, 0, 100), 0);
    assert_int_equal(audit_retain(p->db, future, 6), 6);
    assert_int_equal(db_commit(p->db), 0);
    ok_rows(p->db, 14);
    assert_int_equal(count(p->db, (struct audit_query){.limit = 500}), 14);
    place_close(p);
    /* The first one left, and the one after it, changed. */
    sql_outside(p->path, "UPDATE audit SET target = 'x' WHERE seq = 7");
    place_open(p);
    assert_true(verify(p->db).broken_at == 7);
    /* Between two slices of a check: no harm. */
    struct audit_verify v = {0};
    assert_int_equal(audit_retain(p->db, future, 1), 1);
    assert_int_equal(audit_verify_step(p->db, &v, 3), 1);
    assert_int_equal(audit_retain(p->db, future, 5), 5);
    fill(p->db, 2);
    while (audit_verify_step(p->db, &v, 3) > 0)
        ;
    assert_true(v.ok);
    /* All of it; then on. */
    assert_int_equal(audit_retain(p->db, future, 1000), 10);
    ok_rows(p->db, 0);
    place_close(p);
    place_open(p);
    fill(p->db, 2);
    ok_rows(p->db, 2);
    json_t *items = list(p->db, (struct audit_query){0}, NULL);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(items, 0), "seq")), 24);
    json_decref(items);
}

static void killed_writers_leave_a_whole_chain(void **state)
{
    (void)state;
    struct place p;
    place_make(&p);
    unsigned seed = (unsigned)getpid();
    int64_t before = 0;
    for (int round = 0; round < 15; round++) {
        int written[2];
        char byte;
        assert_int_equal(pipe(written), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            if (db_open(p.path, &p.db, NULL) < 0)
                _exit(1);
            for (int i = 0;; i++)
                if (add(p.db, "command.ended", "ses_1", "x") < 0 ||
                    (i % 9 == 8 && db_commit(p.db) < 0) || (i == 8 && write(written[1], "", 1) < 0))
                    _exit(2);
        }
        close(written[1]);
        assert_int_equal(read(written[0], &byte, 1), 1);
        close(written[0]);
        (void)usleep((useconds_t)rand_r(&seed) % 30000);
        assert_int_equal(kill(child, SIGKILL), 0);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        place_open(&p);
        struct audit_verify v = verify(p.db);
        assert_true(v.ok && v.rows >= before + 9);
        before = v.rows;
        place_close(&p);
    }
    place_done(&p);
}

/* ---- Lists --------------------------------------------------------------------------------------
 */

static void pages_and_filters(void **state)
{
    struct place *p = *state;
    for (int i = 0; i < 100; i++) {
        struct actor actor = {i % 5 == 0 ? ACTOR_OWNER : ACTOR_AGENT, "", -1};
        if (i % 5 != 0)
            (void)snprintf(actor.id, sizeof actor.id, "tok_%d", i % 3);
        char session[16], target[16];
        (void)snprintf(session, sizeof session, "ses_%d", i % 4);
        (void)snprintf(target, sizeof target, "t%d", i % 10);
        assert_int_equal(
            audit_add(p->db, &(struct audit_entry){.actor = &actor,
                                                   .action = i % 2 ? "file.read" : "file.written",
                                                   .session_id = session,
                                                   .target = target,
                                                   .outcome = (enum outcome)(i % 3)}),
            0);
    }
    assert_int_equal(count(p->db, (struct audit_query){.limit = 500}), 100);
    assert_int_equal(count(p->db, (struct audit_query){0}), 50);
    assert_int_equal(count(p->db, (struct audit_query){.session = "ses_1"}), 25);
    assert_int_equal(count(p->db, (struct audit_query){.actor = "owner"}), 20);
    assert_int_equal(count(p->db, (struct audit_query){.actor = "agent", .limit = 99}), 80);
    assert_int_equal(count(p->db, (struct audit_query){.actor = "tok_1"}), 27);
    assert_int_equal(count(p->db, (struct audit_query){.action = "file.read"}), 50);
    assert_int_equal(count(p->db, (struct audit_query){.outcome = "ok"}), 33);
    assert_int_equal(count(p->db, (struct audit_query){.target = "t3"}), 10);
    assert_int_equal(count(p->db, (struct audit_query){.session = "ses_1", .action = "file.read"}),
                     25);
    assert_int_equal(count(p->db, (struct audit_query){.session = "ses_1", .outcome = "ok"}), 9);
    assert_int_equal(count(p->db, (struct audit_query){.session = "ses_9"}), 0);
    assert_int_equal(count(p->db, (struct audit_query){.target = "t3", .actor = "owner"}), 0);
    json_t *items = NULL;
    int64_t next;
    assert_int_equal(audit_list(p->db, &(struct audit_query){.outcome = "maybe"}, &items, &next),
                     -EINVAL);
    /* Every row once, newest first, whatever the size of a page; exact ends have no next. */
    for (unsigned limit = 1; limit <= 26; limit++) {
        struct audit_query q = {.session = "ses_2", .limit = limit};
        int64_t last = 1000, pages = 0;
        size_t n = 0;
        do {
            items = list(p->db, q, &next);
            size_t i;
            json_t *row;
            json_array_foreach(items, i, row)
            {
                int64_t seq = json_integer_value(json_object_get(row, "seq"));
                assert_true(seq < last);
                last = seq;
                n++;
            }
            json_decref(items);
            q.before_seq = next;
            pages++;
        } while (next);
        assert_int_equal(n, 25);
        assert_int_equal(pages, (25 + limit - 1) / limit);
    }
}

static void set_at(const char *path, int64_t first, int64_t n, int64_t at, int64_t step)
{
    char sql[200];
    (void)snprintf(
        sql, sizeof sql,
        "UPDATE audit SET at = %lld + (seq - %lld) * %lld WHERE seq >= %lld AND seq < %lld",
        (long long)at, (long long)first, (long long)step, (long long)first, (long long)(first + n));
    sql_outside(path, sql);
}

/* Times that grow, then a clock set back by a day, then small steps back: each window has exactly
 * the rows that a look at all of them gives. */
static void times_with_the_clock_set_back(void **state)
{
    struct place *p = *state;
    int64_t base = 1700000000000;
    fill(p->db, 300);
    place_close(p);
    set_at(p->path, 1, 100, base, 1000);
    set_at(p->path, 101, 100, base - 86400000, 1000);
    set_at(p->path, 201, 100, base - 86400000 + 99000, 0);
    sql_outside(p->path, "UPDATE audit SET at = at + seq * 7 % 10 WHERE seq > 200");
    sql_outside(p->path, "INSERT INTO audit_runs VALUES (101)");
    place_open(p);
    json_t *all = list(p->db, (struct audit_query){.limit = 500}, NULL);
    unsigned seed = 7;
    for (int i = 0; i < 300; i++) {
        int64_t a = base - (i % 2) * 86400000 + rand_r(&seed) % 120000 - 10000;
        int64_t b = i % 5 == 0 ? base + 50000 : a + rand_r(&seed) % 60000;
        struct audit_query q = {.since = i % 7 ? a : 0, .until = i % 3 ? b : 0, .limit = 500};
        size_t want = 0, k;
        json_t *row;
        json_array_foreach(all, k, row)
        {
            int64_t at;
            assert_int_equal(clock_parse(text_of(row, "at"), &at), 0);
            want += (!q.since || at >= q.since) && (!q.until || at <= q.until);
        }
        assert_int_equal(count(p->db, q), want);
    }
    json_decref(all);
}

/* A rare target among many, pages of each size, with bounds that fall into blocks of the index. */
static void targets_far_apart(void **state)
{
    struct place *p = *state;
    enum { ROWS = 13000, EACH = 701 };
    for (int i = 1; i <= ROWS; i++)
        assert_int_equal(add(p->db, "x", i % 2 ? "ses_1" : "ses_2", i % EACH ? "usual" : "rare"),
                         0);
    assert_int_equal(db_commit(p->db), 0);
    for (unsigned limit = 1; limit <= 20; limit++) {
        struct audit_query q = {.target = "rare", .limit = limit};
        int64_t want = ROWS / EACH * EACH;
        do {
            json_t *items = list(p->db, q, &q.before_seq), *row;
            size_t i;
            json_array_foreach(items, i, row)
            {
                assert_int_equal(json_integer_value(json_object_get(row, "seq")), want);
                want -= EACH;
            }
            assert_true(json_array_size(items) == limit || q.before_seq == 0);
            json_decref(items);
        } while (q.before_seq);
        assert_int_equal(want, 0);
    }
    assert_int_equal(count(p->db, (struct audit_query){.target = "rare", .session = "ses_1"}), 9);
    assert_int_equal(count(p->db, (struct audit_query){.target = "rare", .before_seq = 4096}), 5);
    assert_int_equal(count(p->db, (struct audit_query){.target = "none"}), 0);
    assert_int_equal(audit_retain(p->db, clock_wall_ms() + 1000, 5000), 5000);
    assert_int_equal(count(p->db, (struct audit_query){.target = "rare"}), 11);
    ok_rows(p->db, ROWS - 5000);
}

static int64_t now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static int64_t cpu_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void page_within(struct db *db, const char *what, struct audit_query q)
{
    int64_t best = INT64_MAX;
    size_t n = 0;
    for (int i = 0; i < 5; i++) {
        int64_t start = now_us(), next;
        json_t *items = list(db, q, &next);
        int64_t took = now_us() - start;
        n = json_array_size(items);
        json_decref(items);
        best = took < best ? took : best;
    }
    print_message("a page, %s: %zu rows in %lld us\n", what, n, (long long)best);
    if (getenv("CORDON_LONG"))
        assert_true(best <= PAGE_US);
}

static void speed(void **state)
{
    struct place *p = *state;
    bool is_long = getenv("CORDON_LONG") != NULL;
    int n = is_long ? 1000000 : 20000;
    int64_t start = now_us(), cpu = cpu_us(), writing;
    json_t *enforcement =
        json_pack("{s:s, s:s, s:s, s:s}", "provider", "bubblewrap", "tier", "walled", "level",
                  "files+network", "verified_at", "2026-12-01T09:30:00.120Z");
    for (int i = 0; i < n; i++) {
        char session[32], command[32], target[32];
        (void)snprintf(session, sizeof session, "ses_01JABCDEFGH%015d", i / 500);
        (void)snprintf(command, sizeof command, "cmd_01JABCDEFGH%015d", i / 2);
        (void)snprintf(target, sizeof target, "make target-%d", i % 1000);
        assert_int_equal(
            audit_add(p->db,
                      &(struct audit_entry){.actor = i % 10 ? &AGENT : &OWNER,
                                            .action = i % 2 ? "command.ended" : "command.started",
                                            .session_id = session,
                                            .command_id = command,
                                            .target = target,
                                            .outcome = i % 50 ? OUTCOME_OK : OUTCOME_REFUSED,
                                            .enforcement = enforcement}),
            0);
        if (i % 100 == 99)
            assert_int_equal(db_commit(p->db), 0);
    }
    assert_int_equal(db_commit(p->db), 0);
    assert_int_equal(db_sync(p->db), 0);
    json_decref(enforcement);
    writing = now_us() - start;
    /* Judged by the time it worked: other tests run beside it. */
    int64_t rate = (int64_t)n * 1000000 / writing,
            rate_alone = (int64_t)n * 1000000 / (cpu_us() - cpu);
    print_message("%d rows in groups of 100: %lld a second, %lld by its own time\n", n,
                  (long long)rate, (long long)rate_alone);
    if (is_long)
        assert_true(rate_alone >= ROWS_A_SECOND);
    char session[32];
    (void)snprintf(session, sizeof session, "ses_01JABCDEFGH%015d", n / 1000);
    int64_t now = clock_wall_ms();
    page_within(p->db, "newest", (struct audit_query){0});
    page_within(p->db, "middle", (struct audit_query){.before_seq = n / 2});
    page_within(p->db, "session", (struct audit_query){.session = session});
    page_within(p->db, "actor", (struct audit_query){.actor = "owner"});
    page_within(p->db, "action",
                (struct audit_query){.action = "command.ended", .before_seq = n / 2});
    page_within(p->db, "outcome", (struct audit_query){.outcome = "refused"});
    page_within(p->db, "no outcome", (struct audit_query){.outcome = "error"});
    page_within(p->db, "target", (struct audit_query){.target = "make target-7"});
    page_within(p->db, "until", (struct audit_query){.until = now - writing / 2000});
    page_within(p->db, "since, until",
                (struct audit_query){.since = now - writing / 1500, .until = now - writing / 2000});
    start = now_us();
    struct audit_verify v = {0};
    int64_t longest = 0, from = start;
    while (audit_verify_step(p->db, &v, 500) > 0) {
        int64_t took = now_us() - from;
        longest = took > longest ? took : longest;
        from = now_us();
    }
    assert_true(v.ok && v.rows == n);
    print_message("verified in %lld ms, the longest slice of 500 took %lld us\n",
                  (long long)(now_us() - start) / 1000, (long long)longest);
    start = now_us();
    assert_int_equal(audit_retain(p->db, now + 1000, 1000), 1000);
    assert_int_equal(db_commit(p->db), 0);
    print_message("cut 1,000 in %lld us\n", (long long)(now_us() - start));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, db_setup, db_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_row_as_it_is_shown),     TEST(bounds_of_a_row),
        TEST(chain_over_restarts),      cmocka_unit_test(edits_are_found_where_they_are),
        TEST(retention_keeps_the_hash), cmocka_unit_test(killed_writers_leave_a_whole_chain),
        TEST(pages_and_filters),        TEST(times_with_the_clock_set_back),
        TEST(targets_far_apart),        TEST(speed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
