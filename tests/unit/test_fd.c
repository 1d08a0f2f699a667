#include "unit.h"

#include "base/fd.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void descriptors_travel(void **state)
{
    (void)state;
    int pair[2], pipes[2], got[FDS_PER_MESSAGE];
    size_t n = 0;
    char buf[16];
    assert_int_equal(fd_pair(pair), 0);
    assert_int_equal(fd_pipe(pipes), 0);
    assert_int_equal(fd_send(pair[0], "hello", 5, pipes, 2), 5);
    assert_int_equal(fd_recv(pair[1], buf, sizeof(buf), got, &n), 5);
    assert_int_equal(n, 2);
    assert_int_equal(fcntl(got[0], F_GETFD), FD_CLOEXEC);
    assert_int_equal(write(got[1], "x", 1), 1);
    assert_int_equal(read(pipes[0], buf, sizeof(buf)), 1);
    assert_int_equal(fd_send(pair[0], "hello", 5, pipes, FDS_PER_MESSAGE + 1), -EINVAL);
    assert_int_equal(fd_send(pair[0], "", 0, pipes, 1), -EINVAL);
    close(pair[1]);
    assert_int_equal(fd_send(pair[0], "x", 1, NULL, 0), -EPIPE);
    close(pair[0]);
    for (int i = 0; i < 2; i++) {
        close(pipes[i]);
        close(got[i]);
    }
}

static void memfds_are_sealed(void **state)
{
    (void)state;
    int fd = fd_memfd("test", "abc", 3);
    char buf[8];
    assert_true(fd >= 0);
    assert_int_equal(fd_read_all(fd, buf, sizeof(buf)), 3);
    assert_int_equal(write(fd, "x", 1), -1);
    assert_int_equal(errno, EPERM);
    close(fd);
}

/* Numbers that overlap those of the child, /dev/null for -1, and nothing else. */
static void spawns_with_exact_descriptors(void **state)
{
    (void)state;
    int pipes[2];
    assert_int_equal(fd_pipe(pipes), 0);
    int low = fcntl(pipes[1], F_DUPFD, 0), other = dup(STDERR_FILENO);
    char *argv[] = {"sh", "-c",
                    "cd /proc/self/fd; echo *; readlink 0; pwd -P >/dev/null; echo $A \"$HOME\"",
                    NULL};
    char *envp[] = {"A=b", "PATH=/usr/bin:/bin", NULL};
    int fds[] = {-1, low, other, pipes[1]};
    struct spawn sp = {.file = "/bin/sh", .argv = argv, .envp = envp, .fds = fds, .n_fds = 4};
    pid_t pid = fd_spawn(&sp);
    assert_true(pid > 0);
    close(pipes[1]);
    close(low);
    close(other);
    char buf[256] = "";
    ssize_t n = fd_read_all(pipes[0], buf, sizeof(buf) - 1);
    assert_true(n > 0);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    close(pipes[0]);
    assert_true(strncmp(buf, "0 1 2 3", 7) == 0);
    assert_non_null(strstr(buf, "/dev/null\n"));
    assert_non_null(strstr(buf, "b \n"));
}

static void spawn_tells_why_not(void **state)
{
    (void)state;
    char *argv[] = {"x", NULL};
    char *envp[] = {NULL};
    struct spawn sp = {.file = "/does/not/exist", .argv = argv, .envp = envp};
    assert_int_equal(fd_spawn(&sp), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descriptors_travel), cmocka_unit_test(memfds_are_sealed),
        cmocka_unit_test(spawns_with_exact_descriptors), cmocka_unit_test(spawn_tells_why_not)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
