/* Which hosts a set lets through, at every boundary; how typed entries become rules. */
#include "unit.h"

#include "policy/hostset.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static void add_typed(struct hostset *set, const char *text, enum covers bare)
{
    char host[HOST_MAX], suggestion[HOST_RULE_TEXT_MAX];
    struct host_rule rule;
    struct err err = {0};
    bool wide;
    if (host_rule_parse(text, bare, host, &rule, &wide, suggestion, &err) < 0)
        fail_msg("%s: %s", text, err.detail);
    assert_int_equal(hostset_add(set, &rule, &err), 0);
}

static bool allows(const char *rule, enum covers bare, const char *host, uint16_t port)
{
    struct hostset *set = hostset_new();
    const struct host_entry *why;
    add_typed(set, rule, bare);
    enum verdict v = hostset_match(set, host, port, &why);
    assert_true((v == VERDICT_ALLOW) == (why != NULL));
    hostset_free(set);
    return v == VERDICT_ALLOW;
}

/* Case 56: only the host, or whole labels below it. */
static void label_boundaries(void **state)
{
    (void)state;
    static const char *const NEVER[] = {
        "notok.test", "ok.test.no.test", ".ok.test",    "ok.testx", "-ok.test",
        "ok.tes",     "*.ok.test",       "test",        "",         "ok.test.",
        "OK.test",    "ok test",         "ok.test:443", "ok..test"};
    for (size_t i = 0; i < sizeof NEVER / sizeof NEVER[0]; i++) {
        assert_false(allows("ok.test", COVERS_HOST, NEVER[i], 443));
        assert_false(allows("ok.test", COVERS_HOST_AND_SUBDOMAINS, NEVER[i], 443));
        assert_false(allows("*.ok.test", COVERS_HOST, NEVER[i], 443));
    }
    assert_true(allows("ok.test", COVERS_HOST, "ok.test", 443));
    assert_false(allows("ok.test", COVERS_HOST, "a.ok.test", 443));
    assert_true(allows("ok.test", COVERS_HOST_AND_SUBDOMAINS, "ok.test", 443));
    assert_true(allows("ok.test", COVERS_HOST_AND_SUBDOMAINS, "a.b.ok.test", 443));
    assert_true(allows("*.ok.test", COVERS_HOST, "a.ok.test", 443));
    assert_true(allows("*.ok.test", COVERS_HOST, "a.b.ok.test", 80));
    assert_false(allows("*.ok.test", COVERS_HOST, "ok.test", 443));
}

static void ports(void **state)
{
    (void)state;
    assert_true(allows("ok.test", COVERS_HOST, "ok.test", 80));
    assert_false(allows("ok.test", COVERS_HOST, "ok.test", 8080));
    assert_false(allows("ok.test", COVERS_HOST, "ok.test", 0));
    assert_true(allows("ok.test:22", COVERS_HOST, "ok.test", 22));
    assert_false(allows("ok.test:22", COVERS_HOST, "ok.test", 443));
    assert_false(allows("ok.test:443", COVERS_HOST, "ok.test", 80));
    assert_true(allows("*:65535", COVERS_HOST, "any.test", 65535));
    assert_false(allows("*:65535", COVERS_HOST, "any.test", 443));
}

static void addresses(void **state)
{
    (void)state;
    assert_true(allows("203.0.113.7", COVERS_HOST_AND_SUBDOMAINS, "203.0.113.7", 443));
    assert_false(allows("203.0.113.7", COVERS_HOST_AND_SUBDOMAINS, "9.203.0.113.7", 443));
    assert_false(allows("203.0.113.7", COVERS_HOST, "203.0.113.70", 443));
    assert_true(allows("[2001:db8::1]:8443", COVERS_HOST, "2001:db8::1", 8443));
    assert_true(allows("[2001:DB8:0::1]", COVERS_HOST, "2001:db8::1", 443));
    assert_true(allows("*", COVERS_HOST, "203.0.113.7", 443));
    assert_false(allows("*", COVERS_HOST, "0x7f.1", 443));
}

