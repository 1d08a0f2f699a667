/* Doors that are not what was ordered; the judging of the proof; private folders. */
#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/private.h"
#include "sandbox/proof.h"
#include "sandbox/wall.h"
#include "unit.h"
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Doors ----------------------------------------------------------------------------------- */

static int door(int type, uint32_t address, bool is_listening, uint16_t *ret_port)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
    } a = {.v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(address)}};
    socklen_t len = sizeof a.v4;
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, &a.any, len), 0);
    assert_true(!is_listening || listen(fd, 1) == 0);
    assert_int_equal(getsockname(fd, &a.any, &len), 0);
    *ret_port = ntohs(a.v4.sin_port);
    return fd;
}

static void refused(int fd, uint16_t port, const char *why)
{
    struct err err = {0};
    bool has_redirect = true;
    assert_true(doors_check(&fd, 1, port, &has_redirect, &err) < 0);
    assert_false(has_redirect);
    assert_string_equal(err.code, "session_refused");
    assert_non_null(strstr(err.detail, why));
    close(fd);
}

static void doors_of_ours_are_refused(void **state)
{
    uint16_t port;
    int fd;
    (void)state;
    fd = door(SOCK_STREAM, INADDR_LOOPBACK, true, &port);
    refused(fd, port, "host's network namespace");
    fd = door(SOCK_STREAM, INADDR_LOOPBACK, true, &port);
    refused(fd, (uint16_t)(port + 1), "address and port");
    fd = door(SOCK_STREAM, INADDR_ANY, true, &port);
    refused(fd, port, "address and port");
    fd = door(SOCK_STREAM, INADDR_LOOPBACK, false, &port);
    refused(fd, port, "not listening");
    fd = door(SOCK_DGRAM, INADDR_LOOPBACK, false, &port);
    refused(fd, port, "no TCP socket");
    int pipe[2];
    assert_int_equal(fd_pipe(pipe), 0);
    close(pipe[1]);
    refused(pipe[0], 1, "no TCP socket");
    bool has_redirect;
    assert_true(doors_check(NULL, 0, 1, &has_redirect, NULL) < 0);
}

/* With the name server's door, the last: UDP, on port 53 of the first one's namespace. */
static void the_name_servers_door_is_checked_too(void **state)
{
    struct err err = {0};
    bool has_redirect;
    uint16_t port, udp_port;
    int fds[3];
    (void)state;
    fds[0] = door(SOCK_STREAM, INADDR_LOOPBACK, true, &port);
    fds[1] = door(SOCK_DGRAM, INADDR_LOOPBACK, false, &udp_port);
    fds[2] = fds[1];
    assert_true(doors_check(fds, 2, port, &has_redirect, &err) < 0);
    assert_true(has_redirect);
    assert_non_null(strstr(err.detail, "host's network namespace"));     /* of the first */
    assert_true(doors_check(fds + 1, 2, port, &has_redirect, NULL) < 0); /* two of UDP */
    close(fds[0]);
    close(fds[1]);
}

#define NO_NAMESPACE 3

/* Sockets in a network namespace of their own, as a runner hands them out: a listener, one on every
 * address, and a connected pair's end. */
static void sockets_elsewhere(int fds[static 3], uint16_t *ret_port)
{
    int pair[2];
    char port[8] = "";
    size_t n = 0;
    assert_int_equal(fd_pair(pair), 0);
    pid_t pid = fork();
    if (pid == 0) {
        uint16_t p, any;
        if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
            _exit(NO_NAMESPACE);
        int made[3] = {door(SOCK_STREAM, INADDR_LOOPBACK, true, &p),
                       door(SOCK_STREAM, INADDR_ANY, true, &any),
                       socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
        (void)snprintf(port, sizeof port, "%u", p);
        _exit(fd_send(pair[1], port, sizeof port, made, 3) == sizeof port ? 0 : 1);
    }
    close(pair[1]);
    ssize_t got = fd_recv(pair[0], port, sizeof port, fds, &n);
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_NAMESPACE)
        SKIP_UNLESS_MUST("no network namespace can be made here");
    assert_int_equal(status, 0);
    assert_int_equal(got, sizeof port);
    assert_int_equal(n, 3);
    *ret_port = (uint16_t)atoi(port);
    close(pair[0]);
}

