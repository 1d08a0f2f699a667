/* Output of one command on disk: numbered frames, the first 1 MiB and the newest rest kept past the
 * cap, a gap between. Written once, by one writer; read by any number of readers of the same
 * process at any time, also after the end and after a restart of the daemon. Nothing waits for a
 * reader, and no reader keeps output in memory: a writer needs about 100 bytes a segment, a reader
 * about 80 KiB, whatever the output. Files in <dir>/<command id>/ (0700, 0600).
 *
 * A frame: seq (from 1), t_ms since the start, stream, off (bytes of that stream before it), bytes.
 * Frames lie in segments (store/segment.h). The head segment stays; past the cap the oldest of the
 * others goes. What went is shown to a reader as one GAP frame a stream that lost bytes; its number
 * is one of those that went. A frame that was torn by a crash is as if it had never been written.
 *
 *     struct spool *s;
 *     r = spool_new("/…/spool", "cmd_01J…", 16 << 20, &s, &err);
 *     r = spool_add(s, SPOOL_STDOUT, 12, bytes, n);
 *     r = spool_end(s, 40, "{\"state\":\"exited\",…}");
 *     spool_free(s);
 *
 *     uint64_t after = 0;
 *     while (spool_next(reader, after, &frame) > 0) { …; after = frame.seq; } */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum spool_stream { SPOOL_STDOUT = 0, SPOOL_STDERR, SPOOL_PTY, SPOOL_STREAMS };
extern const char *const SPOOL_STREAM_NAMES[]; /* NULL-terminated */
#define SPOOL_HEAD_BYTES  (1 << 20)
#define SPOOL_FRAME_BYTES (1 << 16)
#define SPOOL_CAP_MAX     ((uint64_t)1 << 30)

enum spool_kind {
    SPOOL_DATA = 0,
    SPOOL_GAP,
    SPOOL_NOTE /* json text: blocked, ask */,
    SPOOL_END /* json text */
};
struct spool_frame {
    uint64_t seq, t_ms;
    enum spool_kind kind;
    enum spool_stream stream;
    uint64_t off, to;  /* data: offset; gap: from off to `to` */
    const char *bytes; /* LEN bytes, no NUL; borrowed until the next call on the reader */
    size_t len;
};
struct spool; /* the writer */
/* ID is a plain name. CAP in bytes of output; 0 or more than SPOOL_CAP_MAX is SPOOL_CAP_MAX; a cap
 * under 2 MiB keeps its first half. At most twice as many bytes lie on the disk, however small the
 * pieces are. DIR is made (0700) when it is missing. -EEXIST: there is one already. ERR has code
 * disk_full for -ENOSPC and the like, else internal. */
int spool_new(const char *dir, const char *id, uint64_t cap, struct spool **ret, struct err *err);
/* When the disk is full the oldest kept output makes room; if that is not enough the bytes count as
 * dropped (a gap will show), -ENOSPC is returned and the spool goes on. */
int spool_add(struct spool *s, enum spool_stream stream, uint64_t t_ms, const void *bytes,
              size_t n);
int spool_note(struct spool *s, uint64_t t_ms, const char *json); /* -E2BIG: over a frame */
/* Exactly once; the last frame. -ENOSPC: not written, may be tried again. */
int spool_end(struct spool *s, uint64_t t_ms, const char *json);
uint64_t spool_next_seq(const struct spool *s);
uint64_t spool_bytes(const struct spool *s, enum spool_stream stream); /* written by the command */
uint64_t spool_dropped(const struct spool *s);                         /* of them not kept */
void spool_free(struct spool *s);
/* Ends the spool of a writer that died: what it tore is cut off, an END with JSON added (t_ms is
 * that of the last frame). -EALREADY: it has an end. -ENOENT. */
int spool_finish(const char *dir, const char *id, const char *json);

struct spool_reader;
int spool_reader_new(const char *dir, const char *id,
                     struct spool_reader **ret); /* -ENOENT: expired */
/* The first frame with a number above AFTER. 1 = filled, 0 = none yet (or the end was handed out:
 * look at kind SPOOL_END of the last), negative errno. */
int spool_next(struct spool_reader *r, uint64_t after, struct spool_frame *ret);
/* Bytes of one stream from offset OFF: > 0 bytes read, 0 = none there (yet), -ENODATA = in a gap
 * (*ret_resume is where it goes on). */
ssize_t spool_pread(struct spool_reader *r, enum spool_stream stream, uint64_t off, void *buf,
                    size_t n, uint64_t *ret_resume);
/* Written by the command so far, what was dropped included. */
uint64_t spool_stream_size(struct spool_reader *r, enum spool_stream stream);
bool spool_ended(struct spool_reader *r);
void spool_reader_free(struct spool_reader *r);

int spool_delete(const char *dir, const char *id); /* -ENOENT */
/* What ended first goes first, until there are at most BYTES (on the disk) in all and none ended
 * more than DAYS ago; ids for which KEEP is true (running) stay, KEEP may be NULL. Returns how many
 * went. Looks at every file: run it in a thread (uv_queue_work) with a copy of the running ids; it
 * shares nothing. */
int spool_retain(const char *dir, uint64_t bytes, unsigned days,
                 bool (*keep)(const char *id, void *arg), void *arg);