static void most_specific_decides(void **state)
{
    (void)state;
    struct hostset *set = hostset_new();
    const struct host_entry *why;
    add_typed(set, "*", COVERS_HOST);
    add_typed(set, "*.test", COVERS_HOST);
    add_typed(set, "*.ok.test", COVERS_HOST);
    add_typed(set, "a.ok.test", COVERS_HOST);
    add_typed(set, "a.ok.test:443", COVERS_HOST);
    static const char *const WANT[][2] = {{"a.ok.test", "a.ok.test:443"},
                                          {"b.ok.test", "*.ok.test"},
                                          {"ok.test", "*.test"},
                                          {"no.example", "*"}};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(hostset_match(set, WANT[i][0], 443, &why), VERDICT_ALLOW);
        assert_string_equal(why->text, WANT[i][1]);
    }
    assert_int_equal(hostset_match(set, "a.ok.test", 80, &why), VERDICT_ALLOW);
    assert_string_equal(why->text, "a.ok.test");
    struct host_rule lan = {.host = "a.ok.test", .port = 443, .allow_private = true, .id = "sit_1"};
    assert_int_equal(hostset_add(set, &lan, NULL), 0);
    hostset_match(set, "a.ok.test", 443, &why);
    assert_true(why->rule.allow_private);
    assert_string_equal(why->rule.id, "sit_1");
    hostset_free(set);
}

static void bad_rules(void **state)
{
    (void)state;
    struct hostset *set = hostset_new();
    static const struct host_rule BAD[] = {{.host = NULL},
                                           {.host = "Ok.test"},
                                           {.host = "ok.test."},
                                           {.host = ""},
                                           {.host = "203.0.113.7", .covers = COVERS_SUBDOMAINS}};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        struct err err = {0};
        assert_int_equal(hostset_add(set, &BAD[i], &err), -EINVAL);
        assert_string_equal(err.code, "site_invalid");
    }
    assert_int_equal(hostset_count(set), 0);
    assert_int_equal(hostset_match(set, "ok.test", 443, NULL), VERDICT_DENY);
    assert_int_equal(hostset_match(NULL, "ok.test", 443, NULL), VERDICT_DENY);
    assert_int_equal(hostset_match(set, NULL, 443, NULL), VERDICT_DENY);
    hostset_free(set);
}

/* Case 49: the spelling people use is taken and normalised, or refused with the accepted form. */
static void typed_taken(void **state)
{
    (void)state;
    static const struct {
        const char *typed, *text;
        bool wide;
    } ROWS[] = {{"EXAMPLE.com:443", "example.com:443", false},
                {"example.com.", "example.com", false},
                {"*.Example.com", "*.example.com", false},
                {"m\xc3\xbcnchen.example", "xn--mnchen-3ya.example", false},
                {"xn--mnchen-3ya.example:8080", "xn--mnchen-3ya.example:8080", false},
                {"[::1]:80", "[::1]:80", false},
                {"127.0.0.1:5432", "127.0.0.1:5432", false},
                {"localhost:5000", "localhost:5000", false},
                {"a_b.example", "a_b.example", false},
                {"*", "*", true},
                {"*:22", "*:22", true},
                {"*.com", "*.com", true},
                {"*.co.uk", "*.co.uk", true},
                {"*.kawasaki.jp", "*.kawasaki.jp", true},
                {"*.internal", "*.internal", true},
                {"*.github.io", "*.github.io", false}, /* the private part of the list */
                {"com", "com", false}};
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        char host[HOST_MAX], suggestion[HOST_RULE_TEXT_MAX], text[HOST_RULE_TEXT_MAX];
        struct host_rule rule;
        struct err err = {0};
        bool wide;
        if (host_rule_parse(ROWS[i].typed, COVERS_HOST, host, &rule, &wide, suggestion, &err) < 0)
            fail_msg("%s: %s", ROWS[i].typed, err.detail);
        host_rule_text(&rule, text);
        assert_string_equal(text, ROWS[i].text);
        assert_int_equal(wide, ROWS[i].wide);
        assert_string_equal(suggestion, "");
        struct hostset *set = hostset_new();
        assert_int_equal(hostset_add(set, &rule, NULL), 0);
        assert_string_equal(hostset_at(set, 0)->text, ROWS[i].text);
        hostset_free(set);
    }
    char host[HOST_MAX], suggestion[HOST_RULE_TEXT_MAX];
    struct host_rule rule;
    bool wide;
    assert_int_equal(
        host_rule_parse("com", COVERS_HOST_AND_SUBDOMAINS, host, &rule, &wide, suggestion, NULL),
        0);
    assert_true(wide); /* a bare name with subdomains is a wildcard as well */
}

