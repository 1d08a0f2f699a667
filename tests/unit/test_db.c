#include "store_unit.h"

#include "base/clock.h"
#include "store/owed.h"
#include "store/settings.h"
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>

static void beside(const struct place *p, const char *end, char ret[static 128])
{
    (void)snprintf(ret, 128, "%s%s", p->path, end);
}

static void modes_whatever_the_umask(void **state)
{
    (void)state;
    struct place p;
    char wal[128];
    place_make(&p);
    mode_t before = umask(0);
    place_open(&p);
    beside(&p, "-wal", wal);
    assert_int_equal(mode_of(p.path), 0600);
    assert_int_equal(mode_of(wal), 0600);
    umask(0777);
    place_close(&p);
    place_open(&p);
    assert_int_equal(mode_of(p.path), 0600);
    assert_int_equal(mode_of(wal), 0600);
    umask(before);
    place_close(&p);
    /* Wrong modes of files that are there are repaired. */
    assert_int_equal(chmod(p.path, 0666), 0);
    int fd = open(wal, O_CREAT | O_RDWR, 0644);
    assert_true(fd >= 0);
    assert_int_equal(fchmod(fd, 0644), 0);
    close(fd);
    place_open(&p);
    assert_int_equal(mode_of(p.path), 0600);
    assert_int_equal(mode_of(wal), 0600);
    place_done(&p);
}

static void refused_with(struct place *p, int r, const char *code, const char *words)
{
    struct err err = {0};
    uint64_t start = clock_now_ms();
    assert_int_equal(db_open(p->path, &p->db, &err), r);
    assert_true(clock_now_ms() - start < 5000);
    assert_string_equal(err.code, code);
    if (!strstr(err.detail, words))
        fail_msg("detail: %s", err.detail);
    assert_true(err.hint[0] != '\0');
    assert_null(p->db);
}

static void strange_things_at_the_path(void **state)
{
    (void)state;
    struct place p;
    char other[128];
    place_make(&p);
    beside(&p, ".other", other);
    assert_int_equal(symlink(other, p.path), 0);
    refused_with(&p, -EINVAL, "store_unusable", "link");
    assert_int_equal(mode_of(other), -ENOENT);
    assert_int_equal(unlink(p.path), 0);
    assert_int_equal(mkfifo(p.path, 0600), 0);
    refused_with(&p, -EINVAL, "store_unusable", "no regular file");
    assert_int_equal(unlink(p.path), 0);
    assert_int_equal(mkdir(p.path, 0700), 0);
    refused_with(&p, -EINVAL, "store_unusable", "no regular file");
    assert_int_equal(rmdir(p.path), 0);
    /* The same beside a good database. */
    place_open(&p);
    place_close(&p);
    beside(&p, "-wal", other);
    assert_int_equal(mkfifo(other, 0600), 0);
    refused_with(&p, -EINVAL, "store_unusable", "-wal");
    assert_int_equal(unlink(other), 0);
    /* A link in a folder above is fine. */
    char link_path[128], through[192];
    (void)snprintf(link_path, sizeof link_path, "%s.link", p.dir);
    assert_int_equal(symlink(p.dir, link_path), 0);
    (void)snprintf(through, sizeof through, "%s/cordon.db", link_path);
    assert_int_equal(db_open(through, &p.db, NULL), 0);
    assert_int_equal(unlink(link_path), 0);
    place_done(&p);
}

static void files_of_others(void **state)
{
    (void)state;
    struct place p;
    place_make(&p);
    FILE *f = fopen(p.path, "w");
    assert_non_null(f);
    for (int i = 0; i < 2000; i++)
        (void)fputs("no database ", f);
    (void)fclose(f);
    refused_with(&p, -EPROTO, "store_unusable", "not a database");
    assert_int_equal(unlink(p.path), 0);
    sql_outside(p.path, "CREATE TABLE theirs (x)");
    refused_with(&p, -EPROTO, "store_unusable", "not a database of Cordon");
    assert_int_equal(unlink(p.path), 0);
    /* Ours, open in another process. */
    place_open(&p);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct db *db;
        _exit(db_open(p.path, &db, NULL) == -EBUSY ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    place_done(&p);
}

/* ---- Schema -----------------------------------------------------------------------------------
 */

#define SQL_FILE(name, text)                                                                       \
    {                                                                                              \
        name, text, sizeof text - 1                                                                \
    }
#define META                                                                                       \
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL);"                            \
    "INSERT INTO meta VALUES ('clean', 1);"
