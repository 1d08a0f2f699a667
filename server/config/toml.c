/* Runs in: daemon. Reads: hostile (files of a project). May block: no.
 *
 * Keys, tables, arrays: the structure of a document (toml.io/en/v1.0.0). */
#include "base/mem.h"
#include "config/toml_parts.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Errors -----------------------------------------------------------------------------------
 */

int toml_bad(struct reader *rd, const char *fmt, ...)
{
    char detail[300];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(detail, sizeof detail, fmt, ap);
    va_end(ap);
    return err_set(rd->err, -EBADMSG, "toml_invalid", "mend the file (TOML 1.0)", "line %u: %s",
                   rd->line, detail);
}

int toml_no_memory(struct reader *rd)
{
    return err_set(rd->err, -ENOMEM, "internal", NULL, "out of memory");
}

/* ---- The tree ---------------------------------------------------------------------------------
 */

void toml_free(struct toml *t)
{
    if (!t)
        return;
    for (struct toml *item = t->first, *next; item; item = next) {
        next = item->next;
        toml_free(item);
    }
    free(t->key);
    free(t->text);
    free(t);
}
DEFINE_FREEP(struct toml *, toml_free)

static struct toml *item_new(const struct reader *rd, enum toml_kind kind)
{
    struct toml *t = calloc(1, sizeof *t);
    if (t) {
        t->kind = kind;
        t->line = rd->line;
    }
    return t;
}

static void item_add(struct toml *to, struct toml *take_item)
{
    *(to->last ? &to->last->next : &to->first) = take_item;
    to->last = take_item;
    to->n++;
}

static struct toml *find(const struct toml *table, const char *key, size_t n)
{
    for (struct toml *item = table->first; item; item = item->next)
        if (item->key_len == n && memcmp(item->key, key, n) == 0)
            return item;
    return NULL;
}

const struct toml *toml_get(const struct toml *table, const char *key)
{
    return table && table->kind == TOML_TABLE ? find(table, key, strlen(key)) : NULL;
}

/* ITEM becomes TABLE's member KEY, whose bytes are taken over. */
static int member_add(struct reader *rd, struct toml *table, struct str *take_key,
                      struct toml *take_item)
{
    if (!take_item || table->n >= TOML_ITEMS_MAX) {
        toml_free(take_item);
        return take_item ? toml_bad(rd, "more than %d keys in one table", TOML_ITEMS_MAX)
                         : toml_no_memory(rd);
    }
    take_item->key_len = take_key->len;
    take_item->key = take_key->data ? TAKE(take_key->data) : strdup("");
    *take_key = (struct str){0};
    if (!take_item->key) {
        toml_free(take_item);
        return toml_no_memory(rd);
    }
    item_add(table, take_item);
    return 0;
}

/* ---- Between the words ------------------------------------------------------------------------
 */

static void skip_blanks(struct reader *rd)
{
    while (peek(rd) == ' ' || peek(rd) == '\t')
        rd->at++;
}

static int skip_comment(struct reader *rd)
{
    if (peek(rd) != '#')
        return 0;
    for (; rd->at < rd->end && !newline_here(rd); rd->at++) {
        unsigned char c = (unsigned char)*rd->at;
        if ((c < 0x20 && c != '\t') || c == 0x7f)
            return toml_bad(rd, "a control character in a comment");
    }
    return 0;
}

/* To the start of the next line; only a comment may stand before it. */
static int end_line(struct reader *rd)
{
    skip_blanks(rd);
    int r = skip_comment(rd);
    size_t n = newline_here(rd);
    if (r < 0 || rd->at == rd->end)
        return r;
    if (!n)
        return toml_bad(rd, "the line goes on where it ought to end");
    rd->at += n;
    rd->line++;
    return 0;
}

/* Blanks, comments and ends of lines. */
static int skip_lines(struct reader *rd)
{
    for (;;) {
        skip_blanks(rd);
        int r = skip_comment(rd);
        size_t n = newline_here(rd);
        if (r < 0 || !n)
            return r;
        rd->at += n;
        rd->line++;
    }
}

/* ---- Keys -------------------------------------------------------------------------------------
 */

