#include "store_unit.h"

#include "base/clock.h"
#include "base/fd.h"
#include "store/spool.h"
#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>

#define ID   "cmd_01JTEST0000000000000000000"
#define KIB  ((size_t)1024)
#define MIB  (1024 * KIB)
#define HEAD ((uint64_t)SPOOL_HEAD_BYTES)

static struct place place;
static char spool_dir[96];

static int setup(void **state)
{
    (void)state;
    place_make(&place);
    (void)snprintf(spool_dir, sizeof spool_dir, "%s/spool", place.dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    place_done(&place);
    return 0;
}

static struct spool *new_spool(uint64_t cap)
{
    struct spool *s = NULL;
    assert_int_equal(spool_new(spool_dir, ID, cap, &s, &place.err), 0);
    return s;
}

static struct spool_reader *new_reader(void)
{
    struct spool_reader *r = NULL;
    assert_int_equal(spool_reader_new(spool_dir, ID, &r), 0);
    return r;
}

/* The byte that stands at OFF of a stream in all tests: every value, no period of a power of two.
 */
static unsigned char byte_at(unsigned stream, uint64_t off)
{
    return (unsigned char)((off * 2654435761u >> 7) + off % 251 + stream * 91);
}

static void add(struct spool *s, unsigned stream, size_t n)
{
    unsigned char *bytes = malloc(n + 1);
    uint64_t off = spool_bytes(s, (enum spool_stream)stream);
    for (size_t i = 0; i < n; i++)
        bytes[i] = byte_at(stream, off + i);
    assert_int_equal(spool_add(s, (enum spool_stream)stream, 5, bytes, n), 0);
    free(bytes);
}

/* Reads to what is the end now and checks all of it. */
struct seen {
    uint64_t seq, off[SPOOL_STREAMS], data, gaps, lost, notes, ends;
};

static void check_frame(const struct spool_frame *f, struct seen *seen)
{
    assert_true(f->seq > seen->seq);
    seen->seq = f->seq;
    unsigned s = (unsigned)f->stream;
    assert_int_equal(seen->ends, 0);
    switch (f->kind) {
    case SPOOL_DATA:
        assert_true(f->off == seen->off[s]);
        assert_true(f->to == f->off + f->len && f->len > 0 && f->len <= SPOOL_FRAME_BYTES);
        for (size_t i = 0; i < f->len; i++)
            if ((unsigned char)f->bytes[i] != byte_at(s, f->off + i))
                fail_msg("stream %u byte %zu", s, (size_t)f->off + i);
        seen->off[s] = f->to;
        seen->data += f->len;
        break;
    case SPOOL_GAP:
        assert_true(f->off <= seen->off[s] && f->to > seen->off[s]);
        seen->lost += f->to - f->off;
        seen->off[s] = f->to;
        seen->gaps++;
        break;
    case SPOOL_NOTE:
        seen->notes++;
        break;
    case SPOOL_END:
        seen->ends++;
        break;
    }
}

static void read_on(struct spool_reader *r, struct seen *seen)
{
    struct spool_frame f;
    int got;
    while ((got = spool_next(r, seen->seq, &f)) > 0)
        check_frame(&f, seen);
    assert_int_equal(got, 0);
}

static struct seen read_all(void)
{
    struct seen seen = {0};
    struct spool_reader *r = new_reader();
    read_on(r, &seen);
    spool_reader_free(r);
    return seen;
}

/* ---- Small -------------------------------------------------------------------------------------
 */

static void every_byte_is_exact(void **state)
{
    (void)state;
    struct spool *s = new_spool(16 * MIB);
    char all[256];
    for (size_t i = 0; i < 256; i++)
        all[i] = (char)i;
    assert_int_equal(spool_add(s, SPOOL_STDOUT, 1, all, 256), 0);
    assert_int_equal(spool_add(s, SPOOL_STDERR, 2, "\xe2", 1), 0);
    assert_int_equal(spool_add(s, SPOOL_STDERR, 3, "\x82\xac", 2), 0);
    assert_int_equal(spool_note(s, 4, "{\"kind\":\"blocked\"}"), 0);
    assert_int_equal(spool_end(s, 5, "{\"state\":\"exited\"}"), 0);
    assert_int_equal(spool_end(s, 5, "{}"), -EALREADY);
    assert_int_equal(spool_add(s, SPOOL_STDOUT, 1, "x", 1), -EALREADY);
    assert_true(spool_next_seq(s) == 6);
    spool_free(s);
    struct spool_reader *r = new_reader();
    struct spool_frame f;
    assert_int_equal(spool_next(r, 0, &f), 1);
    assert_true(f.seq == 1 && f.len == 256 && f.kind == SPOOL_DATA && f.t_ms == 1);
    assert_memory_equal(f.bytes, all, 256);
    assert_int_equal(spool_next(r, 2, &f), 1);
    assert_true(f.seq == 3 && f.len == 2 && f.off == 1 && f.stream == SPOOL_STDERR);
    assert_int_equal(spool_next(r, 3, &f), 1);
    assert_true(f.kind == SPOOL_NOTE && f.len == 18);
    assert_int_equal(spool_next(r, 4, &f), 1);
    assert_true(f.kind == SPOOL_END && f.seq == 5);
    assert_memory_equal(f.bytes, "{\"state\":\"exited\"}", f.len);
    assert_int_equal(spool_next(r, 5, &f), 0);
    assert_int_equal(spool_next(r, 99, &f), 0);
    assert_int_equal(spool_next(r, 1, &f), 1); /* back again */
    assert_true(f.seq == 2);
    char got[300];
    uint64_t resume;
    assert_int_equal(spool_pread(r, SPOOL_STDOUT, 0, got, sizeof got, &resume), 256);
    assert_memory_equal(got, all, 256);
    assert_int_equal(spool_pread(r, SPOOL_STDERR, 0, got, sizeof got, &resume), 3);
    assert_memory_equal(got, "\xe2\x82\xac", 3);
    assert_int_equal(spool_pread(r, SPOOL_STDOUT, 100, got, 7, &resume), 7);
    assert_memory_equal(got, all + 100, 7);
    assert_int_equal(spool_pread(r, SPOOL_STDOUT, 256, got, 7, &resume), 0);
    assert_int_equal(spool_pread(r, SPOOL_PTY, 0, got, 7, &resume), 0);
    assert_true(spool_stream_size(r, SPOOL_STDOUT) == 256);
    assert_true(spool_stream_size(r, SPOOL_STDERR) == 3);
    assert_true(spool_ended(r));
    spool_reader_free(r);
}

static void modes_and_names(void **state)
{
    (void)state;
    char path[256];
    mode_t before = umask(0);
    struct spool *s = new_spool(MIB);
    add(s, 0, 10);
    umask(0777);
    spool_free(s);
    struct spool *other = NULL;
    assert_int_equal(spool_new(spool_dir, "cmd_other", MIB, &other, NULL), 0);
    add(other, 0, 10);
    umask(before);
    spool_free(other);
    assert_int_equal(mode_of(spool_dir), 0700);
    static const char *const IDS[] = {ID, "cmd_other"};
    for (int i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", spool_dir, IDS[i]);
        assert_int_equal(mode_of(path), 0700);
        (void)snprintf(path, sizeof path, "%s/%s/0000000000000001", spool_dir, IDS[i]);
        assert_int_equal(mode_of(path), 0600);
    }
    static const char *const BAD[] = {"", ".", "..", "a/b", "../x"};
    struct spool_reader *r = NULL;
    for (int i = 0; i < 5; i++) {
        assert_true(spool_new(spool_dir, BAD[i], MIB, &s, NULL) < 0);
        assert_int_equal(spool_reader_new(spool_dir, BAD[i], &r), -ENOENT);
        assert_int_equal(spool_delete(spool_dir, BAD[i]), -ENOENT);
    }
    assert_int_equal(spool_new(spool_dir, ID, MIB, &s, NULL), -EEXIST);
    assert_int_equal(spool_reader_new(spool_dir, "cmd_absent", &r), -ENOENT);
    assert_int_equal(spool_delete(spool_dir, "cmd_absent"), -ENOENT);
    assert_int_equal(spool_delete(spool_dir, ID), 0);
    assert_int_equal(spool_reader_new(spool_dir, ID, &r), -ENOENT);
}

/* ---- The cap ------------------------------------------------------------------------------------
 */

static uint64_t disk_bytes(void)
{
    char path[160];
    uint64_t n = 0;
    (void)snprintf(path, sizeof path, "%s/" ID, spool_dir);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    const struct dirent *d;
    while ((d = readdir(dir))) {
        struct stat sb;
        if (fstatat(dirfd(dir), d->d_name, &sb, 0) == 0 && S_ISREG(sb.st_mode))
            n += (uint64_t)sb.st_size;
    }
    (void)closedir(dir);
    return n;
}

static void exactly_the_cap_stays_whole(void **state)
{
    (void)state;
    static const uint64_t CAPS[] = {64 * KIB, MIB, 3 * MIB, 16 * MIB};
    for (size_t i = 0; i < 4; i++) {
        struct spool *s = new_spool(CAPS[i]);
        for (uint64_t at = 0; at < CAPS[i]; at += 16 * KIB)
            add(s, 0, 16 * KIB);
        assert_int_equal(spool_end(s, 9, "{}"), 0);
        assert_true(spool_dropped(s) == 0);
        spool_free(s);
        struct seen seen = read_all();
        assert_true(seen.data == CAPS[i] && seen.gaps == 0 && seen.ends == 1);
        assert_int_equal(spool_delete(spool_dir, ID), 0);
    }
}

static void past_the_cap_head_and_newest_stay(void **state)
{
    (void)state;
    static const uint64_t CAPS[] = {64 * KIB, MIB, 4 * MIB, 16 * MIB};
    for (size_t i = 0; i < 4; i++) {
        uint64_t head = CAPS[i] / 2 < HEAD ? CAPS[i] / 2 : HEAD, all = 3 * CAPS[i] + 777;
        struct spool *s = new_spool(CAPS[i]);
        for (uint64_t at = 0; at < all;) {
            size_t n = all - at < 40000 ? (size_t)(all - at) : 40000;
            add(s, 0, n);
            at += n;
        }
        add(s, 1, 3);
        assert_int_equal(spool_end(s, 9, "{}"), 0);
        uint64_t dropped = spool_dropped(s);
        spool_free(s);
        struct seen seen = read_all();
        assert_true(seen.off[0] == all && seen.off[1] == 3);
        assert_true(seen.gaps == 1 && seen.ends == 1 && seen.lost == dropped);
        assert_true(seen.data + seen.lost == all + 3);
        assert_true(seen.data <= CAPS[i]);
        /* No more than a part of the tail is missing. */
        uint64_t tail = CAPS[i] - head, part = tail / 16 > 16 * KIB ? tail / 16 : 16 * KIB;
        assert_true(seen.data >= CAPS[i] - part - 40000);
        struct spool_reader *r = new_reader();
        uint64_t resume = 0;
        char *buf = malloc(head + 1);
        /* The head is there to its last byte, behind it the gap says where it goes on. */
        assert_true(spool_pread(r, SPOOL_STDOUT, 0, buf, head + 1, &resume) == (ssize_t)head);
        for (uint64_t k = 0; k < head; k++)
            assert_true((unsigned char)buf[k] == byte_at(0, k));
        free(buf);
        char one[4];
        assert_true(spool_pread(r, SPOOL_STDOUT, head, one, 1, &resume) == -ENODATA);
        assert_true(resume == head + dropped);
        assert_int_equal(spool_pread(r, SPOOL_STDOUT, resume, one, 1, &resume), 1);
        assert_true((unsigned char)one[0] == byte_at(0, resume));
        assert_true(spool_stream_size(r, SPOOL_STDOUT) == all);
        spool_reader_free(r);
        assert_int_equal(spool_delete(spool_dir, ID), 0);
    }
}

static void tiny_pieces_do_not_fill_the_disk(void **state)
{
    (void)state;
    struct spool *s = new_spool(64 * KIB);
    for (int i = 0; i < 200000; i++)
        add(s, i % 7 == 0, 1);
    assert_int_equal(spool_end(s, 9, "{}"), 0);
    assert_true(disk_bytes() < 3 * 64 * KIB + 2 * 64 * KIB);
    spool_free(s);
    struct seen seen = read_all();
    assert_true(seen.data + seen.lost == 200000 && seen.gaps == 2 && seen.ends == 1);
}

/* ---- Readers ------------------------------------------------------------------------------------
 */

/* A writer of random pieces, readers that come and go at random places: what they see fits what was
 * written, whenever they look. */
static void random_writer_twenty_readers(void **state)
{
    (void)state;
    unsigned seed = 20261130;
    for (int round = 0; round < 6; round++) {
        struct spool *s = new_spool((uint64_t)(64 + rand_r(&seed) % 3000) * KIB);
        struct spool_reader *readers[20];
        struct seen seen[20];
        memset(seen, 0, sizeof seen);
        for (int i = 0; i < 20; i++)
            readers[i] = new_reader();
        for (int step = 0; step < 600; step++) {
            int what = rand_r(&seed) % 20;
            if (what == 0)
                assert_int_equal(spool_note(s, 7, "{\"kind\":\"blocked\"}"), 0);
            else
                add(s, (unsigned)(rand_r(&seed) % 3),
                    (size_t)(rand_r(&seed) % (what < 4 ? 150000 : 3000)));
            int who = rand_r(&seed) % 20;
            if (who < 16) { /* the others only look at the end */
                read_on(readers[who], &seen[who]);
                for (unsigned k = 0; k < SPOOL_STREAMS; k++)
                    assert_true(seen[who].off[k] <= spool_bytes(s, (enum spool_stream)k));
            }
            unsigned k = (unsigned)(rand_r(&seed) % 3);
            uint64_t size = spool_bytes(s, (enum spool_stream)k), resume = 0;
            assert_true(spool_stream_size(readers[who], (enum spool_stream)k) == size);
            assert_false(spool_ended(readers[who]));
            if (size == 0)
                continue;
            unsigned char buf[5000];
            uint64_t off = ((uint64_t)rand_r(&seed) << 16 ^ (uint64_t)rand_r(&seed)) % size;
            ssize_t n =
                spool_pread(readers[who], (enum spool_stream)k, off, buf, sizeof buf, &resume);
            if (n == -ENODATA) {
                assert_true(resume > off && resume <= size);
                continue;
            }
            assert_true(n > 0);
            for (ssize_t i = 0; i < n; i++)
                assert_true(buf[i] == byte_at(k, off + (uint64_t)i));
        }
        assert_int_equal(spool_end(s, 9, "{}"), 0);
        struct seen fresh = read_all();
        for (int i = 0; i < 20; i++) {
            read_on(readers[i], &seen[i]);
            assert_true(seen[i].ends == 1 && spool_ended(readers[i]));
            assert_true(seen[i].seq == fresh.seq);
            for (unsigned k = 0; k < SPOOL_STREAMS; k++)
                assert_true(seen[i].off[k] == spool_bytes(s, (enum spool_stream)k));
            spool_reader_free(readers[i]);
        }
        assert_true(fresh.data + fresh.lost ==
                    spool_bytes(s, 0) + spool_bytes(s, 1) + spool_bytes(s, 2));
        assert_true(fresh.lost == spool_dropped(s));
        spool_free(s);
        assert_int_equal(spool_delete(spool_dir, ID), 0);
    }
}

/* ---- Crashes ------------------------------------------------------------------------------------
 */

static void segment_path(const char *name, char ret[static 200])
{
    (void)snprintf(ret, 200, "%s/" ID "/%s", spool_dir, name);
}

static void finish_gives_one_end(void **state)
{
    (void)state;
    assert_int_equal(spool_finish(spool_dir, ID, "{}"), -ENOENT);
    struct spool *s = new_spool(64 * KIB);
    add(s, 0, 300000);
    struct seen before = read_all();
    assert_int_equal(before.ends, 0);
    spool_free(s); /* as if it had died */
    struct spool_reader *early = new_reader();
    struct seen seen = {0};
    read_on(early, &seen);
    assert_int_equal(spool_finish(spool_dir, ID, "{\"state\":\"lost\"}"), 0);
    assert_int_equal(spool_finish(spool_dir, ID, "{\"state\":\"lost\"}"), -EALREADY);
    read_on(early, &seen);
    assert_int_equal(seen.ends, 1);
    assert_true(spool_ended(early));
    spool_reader_free(early);
    struct seen after = read_all();
    assert_true(after.data == before.data && after.ends == 1);
    assert_int_equal(spool_delete(spool_dir, ID), 0);
    /* One that never wrote anything. */
    s = new_spool(MIB);
    spool_free(s);
    assert_int_equal(spool_finish(spool_dir, ID, "{}"), 0);
    after = read_all();
    assert_true(after.ends == 1 && after.data == 0 && after.seq == 1);
}

static void torn_frames_are_ignored(void **state)
{
    (void)state;
    char path[200], copy[4096];
    struct spool *s = new_spool(MIB);
    add(s, 0, 100);
    add(s, 1, 1000);
    add(s, 0, 50);
    spool_free(s);
    segment_path("0000000000000001", path);
    int fd = open(path, O_RDWR);
    ssize_t size = pread(fd, copy, sizeof copy, 0);
    assert_true(size == 48 + 3 * 40 + 1150);
    ssize_t ends[] = {0, 48, 48 + 140, 48 + 140 + 1040, size};
    for (ssize_t n = 0; n <= size; n++) {
        assert_int_equal(ftruncate(fd, n), 0);
        unsigned whole = 0;
        while (whole < 3 && ends[whole + 2] <= n)
            whole++;
        struct seen seen = read_all();
        assert_true(seen.seq == whole && seen.ends == 0);
        if (n % 37 == 0 || n == size) {
            assert_int_equal(spool_finish(spool_dir, ID, "{}"), 0);
            seen = read_all();
            assert_true(seen.seq == whole + 1 && seen.ends == 1);
            close(fd); /* it may be another file now */
            fd = open(path, O_RDWR);
        }
        assert_int_equal(pwrite(fd, copy, (size_t)size, 0), size);
        assert_int_equal(ftruncate(fd, size), 0);
    }
    /* Any one byte changed: never wrong bytes, never a hang, never more frames. */
    for (ssize_t n = 0; n < size; n++) {
        char bad = (char)(copy[n] ^ 0x41);
        assert_int_equal(pwrite(fd, &bad, 1, n), 1);
        struct seen seen = read_all();
        bool is_pad = n >= 44 && n < 48; /* of the segment: not covered */
        assert_true(seen.seq <= 3 && (seen.data < 1150) == !is_pad);
        assert_int_equal(pwrite(fd, &copy[n], 1, n), 1);
    }
    close(fd);
}

/* ---- A full disk
 * --------------------------------------------------------------------------------- */

static void full_disk_drops_and_says_so(void **state)
{
    (void)state;
    /* A file may not grow past the limit: as good as a full disk, without one. */
    struct rlimit before, small = {200 * KIB, RLIM_INFINITY};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    void (*old)(int) = signal(SIGXFSZ, SIG_IGN);
    struct spool *s = new_spool(16 * MIB);
    add(s, 0, 150000);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    unsigned char bytes[60000];
    uint64_t off = spool_bytes(s, SPOOL_STDOUT);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = byte_at(0, off + i);
    int r = spool_add(s, SPOOL_STDOUT, 5, bytes, sizeof bytes);
    assert_true(r == -EFBIG || r == -ENOSPC);
    add(s, 0, 10000); /* a new segment: it goes on */
    assert_int_equal(spool_end(s, 9, "{}"), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    (void)signal(SIGXFSZ, old);
    assert_true(spool_dropped(s) == sizeof bytes);
    spool_free(s);
    struct seen seen = read_all();
    assert_true(seen.gaps == 1 && seen.lost == sizeof bytes && seen.data == 160000);
    assert_int_equal(seen.ends, 1);
}

/* ---- Retention
 * ----------------------------------------------------------------------------------- */

static bool keeps_b(const char *id, void *arg)
{
    (void)arg;
    return strcmp(id, "cmd_b") == 0;
}

static bool there(const char *id)
{
    struct spool_reader *r = NULL;
    if (spool_reader_new(spool_dir, id, &r) < 0)
        return false;
    spool_reader_free(r);
    return true;
}

static void ended_ago(const char *id, int seconds)
{
    char path[160];
    struct timespec then[2] = {{.tv_sec = time(NULL) - seconds}, {.tv_sec = time(NULL) - seconds}};
    (void)snprintf(path, sizeof path, "%s/%s/0000000000000001", spool_dir, id);
    assert_int_equal(utimensat(AT_FDCWD, path, then, 0), 0);
    (void)snprintf(path, sizeof path, "%s/%s", spool_dir, id);
    assert_int_equal(utimensat(AT_FDCWD, path, then, 0), 0);
}

/* By when a command ended, not by its id, which says when it began. */
static void first_ended_goes_first(void **state)
{
    (void)state;
    static const char *const IDS[] = {"cmd_c", "cmd_a", "cmd_d", "cmd_b"};
    assert_int_equal(spool_retain(spool_dir, 0, 1, NULL, NULL), 0); /* no folder yet */
    for (int i = 0; i < 4; i++) {
        struct spool *s = NULL;
        assert_int_equal(spool_new(spool_dir, IDS[i], MIB, &s, NULL), 0);
        add(s, 0, 100 * KIB);
        spool_free(s);
    }
    ended_ago("cmd_b", 400); /* runs */
    ended_ago("cmd_d", 300);
    ended_ago("cmd_c", 200);
    ended_ago("cmd_a", 100); /* began first, ended last */
    assert_int_equal(spool_retain(spool_dir, MIB, 7, keeps_b, NULL), 0);
    assert_int_equal(spool_retain(spool_dir, 250 * KIB, 7, keeps_b, NULL), 2);
    assert_true(there("cmd_a") && there("cmd_b") && !there("cmd_c") && !there("cmd_d"));
    ended_ago("cmd_a", 7 * 86400 - 60);
    assert_int_equal(spool_retain(spool_dir, MIB, 7, NULL, NULL), 0);
    ended_ago("cmd_a", 7 * 86400 + 60);
    assert_int_equal(spool_retain(spool_dir, MIB, 7, NULL, NULL), 1);
    assert_true(there("cmd_b") && !there("cmd_a"));
}

/* ---- A gigabyte
 * ---------------------------------------------------------------------------------- */

static long resident_kib(void)
{
    long pages = 0, skip = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%ld %ld", &skip, &pages), 2);
    (void)fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void a_gigabyte_in_flat_memory(void **state)
{
    (void)state;
    static char piece[64 * 1024];
    memset(piece, 'y', sizeof piece);
    struct spool *s = new_spool(16 * MIB);
    struct spool_reader *readers[21]; /* 20 that read on, and one that stopped */
    uint64_t after[21] = {0}, got[21] = {0}, lost[21] = {0};
    for (int i = 0; i < 21; i++)
        readers[i] = new_reader();
    struct spool_frame f;
    assert_int_equal(spool_add(s, SPOOL_STDOUT, 0, piece, sizeof piece), 0);
    for (int i = 0; i < 21; i++)
        assert_int_equal(spool_next(readers[i], 0, &f), 1);
    long before = resident_kib();
    uint64_t start = clock_now_ms(), n = (uint64_t)1 << 30;
    for (uint64_t at = sizeof piece; at < n; at += sizeof piece)
        assert_int_equal(spool_add(s, SPOOL_STDOUT, 0, piece, sizeof piece), 0);
    uint64_t alone = clock_now_ms() - start;
    assert_int_equal(spool_end(s, 1, "{}"), 0);
    spool_free(s);
    assert_int_equal(spool_delete(spool_dir, ID), 0);
    for (int i = 0; i < 21; i++)
        spool_reader_free(readers[i]);

    s = new_spool(16 * MIB);
    for (int i = 0; i < 21; i++)
        readers[i] = new_reader();
    n = (uint64_t)128 << 20; /* twenty times read is 2.5 GiB */
    start = clock_now_ms();
    for (uint64_t at = 0; at < n; at += sizeof piece) {
        assert_int_equal(spool_add(s, SPOOL_STDOUT, 0, piece, sizeof piece), 0);
        for (int i = 0; i < 20; i++)
            while (spool_next(readers[i], after[i], &f) > 0) {
                after[i] = f.seq;
                got[i] += f.len;
            }
    }
    uint64_t watched = clock_now_ms() - start;
    for (int i = 0; i < 21; i++) {
        while (spool_next(readers[i], after[i], &f) > 0) {
            after[i] = f.seq;
            got[i] += f.len;
            lost[i] += f.kind == SPOOL_GAP ? f.to - f.off : 0;
        }
        assert_true(got[i] + lost[i] == n && (i == 20) == (lost[i] > 0));
        spool_reader_free(readers[i]);
    }
    long grown = resident_kib() - before;
    print_message("1 GiB written in %llu ms; 128 MiB with 20 readers in %llu ms; %ld KiB more\n",
                  (unsigned long long)alone, (unsigned long long)watched, grown);
#ifdef __SANITIZE_ADDRESS__
    assert_true(grown < 32000); /* what was freed is kept back for a while */
#else
    assert_true(grown < 3000);
#endif
    spool_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_byte_is_exact, setup, teardown),
        cmocka_unit_test_setup_teardown(modes_and_names, setup, teardown),
        cmocka_unit_test_setup_teardown(exactly_the_cap_stays_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(past_the_cap_head_and_newest_stay, setup, teardown),
        cmocka_unit_test_setup_teardown(tiny_pieces_do_not_fill_the_disk, setup, teardown),
        cmocka_unit_test_setup_teardown(random_writer_twenty_readers, setup, teardown),
        cmocka_unit_test_setup_teardown(finish_gives_one_end, setup, teardown),
        cmocka_unit_test_setup_teardown(torn_frames_are_ignored, setup, teardown),
        cmocka_unit_test_setup_teardown(full_disk_drops_and_says_so, setup, teardown),
        cmocka_unit_test_setup_teardown(first_ended_goes_first, setup, teardown),
        cmocka_unit_test_setup_teardown(a_gigabyte_in_flat_memory, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