static const struct embedded SCHEMA_1[] = {
    SQL_FILE("001_a.sql", META "CREATE TABLE a (x); INSERT INTO a VALUES (7);"), {0, 0, 0}};
static const struct embedded SCHEMA_3[] = {
    SQL_FILE("001_a.sql", META "CREATE TABLE a (x);"),
    SQL_FILE("002_b.sql", "ALTER TABLE a ADD COLUMN y DEFAULT 1; CREATE TABLE b (z);"),
    SQL_FILE("003_c.sql", "UPDATE a SET y = x + 1;"),
    {0, 0, 0}};
static const struct embedded SCHEMA_BAD[] = {SQL_FILE("001_a.sql", META),
                                             SQL_FILE("002_b.sql", "CREATE TABLE b (z);"),
                                             SQL_FILE("003_c.sql", "UPDATE nothing SET y = 1;"),
                                             {0, 0, 0}};

static void older_is_migrated(void **state)
{
    (void)state;
    struct place p;
    place_make(&p);
    assert_int_equal(db_open_schema(p.path, SCHEMA_1, &p.db, &p.err), 0);
    assert_int_equal(db_version(p.db), 1);
    place_close(&p);
    assert_int_equal(db_open_schema(p.path, SCHEMA_3, &p.db, &p.err), 0);
    assert_int_equal(db_version(p.db), 3);
    place_close(&p);
    sql_outside(p.path, "CREATE TABLE proof (n CHECK (n = 8)); INSERT INTO proof SELECT y FROM a;"
                        "INSERT INTO proof SELECT 8 FROM b");
    place_done(&p);
}

static void newer_is_refused(void **state)
{
    (void)state;
    struct place p;
    place_make(&p);
    assert_int_equal(db_open_schema(p.path, SCHEMA_3, &p.db, &p.err), 0);
    place_close(&p);
    assert_int_equal(db_open_schema(p.path, SCHEMA_1, &p.db, &p.err), -EPROTO);
    assert_string_equal(p.err.code, "store_unusable");
    assert_non_null(strstr(p.err.detail, "schema 3"));
    assert_non_null(strstr(p.err.detail, "up to 1"));
    place_done(&p);
}

static void failed_migration_changes_nothing(void **state)
{
    (void)state;
    struct place p;
    place_make(&p);
    assert_int_equal(db_open_schema(p.path, SCHEMA_1, &p.db, &p.err), 0);
    place_close(&p);
    assert_true(db_open_schema(p.path, SCHEMA_BAD, &p.db, &p.err) < 0);
    assert_non_null(strstr(p.err.detail, "nothing"));
    assert_null(p.db);
    assert_int_equal(db_open_schema(p.path, SCHEMA_1, &p.db, &p.err), 0);
    assert_int_equal(db_version(p.db), 1);
    place_close(&p);
    sql_outside(p.path, "CREATE TABLE b (z)");
    place_done(&p);
}

/* ---- Ends that were not clean ------------------------------------------------------------------
 */

static void broken_file_is_found(void **state)
{
    (void)state;
    struct place p;
    place_make(&p);
    place_open(&p);
    json_t *many = json_object();
    for (int i = 0; i < 2000; i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "key%d", i);
        json_object_set_new(many, key, json_string("0123456789012345678901234567890123456789"));
    }
    int64_t rev;
    assert_int_equal(settings_store(p.db, many, &rev), 0);
    json_decref(many);
    place_close(&p);
    sql_outside(p.path, "UPDATE meta SET value = 0 WHERE key = 'clean'");
    /* Unclean, but whole. */
    place_open(&p);
    place_close(&p);
    sql_outside(p.path, "UPDATE meta SET value = 0 WHERE key = 'clean'");
    /* Rows that the index of the primary key does not know. */
    int fd = open(p.path, O_RDWR);
    struct stat sb;
    assert_int_equal(fstat(fd, &sb), 0);
    char page[4096];
    for (off_t at = 4096; at < sb.st_size; at += 4096) {
        assert_int_equal(pread(fd, page, sizeof page, at), 4096);
        char *where = memmem(page, sizeof page, "key1234", 7);
        if (where)
            assert_int_equal(pwrite(fd, "key9999", 7, at + (where - page)), 7);
    }
    close(fd);
    refused_with(&p, -EUCLEAN, "store_corrupt", "settings");
    place_done(&p);
}

/* ---- A full disk -------------------------------------------------------------------------------
 */

