/* A question on the terminal, with a menu of answers: keys of their own, arrows or j and k, Enter.
 * It speaks to /dev/tty, so that neither standard in nor out is touched. What was typed before it
 * was shown does not count. The terminal is as it was after prompt_hide(), whatever came between.
 *
 *     if (prompt_open(&p) < 0) …                      // there is nobody to ask
 *     prompt_show(&p, "the agent: tests need it", "x.test:443 was refused", items, n);
 *     while ((i = prompt_key(&p)) == PROMPT_MORE) poll(p.fd) …   // or the item's number
 *     prompt_hide(&p, "x.test:443: denied");
 *     prompt_close(&p); */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <termios.h>

#define PROMPT_ITEMS_MAX 6
enum { PROMPT_MORE = -1, PROMPT_GONE = -2 /* the terminal hung up */ };

struct prompt_item {
    const char *label; /* trusted */
    const char *keys;  /* each of these characters takes it; ESC among them stands for Escape */
    const char *shown; /* the keys, for reading: "1, y" */
    const char *text;  /* what it does; any bytes, shown escaped */
};
struct prompt {
    int fd; /* /dev/tty; -1 = not open */
    /* internal */
    bool is_shown, is_dumb;
    struct termios before;
    const struct prompt_item *items;
    size_t n, at, n_above; /* lines above the menu */
};
int prompt_open(struct prompt *p); /* -ENXIO …: no terminal */
void prompt_close(struct prompt *p);
/* Are we in the terminal's foreground? Else it must be left alone. */
bool prompt_may_ask(const struct prompt *p);
/* NOTE (or NULL) is cut to a line; TITLE, what is asked about, stands behind it, in full. Both may
 * be any bytes, shown escaped. ITEMS stay until prompt_hide(). The last one is chosen when it
 * begins: let that be the safe one. */
void prompt_show(struct prompt *p, const char *note, const char *title,
                 const struct prompt_item *items, size_t n);
/* Reads what was typed. The number of the item that was taken, or PROMPT_MORE, or PROMPT_GONE. */
int prompt_key(struct prompt *p);
/* The menu goes; one line stays (any bytes, shown escaped). */
void prompt_hide(struct prompt *p, const char *line);
