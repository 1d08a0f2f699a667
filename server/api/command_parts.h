/* What commands.c and the files of output share. */
#pragma once
#include "api/request.h"
#include "session/command.h"

/* The command of the path: alive, or NULL and only its document. *ret_doc is a new reference. */
int command_any(struct request *rq, struct command **ret_live, json_t **ret_doc);
/* text{stdout, stderr, truncated, lossy} of an ended command: at most MAX bytes a stream. */
json_t *output_text(struct request *rq, const json_t *doc, int64_t max);

/* One frame of a spool as JSON (without line end) appended to OUT. */
int output_frame_put(struct str *out, const struct spool_frame *f);
/* The end of a command whose spool holds none (it was lost): from its document. */
int frame_put_lost(struct str *out, uint64_t seq, const json_t *doc);
const char *frame_kind(const struct spool_frame *f);
/* BYTES as one JSON string with quotes; bad UTF-8 becomes U+FFFD and sets *ret_lossy. */
int text_put(struct str *out, const char *bytes, size_t n, bool *ret_lossy);