enum { NO_MOUNT = 77 };

/* In a new user namespace a process without a map is nobody, and owns nothing. */
static bool map_self(unsigned uid, unsigned gid)
{
    const char *files[] = {"setgroups", "uid_map", "gid_map"};
    bool ok = true;
    for (int i = 0; i < 3; i++) {
        char path[40];
        (void)snprintf(path, sizeof path, "/proc/self/%s", files[i]);
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        unsigned id = i == 1 ? uid : gid;
        ok = ok && fd >= 0 && (i == 0 ? dprintf(fd, "deny") : dprintf(fd, "%u %u 1", id, id)) > 0;
        close(fd);
    }
    return ok;
}

/* Runs BODY in a child that has a small tmpfs at DIR, in a mount namespace of its own. */
static void on_small_disk(const char *dir, const char *size, void (*body)(const char *dir))
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char options[64];
        (void)snprintf(options, sizeof options, "size=%s", size);
        int flags = geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS;
        unsigned uid = geteuid(), gid = getegid();
        if (unshare(flags) < 0 || ((flags & CLONE_NEWUSER) && !map_self(uid, gid)) ||
            mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("tmpfs", dir, "tmpfs", 0, options) < 0)
            _exit(NO_MOUNT);
        body(dir);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_MOUNT)
        SKIP_UNLESS_MUST("no mount namespace of one's own");
    if (status != 0)
        fail_msg("on the small disk: status %#x", (unsigned)status);
}

static int fill(const char *dir, uint64_t leave)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/filler", dir);
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    static char zeros[4096];
    uint64_t n = 0;
    while (write(fd, zeros, sizeof zeros) == (ssize_t)sizeof zeros)
        n += sizeof zeros;
    if (ftruncate(fd, (off_t)(n > leave ? n - leave : 0)) < 0)
        return -1;
    return fd;
}

static int store_some(struct db *db, int i, size_t len)
{
    char key[16], *text = calloc(1, len + 1);
    int64_t rev;
    memset(text, 'x', len);
    (void)snprintf(key, sizeof key, "k%d", i);
    json_t *change = json_pack("{s:s}", key, text);
    int r = settings_store(db, change, &rev);
    json_decref(change);
    free(text);
    return r;
}

static size_t stored(struct db *db)
{
    json_t *values = NULL;
    int64_t rev;
    if (settings_load(db, &values, &rev) < 0)
        return 9999;
    size_t n = json_object_size(values);
    json_decref(values);
    return n;
}

#define NEED(x)                                                                                    \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            (void)fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);                          \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static void full_disk(const char *dir)
{
    struct place p = {0};
    (void)snprintf(p.path, sizeof p.path, "%s/cordon.db", dir);
    NEED(db_open(p.path, &p.db, NULL) == 0);
    NEED(!db_is_full(p.db));
    NEED(store_some(p.db, 1, 10) == 0 && db_commit(p.db) == 0);
    int filler = fill(dir, 0);
    NEED(filler >= 0);
    NEED(db_is_full(p.db)); /* before anything was lost */
    /* A group is all or nothing: both writes are gone, the commit says so, once. */
    int r = store_some(p.db, 2, 10);
    if (r == 0)
        r = store_some(p.db, 3, 200000);
    if (r == 0)
        r = db_commit(p.db);
    else
        NEED(store_some(p.db, 4, 10) == r && db_commit(p.db) == r);
    NEED(r == -ENOSPC);
    NEED(db_commit(p.db) == 0);
    NEED(db_is_full(p.db));
    NEED(stored(p.db) == 1);
    /* Room again: it finds out by itself. */
    NEED(ftruncate(filler, 0) == 0);
    uint64_t start = clock_now_ms();
    while (db_is_full(p.db) && clock_now_ms() - start < 20000)
        (void)usleep(20000);
    NEED(!db_is_full(p.db));
    NEED(store_some(p.db, 2, 10) == 0 && store_some(p.db, 3, 200000) == 0);
    NEED(db_commit(p.db) == 0 && db_sync(p.db) == 0);
    NEED(stored(p.db) == 3);
    /* Little room: no new work, but what runs is recorded. */
    (void)close(filler);
    filler = fill(dir, 1 << 20);
    NEED(db_is_full(p.db));
    NEED(store_some(p.db, 4, 10) == 0 && db_commit(p.db) == 0);
    (void)close(filler);
    db_close(p.db);
    /* It was a clean end, and everything stands. */
    NEED(db_open(p.path, &p.db, NULL) == 0);
    NEED(stored(p.db) == 4);
    db_close(p.db);
}