static void typed_refused(void **state)
{
    (void)state;
    char long_name[301];
    memset(long_name, 'a', 300);
    long_name[300] = '\0';
    const struct {
        const char *typed, *suggestion;
    } ROWS[] = {{"", ""},
                {".example.com", "*.example.com"},
                {"https://example.com/", "example.com:443"},
                {"http://example.com", "example.com:80"},
                {"http://u@example.com:8443/p", "example.com:8443"},
                {"ssh://git@example.com/r.git", "example.com:22"},
                {"example.com/", "example.com"},
                {"example.com:*", "example.com"},
                {"example.com:0443", "example.com:443"},
                {"example.com:+443", "example.com:443"},
                {"example.com:443 ", "example.com:443"},
                {" example.com", "example.com"},
                {"example.com:65979", "example.com"},
                {"example.com:0", "example.com"},
                {"example.com:", "example.com"},
                {"exa mple", ""},
                {"a..b", ""},
                {long_name, ""},
                {"::1", "[::1]"},
                {"2001:db8::1", "[2001:db8::1]"},
                {"127.1", "127.0.0.1"},
                {"0x7f.1", "127.0.0.1"},
                {"017.0.0.1", "15.0.0.1"},
                {"2130706433", "127.0.0.1"},
                {"[example.com]:443", ""},
                {"[203.0.113.7]", ""},
                {"*.203.0.113.7", ""},
                {"*example.com", ""},
                {"a.*.com", ""},
                {"**", ""},
                {"*.*.example.com", ""},
                {"ex\tample.com", ""},
                {"example.com\n", "example.com"},
                {"user@example.com", "example.com"},
                {"example.com#x", "example.com"},
                {"example.com%00.no.test", ""},
                {"example\\.com", "example"},
                {"\xff\xfe.example", ""}};
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        char host[HOST_MAX], suggestion[HOST_RULE_TEXT_MAX];
        struct host_rule rule;
        struct err err = {0};
        bool wide;
        int r = host_rule_parse(ROWS[i].typed, COVERS_HOST, host, &rule, &wide, suggestion, &err);
        if (r != -EINVAL)
            fail_msg("taken: %s", ROWS[i].typed);
        assert_string_equal(err.code, "site_invalid");
        if (strcmp(suggestion, ROWS[i].suggestion) != 0)
            fail_msg("%s: suggests \"%s\"", ROWS[i].typed, suggestion);
        assert_null(strchr(err.detail, '\n'));
        assert_true((suggestion[0] == '\0') == (err.hint[0] == '\0'));
    }
}

static struct host_rule typed_rule(const char *text, enum covers bare, char host[static HOST_MAX])
{
    char suggestion[HOST_RULE_TEXT_MAX];
    struct host_rule rule = {0};
    bool wide;
    assert_int_equal(host_rule_parse(text, bare, host, &rule, &wide, suggestion, NULL), 0);
    return rule;
}

