#include "unit.h"

#include "base/fd.h"
#include "wire/frame.h"
#include "wire/msg.h"
#include "wire/order.h"
#include "wire/pack.h"
#include "wire/rules.h"
#include "wire/tool.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void packs_and_unpacks(void **state)
{
    (void)state;
    char *items[] = {"a", "", "c d"};
    struct pack p = {0};
    pack_u8(&p, 0xff);
    pack_u16(&p, 0xfffe);
    pack_u32(&p, 0xfffffffd);
    pack_u64(&p, 0xfffffffffffffffc);
    pack_bytes(&p, "\0x", 2);
    pack_str(&p, NULL);
    pack_strv(&p, items, 3);
    assert_int_equal(p.r, 0);
    struct unpack u = unpack_from(p.out.data, p.out.len);
    assert_int_equal(unpack_u8(&u), 0xff);
    assert_int_equal(unpack_u16(&u), 0xfffe);
    assert_true(unpack_u32(&u) == 0xfffffffd);
    assert_true(unpack_u64(&u) == 0xfffffffffffffffc);
    size_t n;
    assert_memory_equal(unpack_bytes(&u, 2, &n), "\0x", 2);
    assert_int_equal(n, 2);
    char *s = unpack_str(&u, 0);
    assert_string_equal(s, "");
    free(s);
    struct strv v = {0};
    assert_int_equal(unpack_strv(&u, 3, 4, &v), 0);
    assert_string_equal(v.items[2], "c d");
    assert_int_equal(unpack_end(&u), 0);
    strv_done(&v);
    /* cut anywhere, it fails and hands out nothing */
    for (size_t cut = 0; cut < p.out.len; cut++) {
        u = unpack_from(p.out.data, cut);
        (void)unpack_u8(&u);
        (void)unpack_u16(&u);
        (void)unpack_u32(&u);
        (void)unpack_u64(&u);
        (void)unpack_bytes(&u, 2, &n);
        free(unpack_str(&u, 0));
        (void)unpack_strv(&u, 3, 4, &v);
        assert_int_equal(unpack_end(&u), -EBADMSG);
        strv_done(&v);
    }
    pack_done(&p);
}

static void refuses_what_does_not_fit(void **state)
{
    (void)state;
    struct unpack u = unpack_from("\x02\0\0\0a\0", 6);
    char *s = unpack_str(&u, 10); /* a NUL inside */
    assert_string_equal(s, "");
    assert_int_equal(u.r, -EBADMSG);
    free(s);
    u = unpack_from("\xff\xff\xff\xff", 4);
    size_t n = 1;
    (void)unpack_bytes(&u, SIZE_MAX, &n);
    assert_int_equal(n, 0);
    assert_int_equal(unpack_end(&u), -EBADMSG);
    u = unpack_from("ab", 2);
    assert_int_equal(unpack_u8(&u), 'a');
    assert_int_equal(unpack_end(&u), -EBADMSG); /* something is left */
    struct strv v = {0};
    u = unpack_from("\x02\0\0\0\x01\0\0\0a\x01\0\0\0b", 14);
    assert_int_equal(unpack_strv(&u, 2, 1, &v), -EBADMSG);
    strv_done(&v);
}

static void frames_in_any_split(void **state)
{
    (void)state;
    struct str wire = {0};
    assert_int_equal(frame_put(&wire, 7, "hello", 5), 0);
    assert_int_equal(frame_put(&wire, 8, NULL, 0), 0);
    assert_int_equal(frame_put(&wire, 9, "x", 1), 0);
    for (size_t step = 1; step <= wire.len; step++) {
        struct frame_reader fr = {0};
        struct frame f;
        unsigned kinds = 0, n = 0;
        for (size_t at = 0; at < wire.len; at += step) {
            size_t part = wire.len - at < step ? wire.len - at : step;
            assert_int_equal(frame_feed(&fr, wire.data + at, part), 0);
            while (frame_next(&fr, &f) == 1) {
                kinds = kinds * 10 + f.kind;
                n += (unsigned)f.len;
            }
        }
        assert_int_equal(kinds, 789);
        assert_int_equal(n, 6);
        frame_reader_done(&fr);
    }
    str_done(&wire);
}