static void disk_full(void **state)
{
    (void)state;
    struct place p;
    place_make(&p);
    on_small_disk(p.dir, "12m", full_disk);
    place_done(&p);
}

/* ---- What is owed ------------------------------------------------------------------------------
 */

struct told {
    struct watch watch;
    int n;
};

static void on_rollback(struct watch *w)
{
    ((struct told *)(void *)w)->n++;
}

static void owe(struct db *db, const char *id, const char *state)
{
    json_t *doc = json_pack("{s:s, s:s}", "id", id, "state", state);
    owed_record(db, &(struct record){.kind = RECORD_SESSION,
                                     .id = id,
                                     .state = state,
                                     .tier = "walled",
                                     .text = "",
                                     .doc = doc});
    json_decref(doc);
    owed_audit(db, &(struct audit_entry){.action = "session.ended",
                                         .session_id = id,
                                         .target = state,
                                         .take_after = json_pack("{s:s}", "state", state),
                                         .outcome = OUTCOME_OK});
}

static void has_state(struct db *db, const char *id, const char *state)
{
    json_t *doc = NULL;
    NEED(record_get(db, RECORD_SESSION, id, &doc) == (state ? 0 : -ENOENT));
    NEED(!state || strcmp(json_string_value(json_object_get(doc, "state")), state) == 0);
    json_decref(doc);
}

static size_t audit_rows(struct db *db)
{
    json_t *rows = NULL;
    int64_t next;
    struct audit_verify v = {0};
    NEED(audit_list(db, &(struct audit_query){0}, &rows, &next) == 0);
    size_t n = json_array_size(rows);
    json_decref(rows);
    while (audit_verify_step(db, &v, 10) > 0)
        ;
    NEED(v.ok);
    return n;
}

static void soon(struct db *db, const char *target)
{
    owed_audit_soon(db, &(struct audit_entry){.action = "connection.closed",
                                              .target = target,
                                              .outcome = OUTCOME_OK});
}

static const char *target_of(const json_t *rows, size_t i)
{
    return json_string_value(json_object_get(json_array_get(rows, i), "target"));
}

static void what_may_wait_keeps_its_place(void **state)
{
    (void)state;
    struct place p;
    json_t *rows = NULL;
    int64_t next;
    place_make(&p);
    NEED(db_open(p.path, &p.db, NULL) == 0);
    NEED(db_commit_due(p.db) == UINT64_MAX);
    soon(p.db, "1");
    NEED(owed_count(p.db) == 1 && db_commit_due(p.db) <= OWED_WAIT_MS);
    NEED(audit_rows(p.db) == 0);
    NEED(db_commit(p.db) == 0 && owed_count(p.db) == 0);
    NEED(audit_rows(p.db) == 1 && db_commit_due(p.db) == UINT64_MAX);
    /* Before a row that comes after it, whoever writes that one; into a group that is open. */
    soon(p.db, "2");
    soon(p.db, "3");
    NEED(audit_add(p.db, &(struct audit_entry){
                             .action = "site.added", .target = "4", .outcome = OUTCOME_OK}) == 0);
    soon(p.db, "5");
    NEED(db_commit_due(p.db) == 0);
    NEED(db_commit(p.db) == 0 && owed_count(p.db) == 0);
    soon(p.db, "6");
    owed_audit(p.db, &(struct audit_entry){
                         .action = "session.ended", .target = "7", .outcome = OUTCOME_OK});
    NEED(db_commit(p.db) == 0);
    soon(p.db, "8");
    owed_write(p.db);
    NEED(db_commit(p.db) == 0);
    soon(p.db, "9");
    db_close(p.db);
    NEED(db_open(p.path, &p.db, NULL) == 0);
    NEED(audit_rows(p.db) == 9);
    NEED(audit_list(p.db, &(struct audit_query){0}, &rows, &next) == 0);
    for (size_t i = 0; i < 9; i++)
        NEED(target_of(rows, i)[0] == (char)('9' - i));
    json_decref(rows);
    place_done(&p);
}

