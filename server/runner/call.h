/* One call of a file tool: what was asked, what is answered, and the two things every tool does, to
 * open a place it may use and to say why not. Private to the file tools.
 *
 * A tool is `int call_x(struct call *c)`: 0 with c->fields (and c->fd) filled, or a negative errno.
 */
#pragma once
#include "runner/place.h"
#include "wire/pack.h"
#include "wire/tool.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

struct call {
    struct tool_request rq;
    int content; /* what came with the request, or -1 */
    struct tool_answer answer;
    char detail[1024];
    struct pack fields;
    int fd; /* to be handed out */
};

/* Fills detail and layer; returns R. */
__attribute__((format(printf, 4, 5))) int call_refuse(struct call *c, int r, uint8_t layer,
                                                      const char *fmt, ...);
int call_open(struct call *c, const char *path, bool follow, struct place *ret);
/* The same for something that is to be changed. */
int call_open_writable(struct call *c, const char *path, bool follow, struct place *ret);
/* The entry itself goes away from its place (MOVE, REMOVE). */
int call_open_movable(struct call *c, const char *path, struct place *ret);
/* A regular file at P, opened; its descriptor. */
int call_open_regular(struct call *c, const struct place *p, int flags, struct stat *ret);
int call_put_stat(struct call *c, const struct place *p);
/* Copies the descriptor *ARG to TO, from its start (struct replacing). */
int call_copy_content(int to, void *arg);

int call_list(struct call *c); /* finding.c */
int call_glob(struct call *c);
int call_search(struct call *c);
int call_write(struct call *c); /* writing.c */
int call_edit(struct call *c);
