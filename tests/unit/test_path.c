#include "unit.h"

#include "base/fd.h"
#include "base/path.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void folds_text(void **state)
{
    (void)state;
    static const char *const rows[][2] = {{"/", "/"},           {"//", "/"},
                                          {"/..", "/"},         {"/a//b/./c/", "/a/b/c"},
                                          {"/a/../../b", "/b"}, {"/a..b/.../c", "/a..b/.../c"},
                                          {"/a/b/..", "/a"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *got = NULL;
        assert_int_equal(path_canonical(rows[i][0], &got), 0);
        assert_string_equal(got, rows[i][1]);
        assert_true(path_is_canonical(got));
        assert_int_equal(path_is_canonical(rows[i][0]), strcmp(rows[i][0], rows[i][1]) == 0);
        free(got);
    }
    char *got = NULL;
    assert_int_equal(path_canonical("a", &got), -EINVAL);
    assert_int_equal(path_canonical("", &got), -EINVAL);
    char longest[5000];
    memset(longest, 'a', sizeof(longest) - 1);
    longest[0] = '/';
    longest[sizeof(longest) - 1] = '\0';
    assert_int_equal(path_canonical(longest, &got), -ENAMETOOLONG);
    assert_int_equal(path_join("/a/b", "../c", &got), 0);
    assert_string_equal(got, "/a/c");
    free(got);
}

static void compares_components(void **state)
{
    (void)state;
    assert_true(path_is_under("/a/b", "/a"));
    assert_true(path_is_under("/a", "/a"));
    assert_true(path_is_under("/a", "/"));
    assert_false(path_is_under("/ab", "/a"));
    assert_false(path_is_under("/", "/a"));
    assert_string_equal(path_last("/a/b"), "b");
    assert_string_equal(path_last("/"), "/");
}

static int make_folder(void **state)
{
    static char folder[] = "/tmp/cordon-test-XXXXXX";
    strcpy(folder, "/tmp/cordon-test-XXXXXX");
    *state = folder;
    return mkdtemp(folder) ? 0 : -1;
}

static int drop_folder(void **state)
{
    return path_remove_tree(AT_FDCWD, *state);
}

static void stays_beneath(void **state)
{
    int at = open(*state, O_PATH | O_DIRECTORY);
    assert_int_equal(path_make_dirs(at, "a/b c/d", 0755), 0);
    assert_int_equal(path_make_dirs(at, "a/b c/d", 0755), 0);
    assert_int_equal(symlinkat("a", at, "inner"), 0);
    assert_int_equal(symlinkat("/etc", at, "outer"), 0);
    int fd = path_open_beneath(at, "inner/b c", O_RDONLY, 0, true);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(path_open_beneath(at, "inner/b c", O_RDONLY, 0, false), -ELOOP);
    assert_int_equal(path_open_beneath(at, "outer/passwd", O_RDONLY, 0, true), -EXDEV);
    assert_int_equal(path_open_beneath(at, "../x", O_RDONLY, 0, true), -EXDEV);
    assert_int_equal(path_make_dirs(at, "outer/x", 0755), -ELOOP);
    fd = path_open_beneath(at, "a/new", O_WRONLY | O_CREAT | O_EXCL, 0640, false);
    assert_true(fd >= 0);
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_mode & 0777 & ~0640, 0);
    close(fd);
    close(at);
}

static void removes_deep_and_closed_trees(void **state)
{
    int at = open(*state, O_PATH | O_DIRECTORY);
    assert_int_equal(mkdirat(at, "keep", 0755), 0);
    assert_int_equal(mkdirat(at, "tree", 0755), 0);
    int dir = openat(at, "tree", O_PATH | O_DIRECTORY);
    assert_int_equal(symlinkat("../keep", dir, "link"), 0);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(mkdirat(dir, "d", 0755), 0);
        int next = openat(dir, "d", O_PATH | O_DIRECTORY);
        close(dir);
        dir = next;
    }
    close(dir);
    assert_int_equal(path_make_dirs(at, "tree/closed/inner", 0755), 0);
    assert_int_equal(fchmodat(at, "tree/closed/inner", 0, 0), 0);
    assert_int_equal(fchmodat(at, "tree/closed", 0555, 0), 0);
    assert_int_equal(path_remove_tree(at, "tree"), 0);
    assert_int_equal(path_remove_tree(at, "tree"), -ENOENT);
    assert_int_equal(faccessat(at, "keep", F_OK, 0), 0);
    close(at);
}

static void writes_whole_files(void **state)
{
    int at = open(*state, O_PATH | O_DIRECTORY);
    mode_t before = umask(077);
    assert_int_equal(fd_write_file(at, "f", "one", 3, 0644), 0);
    assert_int_equal(fd_write_file(at, "f", "two!", 4, 0644), 0);
    umask(before);
    char *text = NULL;
    size_t n = 0;
    assert_int_equal(fd_read_file(at, "f", 4, &text, &n), 0);
    assert_int_equal(n, 4);
    assert_string_equal(text, "two!");
    free(text);
    assert_int_equal(fd_read_file(at, "f", 3, &text, &n), -EFBIG);
    struct stat st;
    assert_int_equal(fstatat(at, "f", &st, 0), 0);
    assert_int_equal(st.st_mode & 0777, 0644);
    close(at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folds_text), cmocka_unit_test(compares_components),
        cmocka_unit_test_setup_teardown(stays_beneath, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(removes_deep_and_closed_trees, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(writes_whole_files, make_folder, drop_folder)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