static void owed_on_a_full_disk(const char *dir)
{
    struct place p = {0};
    struct told told = {.watch.changed = on_rollback};
    (void)snprintf(p.path, sizeof p.path, "%s/cordon.db", dir);
    NEED(db_open(p.path, &p.db, NULL) == 0);
    watch_add(db_rolled_back(p.db), &told.watch);
    owe(p.db, "ses_1", "ready");
    NEED(owed_count(p.db) == 2); /* until the commit */
    NEED(db_commit(p.db) == 0 && owed_count(p.db) == 0 && audit_rows(p.db) == 1);
    int filler = fill(dir, 0);
    NEED(filler >= 0);
    /* It is in the group of a request that cannot be written. */
    owe(p.db, "ses_1", "ended");
    int r = store_some(p.db, 3, 200000);
    int commit = db_commit(p.db);
    NEED(commit == -ENOSPC && (r == 0 || r == commit) && told.n == 1 && owed_count(p.db) == 2 &&
         stored(p.db) == 0);
    has_state(p.db, "ses_1", "ended"); /* it is, whatever the table has */
    /* More of it, while nothing can be written; the latest of one id counts. */
    owe(p.db, "ses_2", "ready");
    owe(p.db, "ses_2", "ended");
    NEED(owed_count(p.db) == 5);
    owed_write(p.db);
    (void)db_commit(p.db);
    NEED(owed_count(p.db) == 5 && db_is_full(p.db));
    for (int i = 0; i < OWED_MAX + 10; i++)
        owed_audit(p.db, &(struct audit_entry){.action = "site.blocked", .outcome = OUTCOME_OK});
    NEED(owed_count(p.db) == OWED_MAX);
    NEED(ftruncate(filler, 0) == 0);
    uint64_t start = clock_now_ms();
    while (owed_count(p.db) > 0 && clock_now_ms() - start < 20000) {
        owed_write(p.db);
        NEED(db_commit(p.db) == 0);
        (void)usleep(20000);
    }
    NEED(owed_count(p.db) == 0 && told.n == 1);
    has_state(p.db, "ses_1", "ended");
    has_state(p.db, "ses_2", "ended");
    NEED(audit_rows(p.db) == 50);
    /* The close writes what is still owed. */
    NEED(ftruncate(filler, 0) == 0);
    (void)close(filler);
    filler = fill(dir, 0);
    owe(p.db, "ses_3", "ended");
    NEED(store_some(p.db, 5, 100000) < 0 || db_commit(p.db) < 0);
    (void)db_commit(p.db);
    NEED(ftruncate(filler, 0) == 0);
    (void)usleep(250000); /* it tries again every 200 ms */
    watch_remove(&told.watch);
    db_close(p.db);
    NEED(db_open(p.path, &p.db, NULL) == 0);
    has_state(p.db, "ses_3", "ended");
    NEED(audit_rows(p.db) == 50);
    db_close(p.db);
}

static void owed_is_written_again(void **state)
{
    (void)state;
    struct place p;
    place_make(&p);
    on_small_disk(p.dir, "24m", owed_on_a_full_disk);
    place_done(&p);
}

/* ---- kill -9 ----------------------------------------------------------------------------------
 */

static void killed_writer(void **state)
{
    (void)state;
    struct place p;
    place_make(&p);
    unsigned seed = (unsigned)getpid();
    size_t before = 0;
    /* Twenty kills, and more where a slow machine has stored nothing yet. */
    for (int round = 0; round < 20 || (before == 0 && round < 400); round++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            if (db_open(p.path, &p.db, NULL) < 0)
                _exit(1);
            for (int i = 0;; i++) {
                if (store_some(p.db, round * 100000 + i, 300) < 0)
                    _exit(2);
                if (i % 7 == 6 && db_commit(p.db) < 0)
                    _exit(3);
            }
        }
        (void)usleep(5000 + (useconds_t)rand_r(&seed) % 30000);
        assert_int_equal(kill(child, SIGKILL), 0);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        place_open(&p); /* with its integrity_check */
        size_t now = stored(p.db);
        assert_true(now >= before);
        before = now;
        /* No marker of a clean end: the next round's child looks as well. */
        place_close(&p);
    }
    assert_true(before > 0);
    place_done(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modes_whatever_the_umask),
        cmocka_unit_test(strange_things_at_the_path),
        cmocka_unit_test(files_of_others),
        cmocka_unit_test(older_is_migrated),
        cmocka_unit_test(newer_is_refused),
        cmocka_unit_test(failed_migration_changes_nothing),
        cmocka_unit_test(broken_file_is_found),
        cmocka_unit_test(disk_full),
        cmocka_unit_test(what_may_wait_keeps_its_place),
        cmocka_unit_test(owed_is_written_again),
        cmocka_unit_test(killed_writer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
