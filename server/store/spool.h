/* Output of one command on disk: numbered frames, the first 1 MiB and the newest rest kept past the
 * cap, a gap between. Written once, read by any number of readers at any time, also after the end
 * and after a restart of the daemon. Files in <state>/spool/<command id>/ (0700, 0600).
 *
 * A frame: seq (from 1), t_ms since the start, stream, off (bytes of that stream before it), bytes.
 */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum spool_stream { SPOOL_STDOUT = 0, SPOOL_STDERR, SPOOL_PTY, SPOOL_STREAMS };
extern const char *const SPOOL_STREAM_NAMES[];
#define SPOOL_HEAD_BYTES  (1 << 20)
#define SPOOL_FRAME_BYTES (1 << 16)

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
    const char *bytes; /* borrowed until the next call on the reader */
    size_t len;
};
struct spool; /* the writer */
int spool_new(const char *dir, const char *id, uint64_t cap, struct spool **ret, struct err *err);
int spool_add(struct spool *s, enum spool_stream stream, uint64_t t_ms, const void *bytes,
              size_t n);
int spool_note(struct spool *s, uint64_t t_ms, const char *json);
int spool_end(struct spool *s, uint64_t t_ms, const char *json); /* exactly once; the last frame */
uint64_t spool_next_seq(const struct spool *s);
uint64_t spool_bytes(const struct spool *s, enum spool_stream stream); /* written by the command */
uint64_t spool_dropped(const struct spool *s);
void spool_free(struct spool *s);

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
uint64_t spool_stream_size(struct spool_reader *r, enum spool_stream stream);
bool spool_ended(struct spool_reader *r);
void spool_reader_free(struct spool_reader *r);

int spool_delete(const char *dir, const char *id);
/* Oldest out until at most BYTES in all and none older than DAYS; ids in KEEP (running) stay. */
int spool_retain(const char *dir, uint64_t bytes, unsigned days,
                 bool (*keep)(const char *id, void *arg), void *arg);