static void what_a_runner_hands_out_is_looked_at(void **state)
{
    int here[3], there[3];
    uint16_t port, port_there, own_port;
    (void)state;
    sockets_elsewhere(here, &port);
    sockets_elsewhere(there, &port_there);
    int own = door(SOCK_STREAM, INADDR_LOOPBACK, true, &own_port);
    const struct wall w = {.doors = {here[1]}, .n_doors = 1}, none = {.n_doors = 0};
    assert_int_equal(wall_listeners_check(&w, here, 1, port), 0);
    assert_int_equal(wall_listeners_check(&w, here, 1, (uint16_t)(port + 1)), -EBADF);
    assert_int_equal(wall_listeners_check(&w, here + 1, 1, port), -EBADF); /* on every address */
    assert_int_equal(wall_listeners_check(&w, here, 2, port), -EBADF); /* the second is no IPv6 */
    assert_int_equal(wall_listeners_check(&w, here, 3, port), -EBADF);
    assert_int_equal(wall_listeners_check(&w, here, 0, port), -EBADF);
    assert_int_equal(wall_listeners_check(&w, there, 1, port_there), -EBADF); /* not that wall's */
    assert_int_equal(wall_listeners_check(&w, &own, 1, own_port), -EBADF);    /* the host's */
    assert_int_equal(wall_listeners_check(&none, here, 1, port), -EBADF);
    assert_int_equal(wall_socket_check(&w, here[2]), 0);
    assert_int_equal(wall_socket_check(&w, here[0]), -EBADF); /* a listener */
    assert_int_equal(wall_socket_check(&w, there[2]), -EBADF);
    assert_int_equal(wall_socket_check(&w, own), -EBADF);
    assert_int_equal(wall_socket_check(&none, here[2]), -EBADF);
    for (int i = 0; i < 3; i++) {
        close(here[i]);
        close(there[i]);
    }
    close(own);
}

/* ---- The proof ------------------------------------------------------------------------------- */

static char here[] = "/tmp", home[] = "/nonexistent/home", runner[] = "/x/cordon-runner",
            egress[] = "/x/cordon-egress", programs[] = "/x";

static bool with_redirect;

static void plan(struct proof *p)
{
    static struct policy policy;
    static struct machine machine;
    policy = (struct policy){.network = NET_ALLOWLIST, .home = home, .door_port = 3128};
    machine = (struct machine){.landlock_abi = 3,
                               .kernel = "6.18",
                               .home = home,
                               .state_dir = here,
                               .runner = runner,
                               .egress = egress,
                               .programs_dir = programs};
    const struct proof_context ctx = {.policy = &policy,
                                      .machine = &machine,
                                      .canary_path = "/tmp/canary",
                                      .canary_text = "text",
                                      .allowed_name = "a.invalid:443",
                                      .refused_name = "b.invalid:443",
                                      .api_port = 7411,
                                      .host_port_open = 7412,
                                      .has_redirect = with_redirect,
                                      .has_ipv6 = with_redirect};
    assert_int_equal(proof_plan(p, &ctx), 0);
    assert_int_equal(p->n_checks, 12);
}

/* The answer that fits. */
static void answer_well(struct proof *p, size_t i)
{
    switch (p->probes[i].expect) {
    case EXPECT_SUCCESS:
    case EXPECT_LIMITS:
        proof_answer(p, i, 0, "nofile=100 nproc=10 pids=0");
        break;
    case EXPECT_STATUS_200:
        proof_answer(p, i, 0, "HTTP/1.1 200 OK");
        break;
    case EXPECT_STATUS_OTHER:
    case EXPECT_STATUS_403:
        proof_answer(p, i, 0, "HTTP/1.1 403 Forbidden");
        break;
    case EXPECT_BARE:
        proof_answer(p, i, 0, "cap=0000 nnp=1 seccomp=2 bnd=0000 dumpable=0");
        break;
    case EXPECT_OWN_PIDS:
        proof_answer(p, i, ENOENT, "1 5");
        break;
    case EXPECT_FAILURE:
    case EXPECT_OTHER_FILE:
        proof_answer(p, i, ENOENT, "");
        break;
    case EXPECT_RESET:
        proof_answer(p, i, ECONNRESET, "");
        break;
    case EXPECT_UNREACHABLE:
        proof_answer(p, i, ENETUNREACH, "");
        break;
    }
}

/* All fits, but for probe WRONG (or none), which is answered ERRNUM and TEXT; TEXT NULL: not. */
static bool judge(size_t wrong, uint32_t errnum, const char *text)
{
    struct proof p;
    plan(&p);
    for (size_t i = 0; i < p.n_probes; i++) {
        if (i != wrong)
            answer_well(&p, i);
        else if (text)
            proof_answer(&p, i, errnum, text);
    }
    p.landlock_abi = 3;
    bool ok = proof_judge(&p);
    json_t *receipt = proof_to_json(&p);
    assert_non_null(receipt);
    json_decref(receipt);
    proof_done(&p);
    return ok;
}

