/* TOML: a document is read or refused with its line; what was read can be walked. */
#include "config/toml.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t walk(const struct toml *t)
{
    size_t n = 1;
    if (t->text && t->text[t->len] != '\0')
        abort();
    for (const struct toml *item = t->first; item; item = item->next) {
        if (t->kind == TOML_TABLE && (!item->key || strlen(item->key) > item->key_len))
            abort();
        n += walk(item);
    }
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = {0};
    struct toml *doc = NULL;
    int r = toml_parse((const char *)data, size, &doc, &err);
    if (r == 0)
        (void)walk(doc);
    else if (!err_is_set(&err) || doc)
        abort();
    toml_free(doc);
    return 0;
}
