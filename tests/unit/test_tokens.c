#include "store_unit.h"

#include "base/clock.h"
#include "store/tokens.h"

static int make(struct db *db, enum token_kind kind, const char *name, unsigned scopes,
                const char *session, int64_t expires_at, struct token *ret, char *text)
{
    struct token t = {.kind = kind, .scopes = scopes, .expires_at = expires_at};
    (void)snprintf(t.name, sizeof t.name, "%s", name);
    (void)snprintf(t.session_id, sizeof t.session_id, "%s", session);
    int r = token_new(db, &t, text);
    if (ret)
        *ret = t;
    return r;
}

static bool folder_has(const struct place *p, const char *what)
{
    static const char *const END[] = {"", "-wal"};
    static char bytes[8 << 20];
    for (size_t i = 0; i < 2; i++) {
        char path[128];
        (void)snprintf(path, sizeof path, "%s%s", p->path, END[i]);
        FILE *f = fopen(path, "rb");
        size_t n = f ? fread(bytes, 1, sizeof bytes, f) : 0;
        if (f)
            (void)fclose(f);
        assert_true(n < sizeof bytes);
        if (memmem(bytes, n, what, strlen(what)))
            return true;
    }
    return false;
}

static void only_a_hash_is_kept(void **state)
{
    struct place *p = *state;
    struct token made, got;
    char text[TOKEN_TEXT_MAX];
    assert_int_equal(
        make(p->db, TOKEN_API, "my token", SCOPE_READ | SCOPE_ADMIN, "", 0, &made, text), 0);
    assert_int_equal(db_commit(p->db), 0);
    assert_int_equal(strncmp(text, "cordon_", 7), 0);
    assert_int_equal(strlen(text), 50);
    assert_true(id_is(made.id, "tok"));
    assert_true(folder_has(p, "my token")); /* the look itself */
    assert_false(folder_has(p, text + 7));
    assert_false(folder_has(p, text));
    assert_int_equal(token_find(p->db, text, &got), 0);
    assert_string_equal(got.id, made.id);
    assert_string_equal(got.name, "my token");
    assert_int_equal(got.scopes, SCOPE_READ | SCOPE_ADMIN);
    assert_true(got.created_at > 0 && got.expires_at == 0);
    json_t *json = token_to_json(&got);
    char *shown = json_dumps(json, JSON_COMPACT);
    assert_null(strstr(shown, text + 7));
    free(shown);
    json_decref(json);
    /* Nothing but exactly it. */
    char other[TOKEN_TEXT_MAX + 8];
    for (size_t i = 0; i < strlen(text); i++) {
        (void)snprintf(other, sizeof other, "%s", text);
        other[i] = other[i] == 'A' ? 'B' : 'A';
        assert_int_equal(token_find(p->db, other, &got), -ENOENT);
    }
    (void)snprintf(other, sizeof other, "%s ", text);
    assert_int_equal(token_find(p->db, other, &got), -ENOENT);
    (void)snprintf(other, sizeof other, "%.49s", text);
    assert_int_equal(token_find(p->db, other, &got), -ENOENT);
    assert_int_equal(token_find(p->db, text + 7, &got), -ENOENT);
    assert_int_equal(token_find(p->db, "", &got), -ENOENT);
    place_close(p);
    place_open(p);
    assert_int_equal(token_find(p->db, text, &got), 0);
    assert_int_equal(token_delete(p->db, made.id), 0);
    assert_int_equal(token_find(p->db, text, &got), -ENOENT);
    assert_int_equal(token_get(p->db, made.id, &got), -ENOENT);
    assert_int_equal(token_delete(p->db, made.id), -ENOENT);
}

/* An agent's token holds read, exec and ask:create and nothing else. */
static void agents(void **state)
{
    struct place *p = *state;
    char text[TOKEN_TEXT_MAX];
    for (unsigned bit = 1; bit <= 128; bit *= 2)
        assert_int_equal(make(p->db, TOKEN_API, "a", bit, "ses_1", 0, NULL, text),
                         bit & SCOPES_AGENT ? 0 : -EPERM);
    assert_int_equal(make(p->db, TOKEN_API, "a", SCOPES_ALL, "ses_1", 0, NULL, text), -EPERM);
    assert_int_equal(make(p->db, TOKEN_API, "a", SCOPES_AGENT, "ses_1", 0, NULL, text), 0);
    struct token got;
    assert_int_equal(token_find(p->db, text, &got), 0);
    assert_string_equal(got.session_id, "ses_1");
    assert_int_equal(db_commit(p->db), 0);
}

