/* A search provider's answer -> its results. Pure, but for the callback. */
#pragma once
#include "wire/fetch.h"
#include <stddef.h>

/* TITLE, URL (http or https) and SNIPPET are UTF-8 without tags, one line each, cut to their
 * maxima (wire/fetch.h). */
typedef void result_fn(const char *title, const char *url, const char *snippet, void *arg);
/* At most MAX results. How many; -EBADMSG when the answer is not in the provider's form. */
int results_read(enum fetch_form form, const char *bytes, size_t n, unsigned max, result_fn *fn,
                 void *arg);