static bool is_bare(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

static int read_key(struct reader *rd, struct str *ret)
{
    str_clear(ret);
    if (peek(rd) == '"' || peek(rd) == '\'')
        return toml_read_string(rd, false, ret);
    const char *from = rd->at;
    while (is_bare(peek(rd)))
        rd->at++;
    if (rd->at == from)
        return toml_bad(rd, "a key is wanted here (letters, digits, - and _, or a quoted string)");
    return str_add(ret, from, (size_t)(rd->at - from)) < 0 ? toml_no_memory(rd) : 0;
}

/* A dot, with blanks around it. */
static bool take_dot(struct reader *rd)
{
    skip_blanks(rd);
    if (peek(rd) != '.')
        return false;
    rd->at++;
    skip_blanks(rd);
    return true;
}

static int duplicate(struct reader *rd, const struct toml *before, const struct str *key)
{
    CLEANUP(str_done) struct str shown = {0};
    (void)str_put_escaped(&shown, str_c(key), key->len < 80 ? key->len : 80);
    return toml_bad(rd, "%s stands a second time, or is no table (line %u)", str_c(&shown),
                    before->line);
}

/* ---- key = value ------------------------------------------------------------------------------
 */

static int read_value(struct reader *rd, unsigned depth, struct toml **ret);

/* A table on the way of a dotted key: made by dotted keys too, and not finished. */
static int step_dotted(struct reader *rd, struct toml **table, struct str *key)
{
    struct toml *found = find(*table, str_c(key), key->len);
    if (found && (found->kind != TOML_TABLE || !found->is_dotted || found->is_closed))
        return duplicate(rd, found, key);
    if (!found) {
        found = item_new(rd, TOML_TABLE);
        if (found)
            found->is_dotted = true;
        int r = member_add(rd, *table, key, found);
        if (r < 0)
            return r;
    }
    *table = found;
    return 0;
}

static int read_pair(struct reader *rd, struct toml *table, unsigned depth)
{
    CLEANUP(str_done) struct str key = {0};
    int r = read_key(rd, &key);
    for (; r >= 0 && take_dot(rd); depth++) {
        r = depth >= TOML_DEPTH_MAX ? toml_bad(rd, "tables lie too deep within each other")
                                    : step_dotted(rd, &table, &key);
        if (r >= 0)
            r = read_key(rd, &key);
    }
    if (r < 0)
        return r;
    const struct toml *before = find(table, str_c(&key), key.len);
    if (before)
        return duplicate(rd, before, &key);
    if (peek(rd) != '=')
        return toml_bad(rd, "'=' is wanted behind a key");
    rd->at++;
    skip_blanks(rd);
    struct toml *value;
    r = read_value(rd, depth, &value);
    return r < 0 ? r : member_add(rd, table, &key, value);
}

/* ---- Values -----------------------------------------------------------------------------------
 */

/* What lies within an inline table or a value's array is as it stands: nothing is added later. */
static void close_all(struct toml *t)
{
    t->is_closed = true;
    for (struct toml *item = t->first; item; item = item->next)
        if (!item->is_closed)
            close_all(item);
}

static int read_array(struct reader *rd, unsigned depth, struct toml *array)
{
    int r;
    rd->at++;
    while ((r = skip_lines(rd)) >= 0 && peek(rd) != ']') {
        struct toml *item;
        r = read_value(rd, depth + 1, &item);
        if (r < 0)
            return r;
        item_add(array, item);
        r = skip_lines(rd);
        if (r < 0)
            return r;
        if (peek(rd) == ',')
            rd->at++;
        else if (peek(rd) != ']')
            return toml_bad(rd, "',' or ']' is wanted in the array that begins at line %u",
                            array->line);
    }
    rd->at++;
    return r;
}

static int read_inline_table(struct reader *rd, unsigned depth, struct toml *table)
{
    rd->at++;
    skip_blanks(rd);
    bool more = peek(rd) != '}';
    while (more) {
        int r = read_pair(rd, table, depth + 1);
        if (r < 0)
            return r;
        skip_blanks(rd);
        more = peek(rd) == ',';
        if (!more && peek(rd) != '}')
            return toml_bad(rd, "',' or '}' is wanted in the inline table");
        if (more) {
            rd->at++;
            skip_blanks(rd);
        }
    }
    rd->at++;
    return 0;
}

static int read_value(struct reader *rd, unsigned depth, struct toml **ret)
{
    CLEANUP(toml_freep) struct toml *v = item_new(rd, TOML_STRING);
    struct str text = {0};
    int r;
    if (!v)
        return toml_no_memory(rd);
    if (depth >= TOML_DEPTH_MAX)
        return toml_bad(rd, "arrays and tables lie too deep within each other");
    switch (peek(rd)) {
    case '"':
    case '\'':
        r = toml_read_string(rd, true, &text);
        v->len = text.len;
        v->text = text.data ? text.data : strdup("");
        if (r >= 0 && !v->text)
            r = toml_no_memory(rd);
        break;
    case '[':
        v->kind = TOML_ARRAY;
        r = read_array(rd, depth, v);
        break;
    case '{':
        v->kind = TOML_TABLE;
        r = read_inline_table(rd, depth, v);
        break;
    default:
        r = toml_read_scalar(rd, v);
    }
    if (r < 0)
        return r;
    close_all(v);
    *ret = TAKE(v);
    return 0;
}

/* ---- [headers] --------------------------------------------------------------------------------
 */

/* A table on the way of a header; of an array of tables its newest. */
static int step_header(struct reader *rd, struct toml **table, struct str *key)
{
    struct toml *found = find(*table, str_c(key), key->len);
    if (!found) {
        found = item_new(rd, TOML_TABLE);
        int r = member_add(rd, *table, key, found);
        if (r < 0)
            return r;
    }
    if (found->is_closed || (found->kind != TOML_TABLE && !found->is_tables))
        return duplicate(rd, found, key);
    *table = found->is_tables ? found->last : found;
    return 0;
}

/* [KEY] in TABLE. */
static int open_table(struct reader *rd, struct toml **table, struct str *key)
{
    struct toml *found = find(*table, str_c(key), key->len);
    if (found &&
        (found->kind != TOML_TABLE || found->is_defined || found->is_dotted || found->is_closed))
        return duplicate(rd, found, key);
    if (!found) {
        found = item_new(rd, TOML_TABLE);
        int r = member_add(rd, *table, key, found);
        if (r < 0)
            return r;
    }
    found->is_defined = true;
    found->line = rd->line;
    *table = found;
    return 0;
}

/* [[KEY]] in TABLE. */
static int open_element(struct reader *rd, struct toml **table, struct str *key)
{
    struct toml *found = find(*table, str_c(key), key->len);
    if (found && !found->is_tables)
        return duplicate(rd, found, key);
    if (!found) {
        found = item_new(rd, TOML_ARRAY);
        if (found)
            found->is_tables = true;
        int r = member_add(rd, *table, key, found);
        if (r < 0)
            return r;
    }
    struct toml *element = item_new(rd, TOML_TABLE);
    if (!element)
        return toml_no_memory(rd);
    element->is_defined = true;
    item_add(found, element);
    *table = element;
    return 0;
}

static int read_header(struct reader *rd, struct toml *root, struct toml **ret_table)
{
    CLEANUP(str_done) struct str key = {0};
    bool is_element = peek_at(rd, 1) == '[';
    unsigned depth = 1;
    int r;
    rd->at += is_element ? 2 : 1;
    skip_blanks(rd);
    *ret_table = root;
    r = read_key(rd, &key);
    for (; r >= 0 && take_dot(rd); depth++) {
        r = depth >= TOML_DEPTH_MAX ? toml_bad(rd, "tables lie too deep within each other")
                                    : step_header(rd, ret_table, &key);
        if (r >= 0)
            r = read_key(rd, &key);
    }
    if (r < 0)
        return r;
    if (peek(rd) != ']' || (is_element && peek_at(rd, 1) != ']'))
        return toml_bad(rd, "'%s' is wanted behind the name of a table", is_element ? "]]" : "]");
    rd->at += is_element ? 2 : 1;
    r = is_element ? open_element(rd, ret_table, &key) : open_table(rd, ret_table, &key);
    return r < 0 ? r : end_line(rd);
}

/* ---- The document -----------------------------------------------------------------------------
 */

static int read_document(struct reader *rd, struct toml *root)
{
    struct toml *table = root;
    int r = 0;
    while (r >= 0 && (r = skip_lines(rd)) >= 0 && rd->at < rd->end) {
        if (peek(rd) == '[') {
            r = read_header(rd, root, &table);
            continue;
        }
        r = read_pair(rd, table, 1);
        if (r >= 0)
            r = end_line(rd);
    }
    return r;
}

/* The end of a line is no part of a character: each line stands for itself. 0 = all of it is. */
static unsigned line_of_bad_utf8(const char *bytes, size_t n)
{
    const char *end = bytes + n;
    for (unsigned line = 1; bytes < end; line++) {
        const char *newline = memchr(bytes, '\n', (size_t)(end - bytes));
        const char *next = newline ? newline + 1 : end;
        if (!utf8_is_valid(bytes, (size_t)(next - bytes)))
            return line;
        bytes = next;
    }
    return 0;
}

int toml_parse(const char *bytes, size_t n, struct toml **ret, struct err *err)
{
    struct reader rd = {.at = bytes, .end = bytes + n, .line = 1, .err = err};
    if (n > TOML_BYTES_MAX)
        return toml_bad(&rd, "the file is larger than %zu bytes", TOML_BYTES_MAX);
    unsigned bad = line_of_bad_utf8(bytes, n);
    if (bad) {
        rd.line = bad;
        return toml_bad(&rd, "this is no UTF-8");
    }
    if (n >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0) /* a byte order mark says nothing */
        rd.at += 3;
    CLEANUP(toml_freep) struct toml *root = item_new(&rd, TOML_TABLE);
    if (!root)
        return toml_no_memory(&rd);
    root->is_defined = true;
    int r = read_document(&rd, root);
    if (r >= 0)
        *ret = TAKE(root);
    return r < 0 ? r : 0;
}