static void expired_ones_are_none(void **state)
{
    struct place *p = *state;
    struct token late, soon, got;
    char late_text[TOKEN_TEXT_MAX], soon_text[TOKEN_TEXT_MAX];
    int64_t now = clock_wall_ms();
    assert_int_equal(make(p->db, TOKEN_API, "late", SCOPE_READ, "", now - 1, &late, late_text), 0);
    assert_int_equal(
        make(p->db, TOKEN_API, "soon", SCOPE_READ, "", now + 3600000, &soon, soon_text), 0);
    assert_int_equal(token_find(p->db, late_text, &got), -ENOENT);
    assert_int_equal(token_find(p->db, soon_text, &got), 0);
    /* A browser's slides. */
    struct token b;
    char b_text[TOKEN_TEXT_MAX];
    assert_int_equal(make(p->db, TOKEN_BROWSER, "", SCOPES_ALL, "", now + 1000, &b, b_text), 0);
    assert_true(id_is(b.id, "brw"));
    assert_int_equal(token_touch(p->db, b.id, now + 7200000), 0);
    assert_int_equal(token_find(p->db, b_text, &got), 0);
    assert_true(got.expires_at == now + 7200000 && got.last_used_at > 0);
    assert_int_equal(db_commit(p->db), 0);
}

static size_t listed(struct db *db, enum token_kind kind, json_t **ret)
{
    json_t *items = NULL;
    assert_int_equal(tokens_list(db, kind, &items), 0);
    size_t n = json_array_size(items);
    if (ret)
        *ret = items;
    else
        json_decref(items);
    return n;
}

static void as_many_as_may_be(void **state)
{
    struct place *p = *state;
    char text[TOKEN_TEXT_MAX], first[TOKEN_TEXT_MAX];
    struct token t, got;
    for (int i = 0; i < TOKENS_MAX; i++)
        assert_int_equal(make(p->db, TOKEN_API, "t", SCOPE_READ, "", 0, &t, text), 0);
    assert_int_equal(make(p->db, TOKEN_API, "t", SCOPE_READ, "", 0, NULL, text), -E2BIG);
    assert_int_equal(token_delete(p->db, t.id), 0);
    int64_t past = clock_wall_ms() - 1;
    assert_int_equal(make(p->db, TOKEN_API, "t", SCOPE_READ, "", past, NULL, text), 0);
    /* The expired one makes room. */
    assert_int_equal(make(p->db, TOKEN_API, "t", SCOPE_READ, "", 0, NULL, text), 0);
    /* Of browsers the one not used for longest goes. */
    for (int i = 0; i < BROWSERS_MAX; i++)
        assert_int_equal(make(p->db, TOKEN_BROWSER, "", SCOPES_ALL, "", 0, NULL, i ? text : first),
                         0);
    assert_int_equal(listed(p->db, TOKEN_BROWSER, NULL), BROWSERS_MAX);
    assert_int_equal(make(p->db, TOKEN_BROWSER, "", SCOPES_ALL, "", 0, NULL, text), 0);
    assert_int_equal(listed(p->db, TOKEN_BROWSER, NULL), BROWSERS_MAX);
    assert_int_equal(token_find(p->db, first, &got), -ENOENT);
    assert_int_equal(token_find(p->db, text, &got), 0);
    json_t *items;
    assert_int_equal(listed(p->db, TOKEN_API, &items), TOKENS_MAX);
    for (size_t i = 1; i < TOKENS_MAX; i++)
        assert_true(strcmp(json_string_value(json_object_get(json_array_get(items, i - 1), "id")),
                           json_string_value(json_object_get(json_array_get(items, i), "id"))) > 0);
    json_decref(items);
    assert_int_equal(db_commit(p->db), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, db_setup, db_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(only_a_hash_is_kept),
        TEST(agents),
        TEST(expired_ones_are_none),
        TEST(as_many_as_may_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