static void refuses_bad_lengths(void **state)
{
    (void)state;
    struct frame_reader fr = {0};
    struct frame f;
    assert_int_equal(frame_feed(&fr, "\0\0\0\0", 4), 0);
    assert_int_equal(frame_next(&fr, &f), -EBADMSG);
    frame_reader_done(&fr);
    assert_int_equal(frame_feed(&fr, "\x02\0\x20\0", 4), 0); /* FRAME_MAX + 2 */
    assert_int_equal(frame_next(&fr, &f), -EBADMSG);
    frame_reader_done(&fr);
    struct str out = {0};
    assert_int_equal(frame_put(&out, 1, "", FRAME_MAX + 1), -EMSGSIZE);
    assert_int_equal(out.len, 0);
    str_done(&out);
}

static int fds_of(uint8_t kind, const void *payload, size_t n, size_t queued)
{
    struct frame f = {.kind = kind, .payload = payload, .len = n};
    return msg_fds(&f, queued);
}

static void matches_descriptors(void **state)
{
    (void)state;
    assert_int_equal(fds_of(M_START, "", 0, 4), 4);
    assert_int_equal(fds_of(M_START, "", 0, 3), -EBADMSG);
    assert_int_equal(fds_of(M_TERM_ALL, "", 0, 5), 0);
    assert_int_equal(fds_of(M_TERM_ALL, "x", 1, 0), -EBADMSG);
    assert_int_equal(fds_of(M_DOORS, "\x02", 1, 3), 2);
    assert_int_equal(fds_of(M_DOORS, "\x02", 1, 1), -EBADMSG);
    assert_int_equal(fds_of(M_DOORS, "\xff", 1, 255), -EBADMSG);
    assert_int_equal(fds_of(M_TOOL, "\0\0\0\0\x02", 5, 1), 1);
    assert_int_equal(fds_of(M_TOOL, "\0\0\0\0\x01", 5, 1), 0);
    assert_int_equal(fds_of(M_TOOLED, "\0\0\0\0\0\0\0\0\0\x01", 10, 1), 1);
    assert_int_equal(fds_of(M_TOOLED, "\0\0\0\0\0\0\0\0\0\x02", 10, 2), -EBADMSG);
    assert_int_equal(fds_of(M_EG_START, "", 0, 2), 2);
    assert_int_equal(fds_of(M_LISTENING, "\0\0\0\0\0\0\0\0\x02", 9, 2), 2);
    assert_int_equal(fds_of(M_LISTENING, "\0\0\0\0\0\0\0\0\x03", 9, 3), -EBADMSG);
    assert_int_equal(fds_of(M_LISTENING, "\0\0\0\0\x62\0\0\0\0", 9, 0), 0);
    assert_int_equal(fds_of(M_CONNECTED, "\0\0\0\0\0\0\0\0\x01", 9, 1), 1);
    assert_int_equal(fds_of(M_CONNECTED, "\0\0\0\0\0\0\0\0\x02", 9, 2), -EBADMSG);
    assert_int_equal(fds_of(M_EG_LISTEN, "\x06\0\0", 3, 0), -EBADMSG);
    assert_int_equal(fds_of(M_EG_SOCKET, "\0\0\0\0\0\0\0\0", 8, 1), 1);
    assert_int_equal(fds_of(0, "", 0, 0), -EBADMSG);
    assert_int_equal(fds_of(255, "", 0, 0), -EBADMSG);
    assert_string_equal(msg_rule(M_READY)->name, "ready");
}

