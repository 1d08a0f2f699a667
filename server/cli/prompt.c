/* Runs in: cli. Reads: trusted keys; prints hostile text (escaped). May block: on the terminal. */
#include "cli/prompt.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define ESC       '\033'
#define ESC_MS    50 /* what follows an Escape within this belongs to it: an arrow */
#define COLS      80
#define LABEL_COL 9
#define KEYS_COL  11

int prompt_open(struct prompt *p)
{
    const char *term = getenv("TERM");
    *p = (struct prompt){.fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY)};
    p->is_dumb = !term || strcmp(term, "dumb") == 0;
    return p->fd < 0 ? -errno : 0;
}

void prompt_close(struct prompt *p)
{
    fd_close(p->fd);
    p->fd = -1;
}

bool prompt_may_ask(const struct prompt *p)
{
    return p->fd >= 0 && tcgetpgrp(p->fd) == getpgrp();
}

static void put(const struct prompt *p, const struct str *text)
{
    (void)fd_write_all(p->fd, text->data ? text->data : "", text->len);
}

static size_t columns(const struct prompt *p)
{
    struct winsize size;
    return ioctl(p->fd, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20 ? size.ws_col : COLS;
}

/* TEXT escaped, cut so that the line does not wrap: lines are counted. */
static void line_put(struct str *out, const char *text, size_t room)
{
    CLEANUP(str_done) struct str safe = {0};
    (void)str_put_escaped(&safe, text, strlen(text));
    size_t n = safe.len;
    if (n > room) {
        n = room > 3 ? room - 3 : 0;
        while (n > 0 && (safe.data[n] & 0xc0) == 0x80) /* not within a character */
            n--;
    }
    (void)str_add(out, safe.data ? safe.data : "", n);
    if (n < safe.len)
        (void)str_puts(out, "...");
}

static void menu_put(const struct prompt *p, struct str *out)
{
    size_t cols = columns(p), used = 2 + LABEL_COL + KEYS_COL + 1;
    for (size_t i = 0; i < p->n; i++) {
        const struct prompt_item *it = &p->items[i];
        (void)str_printf(out, "%s%-*s%-*s", i == p->at ? "> " : "  ", LABEL_COL, it->label,
                         KEYS_COL, it->shown);
        line_put(out, it->text, cols > used ? cols - used : 0);
        (void)str_puts(out, "\n");
    }
}

static void draw(const struct prompt *p)
{
    CLEANUP(str_done) struct str out = {0};
    menu_put(p, &out);
    put(p, &out);
}

/* The cursor back to the menu's first line, and nothing below. */
static void wipe(const struct prompt *p, size_t lines)
{
    CLEANUP(str_done) struct str out = {0};
    if (!p->is_dumb)
        (void)str_printf(&out, "\r\033[%zuA\033[J", lines);
    put(p, &out);
}

/* In full, whatever lines that takes: how many. */
static size_t title_put(const struct prompt *p, struct str *out, const char *title)
{
    size_t before = out->len, cols = columns(p);
    (void)str_put_escaped(out, title, strlen(title));
    size_t n = out->len - before;
    (void)str_puts(out, "\n");
    return n == 0 ? 1 : (n + cols - 1) / cols;
}

/* What runs inside may have left the terminal with hidden text, other characters, a scroll region
 * or the other screen, so that the question is not seen as it is (xterm: DECSTR, SGR 0, SCS, SI).
 */
#define PLAIN "\033[?47l\033[!p\033[0m\033(B\017"

void prompt_show(struct prompt *p, const char *note, const char *title,
                 const struct prompt_item *items, size_t n)
{
    struct termios raw;
    CLEANUP(str_done) struct str out = {0};
    p->items = items;
    p->n = n;
    p->at = n - 1;
    if (tcgetattr(p->fd, &p->before) == 0) {
        raw = p->before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO); /* signals stay: Ctrl-C is not an answer */
        raw.c_iflag |= ICRNL;
        raw.c_cc[VMIN] = 1;
        raw.c_cc[VTIME] = 0;
        p->is_shown = tcsetattr(p->fd, TCSADRAIN, &raw) == 0;
    }
    (void)tcflush(p->fd, TCIFLUSH);
    (void)str_puts(&out, p->is_dumb ? "\r" : PLAIN "\r");
    if (note) {
        line_put(&out, note, columns(p) - 1);
        (void)str_puts(&out, "\n");
    }
    p->n_above = (note != NULL) + title_put(p, &out, title);
    put(p, &out);
    draw(p);
}

void prompt_hide(struct prompt *p, const char *line)
{
    CLEANUP(str_done) struct str out = {0};
    wipe(p, p->n + p->n_above);
    (void)title_put(p, &out, line);
    put(p, &out);
    if (p->is_shown)
        (void)tcsetattr(p->fd, TCSADRAIN, &p->before);
    p->is_shown = false;
}

static void move(struct prompt *p, int by)
{
    p->at = (p->at + p->n + (size_t)(ssize_t)by) % p->n;
    wipe(p, p->n);
    draw(p);
}

static bool more_comes(const struct prompt *p)
{
    struct pollfd in = {.fd = p->fd, .events = POLLIN};
    return poll(&in, 1, ESC_MS) == 1 && (in.revents & POLLIN);
}

/* Behind an Escape: the rest of CSI or SS3 (ECMA-48, 5.4; xterm's cursor keys), its last byte. 0:
 * it was the key itself. */
static char sequence_end(const struct prompt *p)
{
    char c = 0;
    if (!more_comes(p) || read(p->fd, &c, 1) != 1)
        return 0;
    if (c != '[' && c != 'O')
        return c;
    while (more_comes(p) && read(p->fd, &c, 1) == 1)
        if (c >= '@' && c <= '~')
            return c;
    return '?';
}

static int item_of_key(const struct prompt *p, char c)
{
    for (size_t i = 0; i < p->n; i++)
        if (strchr(p->items[i].keys, c))
            return (int)i;
    return PROMPT_MORE;
}

int prompt_key(struct prompt *p)
{
    char c = 0;
    ssize_t n = read(p->fd, &c, 1);
    if (n <= 0)
        return n < 0 && (errno == EINTR || errno == EAGAIN) ? PROMPT_MORE : PROMPT_GONE;
    if (c == ESC) {
        char last = sequence_end(p);
        if (last == 'A' || last == 'B')
            move(p, last == 'A' ? -1 : 1);
        return last == 0 ? item_of_key(p, ESC) : PROMPT_MORE;
    }
    if (c == 'j' || c == 'k') {
        move(p, c == 'k' ? -1 : 1);
        return PROMPT_MORE;
    }
    if (c == '\n' || c == '\r')
        return (int)p->at;
    return c == '\0' ? PROMPT_MORE : item_of_key(p, c);
}
