/* The framed socket to a child: what it takes, what it calls nonsense, what waits. */
#include "unit.h"

#include "base/fd.h"
#include "base/mem.h"
#include "session/channel.h"
#include "wire/msg.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

struct peer {
    struct closing closing;
    struct channel ch;
    uv_loop_t loop;
    int other; /* the child's end */
    unsigned got;
    int took_fd, ended_r;
    bool ended, freed, take;
    char last[64];
};
static const uint8_t KINDS[] = {M_PROBED, M_TOOLED, 0};

static void freed(struct closing *c)
{
    struct peer *p = container_of(c, struct peer, closing);
    channel_done(&p->ch);
    p->freed = true;
}

static int got(struct channel *ch, const struct frame *f)
{
    struct peer *p = container_of(ch, struct peer, ch);
    p->got++;
    size_t n = f->len < sizeof p->last - 1 ? f->len : sizeof p->last - 1;
    memcpy(p->last, f->payload, n);
    p->last[n] = '\0';
    return p->take ? channel_take_fd(ch, &p->took_fd) : 0;
}

static void ended(struct channel *ch, int r)
{
    struct peer *p = container_of(ch, struct peer, ch);
    assert_false(p->ended);
    p->ended = true;
    p->ended_r = r;
}

static void up(struct peer *p)
{
    int pair[2];
    memset(p, 0, sizeof *p);
    p->took_fd = -1;
    assert_int_equal(uv_loop_init(&p->loop), 0);
    assert_int_equal(fd_pair(pair), 0);
    p->other = pair[1];
    closing_init(&p->closing, freed);
    channel_init(&p->ch);
    assert_int_equal(channel_open(&p->ch, &p->loop, &p->closing, pair[0], KINDS, got, ended), 0);
}

static void down(struct peer *p)
{
    fd_close(p->other);
    fd_close(p->took_fd);
    channel_stop(&p->ch);
    closing_start(&p->closing);
    (void)uv_run(&p->loop, UV_RUN_DEFAULT);
    assert_true(p->freed);
    assert_int_equal(uv_loop_close(&p->loop), 0);
}

static void turn(struct peer *p)
{
    (void)uv_run(&p->loop, UV_RUN_NOWAIT);
}

static void frame_of(struct str *out, uint8_t kind, const char *text)
{
    assert_int_equal(frame_put(out, kind, text, strlen(text)), 0);
}

static void frames_come_in_any_split(void **state)
{
    struct peer p;
    CLEANUP(str_done) struct str bytes = {0};
    (void)state;
    up(&p);
    frame_of(&bytes, M_PROBED, "first");
    frame_of(&bytes, M_PROBED, "second");
    for (size_t i = 0; i < bytes.len; i++) {
        assert_int_equal(write(p.other, bytes.data + i, 1), 1);
        turn(&p);
    }
    assert_int_equal(p.got, 2);
    assert_string_equal(p.last, "second");
    fd_done(&p.other);
    turn(&p);
    assert_true(p.ended);
    assert_int_equal(p.ended_r, 0);
    down(&p);
}

static void expect_nonsense(const void *bytes, size_t n, const int *fds, size_t n_fds)
{
    struct peer p;
    up(&p);
    assert_int_equal(fd_send(p.other, bytes, n, fds, n_fds), (ssize_t)n);
    turn(&p);
    assert_true(p.ended);
    assert_int_equal(p.ended_r, -EBADMSG);
    down(&p);
}

static void nonsense_ends_it(void **state)
{
    CLEANUP(str_done) struct str bytes = {0};
    (void)state;
    frame_of(&bytes, M_EG_CHECK, "a kind of another channel");
    expect_nonsense(bytes.data, bytes.len, NULL, 0);
    str_clear(&bytes);
    frame_of(&bytes, 250, "an unknown kind");
    expect_nonsense(bytes.data, bytes.len, NULL, 0);
    expect_nonsense("\0\0\0\0\0", 5, NULL, 0);
    expect_nonsense("\xff\xff\xff\xff\x23", 5, NULL, 0);
    int fd = STDERR_FILENO;
    str_clear(&bytes);
    frame_of(&bytes, M_PROBED, "a descriptor that nobody asked for");
    expect_nonsense(bytes.data, bytes.len, &fd, 1);
}

static void cut_off_is_nonsense(void **state)
{
    struct peer p;
    (void)state;
    up(&p);
    assert_int_equal(write(p.other, "\x09\0\0\0\x23", 5), 5);
    turn(&p);
    fd_done(&p.other);
    turn(&p);
    assert_true(p.ended);
    assert_int_equal(p.ended_r, -EBADMSG);
    down(&p);
}

/* M_TOOLED: u32 id, u32 errno, u8 layer, u8 fds: the tenth byte says how many come. */
static void descriptors_belong_to_their_frame(void **state)
{
    struct peer p;
    CLEANUP(str_done) struct str bytes = {0};
    static const char payload[] = "\1\0\0\0\0\0\0\0\0\1\0\0\0\0";
    int fd = STDERR_FILENO;
    (void)state;
    up(&p);
    p.take = true;
    assert_int_equal(frame_put(&bytes, M_TOOLED, payload, sizeof payload - 1), 0);
    assert_int_equal(fd_send(p.other, bytes.data, bytes.len, &fd, 1), (ssize_t)bytes.len);
    turn(&p);
    assert_int_equal(p.got, 1);
    assert_true(p.took_fd >= 0);
    assert_false(p.ended);
    down(&p);

    up(&p); /* one that its owner does not take is closed, not kept for the next */
    assert_int_equal(fd_send(p.other, bytes.data, bytes.len, &fd, 1), (ssize_t)bytes.len);
    turn(&p);
    assert_int_equal(p.got, 1);
    assert_int_equal(p.ch.n_fds, 0);
    assert_false(p.ended);
    down(&p);
}

static void what_does_not_fit_waits(void **state)
{
    struct peer p;
    CLEANUP(pack_done) struct pack big = {0};
    CLEANUP(freep) char *bytes = calloc(1, 500000);
    static char sink[65536];
    (void)state;
    up(&p);
    pack_bytes(&big, bytes, 500000);
    int fd = STDERR_FILENO, r = 0, sent = 0;
    while ((r = channel_send(&p.ch, M_TOOL, &big, &fd, 1)) == 0)
        sent++;
    assert_int_equal(r, -ENOBUFS);
    assert_true(sent > 2);
    size_t total = 0, n_fds = 0, fds_got = 0, want = (size_t)sent * (FRAME_HEAD + big.out.len);
    int fds[FDS_PER_MESSAGE];
    while (total < want) {
        ssize_t n = fd_recv(p.other, sink, sizeof sink, fds, &n_fds);
        assert_true(n > 0);
        total += (size_t)n;
        fds_got += n_fds;
        for (size_t i = 0; i < n_fds; i++)
            fd_close(fds[i]);
        turn(&p);
    }
    assert_int_equal(total, want);
    assert_int_equal(fds_got, sent);
    assert_int_equal(p.ch.queued, 0);
    down(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_come_in_any_split),
        cmocka_unit_test(nonsense_ends_it),
        cmocka_unit_test(cut_off_is_nonsense),
        cmocka_unit_test(descriptors_belong_to_their_frame),
        cmocka_unit_test(what_does_not_fit_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