static void orders_travel(void **state)
{
    (void)state;
    struct order_head h = {.ppid = 5,
                           .uid = 6,
                           .gid = 7,
                           .pid_max = 8,
                           .net = ORDER_NET_DOORS,
                           .door_port = 9,
                           .n_joins = 2,
                           .root = "/r",
                           .runner = "/bin/x"};
    struct join bind = {.kind = JOIN_BIND,
                        .flags = JOIN_READ_ONLY | JOIN_IDENTITY,
                        .dev = 1,
                        .ino = 2,
                        .source = "/a b",
                        .target = "/c"};
    struct join data = {
        .kind = JOIN_DATA, .mode = 0444, .target = "/d", .data = "x\0y", .data_len = 3};
    struct pack p = {0};
    order_put_head(&p, &h);
    order_put_join(&p, &bind);
    order_put_join(&p, &data);
    struct unpack u = unpack_from(p.out.data, p.out.len);
    struct order_head h2;
    struct join j;
    assert_int_equal(order_get_head(&u, &h2), 0);
    assert_int_equal(h2.n_joins, 2);
    assert_string_equal(h2.runner, "/bin/x");
    assert_int_equal(order_get_join(&u, &j), 0);
    assert_string_equal(j.source, "/a b");
    join_done(&j);
    assert_int_equal(order_get_join(&u, &j), 0);
    assert_int_equal(j.data_len, 3);
    assert_int_equal(unpack_end(&u), 0);
    join_done(&j);
    order_head_done(&h2);
    p.out.len = 0;
    bind.target = "/c/../d";
    order_put_join(&p, &bind);
    u = unpack_from(p.out.data, p.out.len);
    assert_int_equal(order_get_join(&u, &j), -EBADMSG);
    pack_done(&p);
}

static void rules_travel(void **state)
{
    (void)state;
    uint8_t filter[16] = {1};
    struct rules_path paths[] = {{"/a", 3, 0}, {"/b", 4, 1}};
    struct rules r = {.landlock = 1,
                      .abi = 6,
                      .handled = 7,
                      .scopes = 1,
                      .paths = paths,
                      .n_paths = 2,
                      .limits = {{1, 2, 3}},
                      .n_limits = 1,
                      .filter = filter,
                      .filter_len = 16};
    struct pack p = {0};
    rules_put(&p, &r);
    struct unpack u = unpack_from(p.out.data, p.out.len);
    struct rules got;
    assert_int_equal(rules_get(&u, &got), 0);
    assert_int_equal(unpack_end(&u), 0);
    assert_int_equal(got.n_paths, 2);
    assert_string_equal(got.paths[1].path, "/b");
    assert_true(got.limits[0].hard == 3);
    assert_memory_equal(got.filter, filter, 16);
    rules_done(&got);
    for (size_t cut = 0; cut < p.out.len; cut++) {
        u = unpack_from(p.out.data, cut);
        assert_int_equal(rules_get(&u, &got), -EBADMSG);
    }
    p.out.len = 0;
    r.filter_len = 15;
    rules_put(&p, &r);
    u = unpack_from(p.out.data, p.out.len);
    assert_int_equal(rules_get(&u, &got), -EBADMSG);
    pack_done(&p);
}

static void tool_requests_travel(void **state)
{
    (void)state;
    char *roots[] = {"rw:/w", "ro:/r"};
    struct tool_request rq = {.id = 1,
                              .op = TOOL_EDIT,
                              .flags = TOOL_ALL,
                              .roots = {roots, 2, 2},
                              .path = "/w/a\nb",
                              .text = "\0a",
                              .text_len = 2,
                              .text2 = "",
                              .n = 3,
                              .m = 4};
    struct pack p = {0};
    tool_request_put(&p, &rq);
    struct unpack u = unpack_from(p.out.data, p.out.len);
    struct tool_request got;
    assert_int_equal(tool_request_get(&u, &got), 0);
    assert_string_equal(got.path, "/w/a\nb");
    assert_int_equal(got.text_len, 2);
    tool_request_done(&got);
    roots[0] = "/w";
    p.out.len = 0;
    tool_request_put(&p, &rq);
    u = unpack_from(p.out.data, p.out.len);
    assert_int_equal(tool_request_get(&u, &got), -EBADMSG);
    tool_request_done(&got);
    pack_done(&p);
    struct tool_stat st = {'f', 16, 0644, 255, 1, 'w'};
    char tag[TOOL_ETAG_MAX];
    tool_etag(&st, tag);
    assert_string_equal(tag, "\"1-10-ff\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packs_and_unpacks),   cmocka_unit_test(refuses_what_does_not_fit),
        cmocka_unit_test(frames_in_any_split), cmocka_unit_test(refuses_bad_lengths),
        cmocka_unit_test(matches_descriptors), cmocka_unit_test(orders_travel),
        cmocka_unit_test(rules_travel),        cmocka_unit_test(tool_requests_travel)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
