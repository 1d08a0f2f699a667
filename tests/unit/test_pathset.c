/* The most specific entry wins, whatever the order of adding. */
#include "unit.h"

#include "policy/pathset.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

struct row {
    const char *path;
    enum path_access access;
    enum path_kind kind;
};
static const struct row GRANTS[] = {
    {"/w", PATH_WRITE, PATH_FOLDER},         {"/w/keep/", PATH_READ, PATH_FOLDER},
    {"/w/keep/in", PATH_WRITE, PATH_FOLDER}, {"/home/u", PATH_WRITE, PATH_PRIVATE},
    {"/usr", PATH_READ, PATH_SYSTEM},        {"/etc/shadow", PATH_DENY, PATH_PROTECTED},
    {"/etc", PATH_READ, PATH_SYSTEM},
};
enum { N_GRANTS = sizeof GRANTS / sizeof GRANTS[0] };

static void check(const struct pathset *s)
{
    static const struct {
        const char *path;
        enum path_access access;
    } WANT[] = {{"/w", PATH_WRITE},
                {"/w/", PATH_WRITE},
                {"/w/x", PATH_WRITE},
                {"/w/keep", PATH_READ},
                {"/w/keep/", PATH_READ},
                {"/w/keeper", PATH_WRITE},
                {"/w/keep/x/y", PATH_READ},
                {"/w/keep/in", PATH_WRITE},
                {"/w/keep/in/z", PATH_WRITE},
                {"/w/keep/inner", PATH_READ},
                {"/", PATH_DENY},
                {"/wx", PATH_DENY},
                {"/home", PATH_DENY},
                {"/home/u/.ssh", PATH_WRITE},
                {"/etc/passwd", PATH_READ},
                {"/etc/shadow", PATH_DENY},
                {"/etc/shadow/x", PATH_DENY},
                {"/etc/shadow-", PATH_READ},
                {"relative", PATH_DENY},
                {"", PATH_DENY}};
    for (size_t i = 0; i < sizeof WANT / sizeof WANT[0]; i++)
        if (pathset_match(s, WANT[i].path, NULL) != WANT[i].access)
            fail_msg("%s", WANT[i].path);
    for (size_t i = 1; i < s->n; i++) /* parents before children: below a folder all is together */
        assert_string_not_equal(s->items[i - 1].path, s->items[i].path);
}

static void add_all(struct pathset *s, const int *order)
{
    for (size_t i = 0; i < N_GRANTS; i++) {
        const struct row *g = &GRANTS[order[i]];
        assert_int_equal(pathset_add(s, g->path, g->access, g->kind), 0);
    }
}

static void permute(int *order, size_t at, unsigned *n)
{
    if (at == N_GRANTS) {
        struct pathset s = {0};
        add_all(&s, order);
        add_all(&s, order); /* duplicates change nothing */
        assert_int_equal(s.n, N_GRANTS);
        check(&s);
        pathset_done(&s);
        ++*n;
        return;
    }
    for (size_t i = at; i < N_GRANTS; i++) {
        int t = order[at];
        order[at] = order[i];
        order[i] = t;
        permute(order, at + 1, n);
        order[i] = order[at];
        order[at] = t;
    }
}

static void any_order(void **state)
{
    (void)state;
    int order[N_GRANTS];
    unsigned n = 0;
    for (int i = 0; i < N_GRANTS; i++)
        order[i] = i;
    permute(order, 0, &n);
    assert_int_equal(n, 5040);
}

static void sorted_parents_first(void **state)
{
    (void)state;
    static const char *const ADDED[] = {"/a-b", "/a/b", "/a", "/a.b", "/a/b/c", "/", "/a b"};
    static const char *const WANT[] = {"/", "/a", "/a/b", "/a/b/c", "/a b", "/a-b", "/a.b"};
    struct pathset s = {0};
    for (size_t i = 0; i < 7; i++)
        pathset_add(&s, ADDED[i], PATH_READ, PATH_SYSTEM);
    for (size_t i = 0; i < 7; i++)
        assert_string_equal(s.items[i].path, WANT[i]);
    pathset_done(&s);
}

static void same_path_twice(void **state)
{
    (void)state;
    static const struct {
        struct row a, b;
        enum path_access want;
    } PAIRS[] = {
        {{"/w", PATH_WRITE, PATH_FOLDER}, {"/w/", PATH_READ, PATH_FOLDER}, PATH_READ},
        {{"/opt", PATH_READ, PATH_SYSTEM}, {"/opt", PATH_WRITE, PATH_FOLDER}, PATH_WRITE},
        {{"/h", PATH_WRITE, PATH_PRIVATE}, {"/h", PATH_READ, PATH_FOLDER}, PATH_READ},
        {{"/p", PATH_DENY, PATH_PROTECTED}, {"/p", PATH_WRITE, PATH_FOLDER}, PATH_DENY},
    };
    for (size_t i = 0; i < sizeof PAIRS / sizeof PAIRS[0]; i++)
        for (int swap = 0; swap < 2; swap++) {
            struct pathset s = {0};
            const struct row *first = swap ? &PAIRS[i].b : &PAIRS[i].a;
            const struct row *second = swap ? &PAIRS[i].a : &PAIRS[i].b;
            pathset_add(&s, first->path, first->access, first->kind);
            pathset_add(&s, second->path, second->access, second->kind);
            assert_int_equal(s.n, 1);
            assert_int_equal(s.items[0].access, PAIRS[i].want);
            pathset_done(&s);
        }
}

/* A protected place wins over a grant above, at and below it. */
static void protected_wins(void **state)
{
    (void)state;
    struct pathset s = {0};
    const struct path_entry *why;
    pathset_add(&s, "/h/.ssh/keys", PATH_WRITE, PATH_FOLDER);
    pathset_add(&s, "/h/.ssh", PATH_DENY, PATH_PROTECTED);
    pathset_add(&s, "/h", PATH_WRITE, PATH_FOLDER);
    assert_int_equal(pathset_match(&s, "/h/.ssh/keys/id", &why), PATH_DENY);
    assert_string_equal(why->path, "/h/.ssh");
    assert_int_equal(pathset_match(&s, "/h/.ssh2", &why), PATH_WRITE);
    pathset_done(&s);
}

static void bounds(void **state)
{
    (void)state;
    struct pathset s = {0};
    char path[32];
    assert_int_equal(pathset_add(&s, "relative", PATH_READ, PATH_FOLDER), -EINVAL);
    assert_int_equal(pathset_add(&s, NULL, PATH_READ, PATH_FOLDER), -EINVAL);
    for (int i = 0; i < PATHSET_MAX; i++) {
        snprintf(path, sizeof path, "/%d", i);
        assert_int_equal(pathset_add(&s, path, PATH_READ, PATH_FOLDER), 0);
    }
    assert_int_equal(pathset_add(&s, "/more", PATH_READ, PATH_FOLDER), -E2BIG);
    assert_int_equal(pathset_add(&s, "/5", PATH_READ, PATH_FOLDER), 0);
    pathset_done(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order),       cmocka_unit_test(sorted_parents_first),
        cmocka_unit_test(same_path_twice), cmocka_unit_test(protected_wins),
        cmocka_unit_test(bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
