/* Runs in: runner. Reads: hostile. May block: files. */
#include "runner/ignore.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include "runner/pattern.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_MAX ((size_t)256 << 10)

static void add_rule(struct ignore *ig, struct ignore_rule rule, const char *text, size_t n)
{
    if (ig->n >= IGNORE_RULES_MAX)
        return;
    if (ig->n == ig->cap) {
        size_t cap = ig->cap ? ig->cap * 2 : 64;
        struct ignore_rule *more = realloc(ig->rules, cap * sizeof(*more));
        if (!more)
            return;
        ig->rules = more;
        ig->cap = cap;
    }
    rule.pattern = strndup(text, n);
    if (rule.pattern)
        ig->rules[ig->n++] = rule;
}

/* Trailing spaces go, unless the last one is escaped. */
static size_t trimmed(const char *line, size_t n)
{
    if (n > 0 && line[n - 1] == '\r')
        n--;
    while (n > 0 && line[n - 1] == ' ' && !(n > 1 && line[n - 2] == '\\'))
        n--;
    return n;
}

static void parse_line(struct ignore *ig, size_t n_base, const char *line, size_t n)
{
    struct ignore_rule rule = {.n_base = n_base};
    n = trimmed(line, n);
    if (n == 0 || line[0] == '#' || memchr(line, '\0', n))
        return;
    if (line[0] == '!') {
        rule.is_taken_back = true;
        line++;
        n--;
    }
    if (n > 0 && line[n - 1] == '/') {
        rule.is_for_folders = true;
        n--;
    }
    rule.is_anchored = memchr(line, '/', n) != NULL;
    if (n > 0 && line[0] == '/') {
        line++;
        n--;
    }
    if (n > 0)
        add_rule(ig, rule, line, n);
}

void ignore_parse(struct ignore *ig, const char *path, const char *text, size_t n)
{
    size_t n_base = strlen(path);
    if (n_base > 0 && path[n_base - 1] != '/')
        n_base++;
    const char *end = text + n;
    while (text < end) {
        const char *feed = memchr(text, '\n', (size_t)(end - text));
        parse_line(ig, n_base, text, (size_t)((feed ? feed : end) - text));
        text = feed ? feed + 1 : end;
    }
}

static void read_one(struct ignore *ig, int dir, const char *name, const char *path)
{
    CLEANUP(fd_done) int fd = path_open_beneath(dir, name, O_RDONLY | O_NONBLOCK, 0, false);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (size_t)st.st_size > FILE_MAX)
        return;
    CLEANUP(freep) char *text = malloc(FILE_MAX);
    ssize_t n = text ? fd_read_all(fd, text, FILE_MAX) : -1;
    if (n > 0)
        ignore_parse(ig, path, text, (size_t)n);
}

size_t ignore_read(struct ignore *ig, int fd, const char *path)
{
    static const char *const files[] = {".git/info/exclude", ".gitignore", ".ignore"};
    size_t before = ig->n;
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        read_one(ig, fd, files[i], path);
    return before;
}

void ignore_forget(struct ignore *ig, size_t n_before)
{
    while (ig->n > n_before)
        free(ig->rules[--ig->n].pattern);
}

static bool rule_fits(const struct ignore_rule *rule, const char *path, bool is_folder)
{
    if (rule->is_for_folders && !is_folder)
        return false;
    if (strlen(path) < rule->n_base)
        return false;
    const char *below = path + rule->n_base;
    return pattern_match(rule->pattern, rule->is_anchored ? below : path_last(below));
}

bool ignore_has(const struct ignore *ig, const char *path, bool is_folder)
{
    for (size_t i = ig->n; i > 0; i--)
        if (rule_fits(&ig->rules[i - 1], path, is_folder))
            return !ig->rules[i - 1].is_taken_back;
    return false;
}

void ignore_done(struct ignore *ig)
{
    ignore_forget(ig, 0);
    free(ig->rules);
    *ig = (struct ignore){0};
}