static size_t probe_of(enum proof_expect expect)
{
    struct proof p;
    size_t i = 0;
    plan(&p);
    while (i < p.n_probes && p.probes[i].expect != expect)
        i++;
    assert_true(i < p.n_probes);
    proof_done(&p);
    return i;
}

static void every_required_probe_counts(void **state)
{
    struct proof p;
    (void)state;
    assert_true(judge(SIZE_MAX, 0, NULL));
    plan(&p);
    for (size_t i = 0; i < p.n_probes; i++)
        if (p.checks[p.probes[i].check].required)
            assert_false(judge(i, 0, NULL)); /* no answer is no proof */
    proof_done(&p);
}

/* The same, of a wall with a redirect: a name leads to the door and is refused there, an address
 * too, and nothing else will do. */
static void every_probe_of_the_redirect_counts(void **state)
{
    with_redirect = true;
    every_required_probe_counts(state);
    assert_false(judge(probe_of(EXPECT_RESET), 0, ""));
    assert_false(judge(probe_of(EXPECT_RESET), ENETUNREACH, ""));  /* no redirect */
    assert_false(judge(probe_of(EXPECT_RESET), ECONNREFUSED, "")); /* a host answered */
    assert_false(judge(probe_of(EXPECT_RESET), ETIMEDOUT, ""));
    with_redirect = false;
}

static void answers_that_prove_nothing(void **state)
{
    static const char *const NOT_BARE[] = {
        "", "cap=1 nnp=1 seccomp=2 bnd=0", "cap=0 nnp=0 seccomp=2 bnd=0",
        "cap=0 nnp=1 seccomp=0 bnd=0", "xcap=0 nnp=1 seccomp=2 bnd=0"};
    static const char *const NOT_OWN[] = {"", "2 3", "12 13", "1 2 canary=2"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(NOT_BARE); i++)
        assert_false(judge(probe_of(EXPECT_BARE), 0, NOT_BARE[i]));
    for (size_t i = 0; i < ARRAY_LEN(NOT_OWN); i++)
        assert_false(judge(probe_of(EXPECT_OWN_PIDS), ENOENT, NOT_OWN[i]));
    assert_false(judge(probe_of(EXPECT_OWN_PIDS), 0, "1"));
    assert_false(judge(probe_of(EXPECT_UNREACHABLE), ECONNREFUSED, "")); /* the host answered */
    assert_false(judge(probe_of(EXPECT_UNREACHABLE), 0, ""));
    assert_false(judge(probe_of(EXPECT_STATUS_200), 0, "HTTP/1.1 403 Forbidden"));
    assert_false(judge(probe_of(EXPECT_STATUS_403), 0, "HTTP/1.1 200 OK"));
    assert_false(judge(probe_of(EXPECT_STATUS_403), ECONNREFUSED, ""));
    assert_false(judge(probe_of(EXPECT_FAILURE), 0, ""));
    assert_false(judge(probe_of(EXPECT_OTHER_FILE), 0, "")); /* found, and not said what */
    assert_false(judge(probe_of(EXPECT_OTHER_FILE), 0, "mode=40755"));
    assert_true(judge(probe_of(EXPECT_OTHER_FILE), 0, "1 2 40755"));
}

static void without_landlock_nothing_is_proved(void **state)
{
    struct proof p;
    (void)state;
    plan(&p);
    for (size_t i = 0; i < p.n_probes; i++)
        answer_well(&p, i);
    proof_answer(&p, 0, EACCES, "later answers are not taken");
    proof_answer(&p, p.n_probes, 0, "nor those beyond");
    assert_false(proof_judge(&p)); /* landlock_abi was never set */
    proof_done(&p);
}

/* ---- Private folders ------------------------------------------------------------------------- */

static void private_folder_lives_with_its_lock(void **state)
{
    struct err err = {0};
    struct stat st;
    char *path;
    int lock;
    (void)state;
    assert_int_equal(private_new(&path, &lock, &err), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    (void)private_sweep();
    assert_int_equal(access(path, F_OK), 0); /* held */
    close(lock);
    assert_true(private_sweep() >= 1);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(private_remove("/tmp/other"), -EINVAL);
    assert_int_equal(private_remove("/etc"), -EINVAL);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(doors_of_ours_are_refused),
        cmocka_unit_test(the_name_servers_door_is_checked_too),
        cmocka_unit_test(what_a_runner_hands_out_is_looked_at),
        cmocka_unit_test(every_required_probe_counts),
        cmocka_unit_test(every_probe_of_the_redirect_counts),
        cmocka_unit_test(answers_that_prove_nothing),
        cmocka_unit_test(without_landlock_nothing_is_proved),
        cmocka_unit_test(private_folder_lives_with_its_lock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
