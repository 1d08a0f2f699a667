/* Runs in: daemon. Reads: hostile (a name, looked up whole). May block: no.
 *
 * The page's files, built in: no file system, so no walk. They hold no data. */
#include "api/handlers.h"
#include "base/embedded.h"
#include "base/mem.h"
#include "webui_files.h"
#include <string.h>

static const struct kind {
    const char *ending, *type;
} KINDS[] = {
    {".html", "text/html; charset=utf-8"},
    {".css", "text/css; charset=utf-8"},
    {".js", "text/javascript; charset=utf-8"},
    {".svg", "image/svg+xml"},
};

int page_redirect(struct request *rq)
{
    (void)reply_header(rq, "Location", "/ui/");
    rq->reply.status = 307;
    return 0;
}

static const char *type_of(const char *name)
{
    size_t n = strlen(name);

    for (size_t i = 0; i < ARRAY_LEN(KINDS); i++) {
        size_t e = strlen(KINDS[i].ending);
        if (n > e && strcmp(name + n - e, KINDS[i].ending) == 0)
            return KINDS[i].type;
    }
    return "application/octet-stream";
}

int page_file(struct request *rq)
{
    const char *name = rq->n_params ? rq->params[0] : "index.html";
    const struct embedded *f = webui_files;

    while (f->name && strcmp(f->name, name) != 0)
        f++;
    if (!f->name)
        return request_not_found(rq, "file of the page");
    (void)reply_header(rq, "Content-Security-Policy",
                       "default-src 'none'; script-src 'self'; style-src 'self'; connect-src "
                       "'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
                       "frame-ancestors 'none'; require-trusted-types-for 'script'");
    (void)reply_header(rq, "Referrer-Policy", "no-referrer");
    (void)reply_header(rq, "Cross-Origin-Opener-Policy", "same-origin");
    (void)reply_header(rq, "Cross-Origin-Resource-Policy", "same-origin");
    rq->reply.status = 200;
    rq->reply.content_type = type_of(name);
    rq->reply.is_borrowed = f->bytes;
    rq->reply.length = f->len;
    return 0;
}