/* What allows all that an entry allows: never more is claimed than the matcher gives. */
static void covered(void **state)
{
    (void)state;
    static const struct {
        const char *over;
        enum covers over_bare;
        const char *entry;
        enum covers bare;
        bool is_covered;
    } ROWS[] = {
        {"a.test", COVERS_HOST, "a.test", COVERS_HOST, true},
        {"a.test", COVERS_HOST, "a.test:443", COVERS_HOST, true},
        {"a.test", COVERS_HOST, "a.test:80", COVERS_HOST, true},
        {"a.test", COVERS_HOST, "a.test:22", COVERS_HOST, false},
        {"a.test:443", COVERS_HOST, "a.test", COVERS_HOST, false}, /* 80 is more */
        {"a.test", COVERS_HOST, "b.a.test", COVERS_HOST, false},
        {"a.test", COVERS_HOST, "a.test", COVERS_HOST_AND_SUBDOMAINS, false},
        {"a.test", COVERS_HOST_AND_SUBDOMAINS, "a.test", COVERS_HOST, true},
        {"a.test", COVERS_HOST_AND_SUBDOMAINS, "*.a.test", COVERS_HOST, true},
        {"a.test", COVERS_HOST_AND_SUBDOMAINS, "c.b.a.test", COVERS_HOST_AND_SUBDOMAINS, true},
        {"*.a.test", COVERS_HOST, "a.test", COVERS_HOST, false},
        {"*.a.test", COVERS_HOST, "a.test", COVERS_HOST_AND_SUBDOMAINS, false},
        {"*.a.test", COVERS_HOST, "b.a.test", COVERS_HOST_AND_SUBDOMAINS, true},
        {"*.a.test", COVERS_HOST, "*.a.test:443", COVERS_HOST, true},
        {"*.a.test", COVERS_HOST, "*.b.a.test", COVERS_HOST, true},
        {"*.b.a.test", COVERS_HOST, "*.a.test", COVERS_HOST, false},
        {"*.a.test", COVERS_HOST, "nota.test", COVERS_HOST, false},
        {"*", COVERS_HOST, "*.a.test", COVERS_HOST, true},
        {"*", COVERS_HOST, "*", COVERS_HOST, true},
        {"*:443", COVERS_HOST, "*", COVERS_HOST, false},
        {"a.test", COVERS_HOST_AND_SUBDOMAINS, "*", COVERS_HOST, false},
        {"*", COVERS_HOST, "[2001:db8::1]", COVERS_HOST, true},
        {"[2001:db8::1]", COVERS_HOST, "[2001:db8:0::1]:443", COVERS_HOST, true},
        {"203.0.113.7", COVERS_HOST_AND_SUBDOMAINS, "203.0.113.7", COVERS_HOST, true},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        struct hostset *set = hostset_new();
        char room[HOST_MAX];
        struct host_rule rule = typed_rule(ROWS[i].entry, ROWS[i].bare, room);
        add_typed(set, ROWS[i].over, ROWS[i].over_bare);
        if ((hostset_covers(set, &rule) != NULL) != ROWS[i].is_covered)
            fail_msg("%s over %s", ROWS[i].over, ROWS[i].entry);
        rule.allow_private = true;
        assert_null(hostset_covers(set, &rule)); /* a private network is more */
        hostset_free(set);
    }
    assert_null(hostset_covers(NULL, &(struct host_rule){.host = "a.test"}));
}

/* Two sets of one session: the more specific entry decides, in whichever it stands. */
static void the_better_of_two_sets(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        bool is_a;
    } ROWS[] = {{"x.ok.test", "*.ok.test", true}, {"*.ok.test", "x.ok.test", false},
                {"*.test", "*.ok.test", false},   {"*", "*.test", false},
                {"x.ok.test", "x.ok.test", true}, {"x.ok.test", "x.ok.test:443", false}};
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        struct hostset *a = hostset_new(), *b = hostset_new();
        const struct host_entry *of_a, *of_b;
        add_typed(a, ROWS[i].a, COVERS_HOST);
        add_typed(b, ROWS[i].b, COVERS_HOST);
        (void)hostset_match(a, "x.ok.test", 443, &of_a);
        (void)hostset_match(b, "x.ok.test", 443, &of_b);
        assert_ptr_equal(host_entry_better(of_a, of_b), ROWS[i].is_a ? of_a : of_b);
        assert_ptr_equal(host_entry_better(of_a, NULL), of_a);
        assert_ptr_equal(host_entry_better(NULL, of_b), of_b);
        hostset_free(a);
        hostset_free(b);
    }
    assert_null(host_entry_better(NULL, NULL));
}

/* What a list keeps comes back as the same rule, addresses too. */
static void kept(void **state)
{
    (void)state;
    static const struct {
        const char *typed, *kept;
        enum covers covers;
        enum host_reach reach;
    } ROWS[] = {
        {"a.test", "a.test", COVERS_HOST_AND_SUBDOMAINS, REACH_ORDINARY},
        {"*.a.test", "*.a.test", COVERS_SUBDOMAINS, REACH_ORDINARY},
        {"*", "*", COVERS_ANY, REACH_ORDINARY},
        {"203.0.113.7", "203.0.113.7", COVERS_HOST, REACH_ORDINARY},
        {"[2001:db8::10]", "2001:db8::10", COVERS_HOST, REACH_ORDINARY},
        {"10.1.2.3", "10.1.2.3", COVERS_HOST, REACH_PRIVATE},
        {"[fd12::1]", "fd12::1", COVERS_HOST, REACH_PRIVATE},
        {"localhost", "localhost", COVERS_HOST_AND_SUBDOMAINS, REACH_LOOPBACK},
        {"127.0.0.9", "127.0.0.9", COVERS_HOST, REACH_LOOPBACK},
        {"[::1]", "::1", COVERS_HOST, REACH_LOOPBACK},
        {"169.254.169.254", "169.254.169.254", COVERS_HOST, REACH_NEVER},
        {"[fe80::1]", "fe80::1", COVERS_HOST, REACH_NEVER},
        {"0.0.0.0", "0.0.0.0", COVERS_HOST, REACH_NEVER},
        {"100.64.0.1", "100.64.0.1", COVERS_HOST, REACH_NEVER},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        char room[HOST_MAX], text[HOST_RULE_TEXT_MAX], again[HOST_RULE_TEXT_MAX];
        struct hostset *set = hostset_new();
        struct host_rule rule = typed_rule(ROWS[i].typed, COVERS_HOST_AND_SUBDOMAINS, room),
                         back = {0};
        assert_int_equal(host_rule_reach(&rule), ROWS[i].reach);
        host_rule_kept(ROWS[i].kept, COVERS_HOST_AND_SUBDOMAINS, &back);
        host_rule_text(&rule, text);
        host_rule_text(&back, again);
        assert_string_equal(again, text);
        assert_int_equal(back.covers, ROWS[i].covers);
        assert_int_equal(hostset_add(set, &back, NULL), 0);
        hostset_free(set);
    }
}

static void ten_thousand(void **state)
{
    (void)state;
    struct hostset *set = hostset_new();
    struct timespec a, b;
    enum { ROUNDS = 200000 };
    for (int i = 0; i < 10000; i++) {
        char host[64];
        snprintf(host, sizeof host, "host-%d.region-%d.example.com", i, i % 7);
        struct host_rule rule = {
            .host = host, .port = i % 2 ? 443 : 0, .covers = (enum covers)(i % 3)};
        assert_int_equal(hostset_add(set, &rule, NULL), 0);
    }
    assert_int_equal(hostset_count(set), 10000);
    clock_gettime(CLOCK_MONOTONIC, &a);
    size_t allowed = 0;
    for (int i = 0; i < ROUNDS; i++)
        allowed +=
            hostset_match(set,
                          i % 2 ? "a.b.host-7777.region-0.example.com" : "no.such.host.example.net",
                          443, NULL) == VERDICT_ALLOW;
    clock_gettime(CLOCK_MONOTONIC, &b);
    double us =
        ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / 1e3 / ROUNDS;
    print_message("%.3f us a look-up among 10,000\n", us);
    assert_int_equal(allowed, ROUNDS / 2);
    assert_true(us < 20); /* a bound that holds under sanitizers; tests/bench measures */
    for (int i = 10000; i < HOSTSET_MAX; i++) {
        char host[64];
        snprintf(host, sizeof host, "h%d.example.com", i);
        assert_int_equal(hostset_add(set, &(struct host_rule){.host = host}, NULL), 0);
    }
    struct err err = {0};
    assert_int_equal(hostset_add(set, &(struct host_rule){.host = "one.more"}, &err), -E2BIG);
    assert_string_equal(err.code, "too_many");
    hostset_free(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(label_boundaries),
        cmocka_unit_test(ports),
        cmocka_unit_test(addresses),
        cmocka_unit_test(most_specific_decides),
        cmocka_unit_test(bad_rules),
        cmocka_unit_test(typed_taken),
        cmocka_unit_test(typed_refused),
        cmocka_unit_test(covered),
        cmocka_unit_test(the_better_of_two_sets),
        cmocka_unit_test(kept),
        cmocka_unit_test(ten_thousand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
